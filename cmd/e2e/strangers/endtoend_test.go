//go:build strangers

package strangers

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"

	"portico/cmd/e2e"
	"portico/cmd/internal/testtools"
)

// endToEndAreas are the areas of upstream's end-to-end tests that need an API server.
const endToEndAreas = "sig-api-machinery || sig-auth || sig-cli || sig-instrumentation || sig-network || sig-apps || sig-scheduling || sig-storage"

// Upstream's end-to-end tests run against an installation with kube-controller-manager and kube-scheduler; kwok simulates the
// nodes, so that pods become Running. testdata/endtoend.txt names the tests that are not run, each with the reason: most need
// a container that runs.
func TestKubernetesEndToEnd(t *testing.T) {
	excluded := readExclusions(t, "testdata/endtoend.txt")
	module := kubernetesModule(t)
	suite := buildEndToEnd(t, module)
	ginkgo := build(t, module, "github.com/onsi/ginkgo/v2/ginkgo")
	scheduler := build(t, module, "k8s.io/kubernetes/cmd/kube-scheduler")
	up := e2e.Install(t, t.TempDir(), "--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction")
	w := &workloads{t: t, up: up, client: up.Client(t), nodes: 3}
	startKwok(t, up)
	createNodes(t, w.client, w.nodes, func(node *corev1.Node) {
		node.Labels = map[string]string{corev1.LabelHostname: node.Name, corev1.LabelOSStable: "linux"}
		node.Status.NodeInfo.KubeletVersion = testtools.KubernetesVersion
		node.Status.Allocatable = corev1.ResourceList{
			corev1.ResourceCPU: apiresource.MustParse("16"), corev1.ResourceMemory: apiresource.MustParse("64Gi"),
			corev1.ResourcePods: apiresource.MustParse("500"), corev1.ResourceEphemeralStorage: apiresource.MustParse("1Ti"),
		}
		node.Status.Capacity = node.Status.Allocatable
	})
	w.startControllerManager(build(t, module, "k8s.io/kubernetes/cmd/kube-controller-manager"))
	start(t, nil, scheduler, "--kubeconfig="+up.Kubeconfig, "--authentication-skip-lookup", "--secure-port=0", "--leader-elect=false")
	w.untainted()

	filter := fmt.Sprintf("(%s) && !Feature:OffByDefault && !Disruptive && !Flaky", endToEndAreas)
	if focus := os.Getenv("PORTICO_TEST_ENDTOEND_LABELS"); focus != "" {
		filter = fmt.Sprintf("(%s) && (%s)", filter, focus)
	}
	report, err := runEndToEnd(t, up, ginkgo, suite, filter, excluded)
	checkEndToEnd(t, report, err, excluded)
}

// buildEndToEnd builds the test program of upstream's end-to-end tests with the version of the release, without which some
// tests are skipped.
func buildEndToEnd(t *testing.T, module string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "e2e.test")
	run(t, module, []string{"GOFLAGS=-mod=mod", "GOWORK=off"}, "go", "test", "-c", "-vet=off", "-trimpath",
		"-ldflags=-s -w -X k8s.io/component-base/version.gitVersion="+testtools.KubernetesVersion, "-o", path, "k8s.io/kubernetes/test/e2e")
	return path
}

// exclusions are the names of tests that are not run, and the files of which no test is run.
type exclusions struct{ tests, files []string }

// readExclusions reads lines of the form "not run: REASON". Each is followed by indented lines with the names of tests, or with
// "file PATH".
func readExclusions(t *testing.T, file string) (out exclusions) {
	t.Helper()
	for line := range strings.Lines(read(t, file)) {
		line = strings.TrimSuffix(line, "\n")
		name, indented := strings.CutPrefix(line, "\t")
		path, isFile := strings.CutPrefix(name, "file ")
		switch {
		case isFile && indented:
			out.files = append(out.files, path)
		case indented:
			out.tests = append(out.tests, name)
		case line != "" && !strings.HasPrefix(line, "#") && !strings.HasPrefix(line, "not run: "):
			t.Fatalf("%s: %q is neither a reason nor the name of a test", file, line)
		}
	}
	return out
}

// alternatives returns a regular expression that matches a text that ends in one of endings.
func alternatives(endings []string) string {
	var all []string
	for _, text := range endings {
		all = append(all, regexp.QuoteMeta(text)+"$")
	}
	return strings.Join(all, "|")
}

// spec is a test in the report of ginkgo.
type spec struct {
	ContainerHierarchyTexts           []string
	LeafNodeText, LeafNodeType, State string
	Failure                           struct{ Message string }
	LeafNodeLocation                  struct{ FileName string }
}

// name returns the texts of the containers and of the test.
func (s *spec) name() string {
	return strings.Join(append(s.ContainerHierarchyTexts, s.LeafNodeText), " ")
}

// runEndToEnd runs the tests that filter selects, except those that are excluded. It returns all tests, also those that are not
// run, and the error of ginkgo.
func runEndToEnd(t *testing.T, up *e2e.Installation, ginkgo, suite, filter string, excluded exclusions) (all []spec, err error) {
	t.Helper()
	dir := t.TempDir()
	args := []string{
		"--procs=3", "--timeout=4h", "--seed=1", "--no-color", "--output-dir=" + dir, "--json-report=report.json", "--label-filter=" + filter,
		"--skip=" + alternatives(excluded.tests),
	}
	for _, file := range excluded.files {
		args = append(args, "--skip-file="+alternatives([]string{file}))
	}
	args = append(args, suite, "--", "--kubeconfig="+up.Kubeconfig, "--provider=skeleton", "--kubectl-path="+e2e.Program(t, testtools.Kubectl),
		"--disable-log-dump", "--dump-logs-on-failure=false", "--report-dir="+dir, "--e2e-output-dir="+dir)
	out, err := try(t, dir, []string{"HOME=" + dir, "TMPDIR=" + dir, "KUBECONFIG=/dev/null"}, ginkgo, args...)
	if keep := os.Getenv("PORTICO_TEST_ENDTOEND_REPORT"); keep != "" {
		e2e.WriteFile(t, keep+".log", out)
		e2e.WriteFile(t, keep, read(t, filepath.Join(dir, "report.json")))
	}
	if err != nil {
		err = fmt.Errorf("%w\n%s", err, out[max(0, len(out)-8192):])
	}
	var reports []struct{ SpecReports []spec }
	if jsonErr := json.Unmarshal([]byte(read(t, filepath.Join(dir, "report.json"))), &reports); jsonErr != nil || len(reports) != 1 {
		t.Fatalf("the report of ginkgo: %v, ginkgo: %v", jsonErr, err)
	}
	return slices.DeleteFunc(reports[0].SpecReports, func(s spec) bool { return s.LeafNodeType != "It" }), err
}

// checkEndToEnd checks that tests passed, that none failed, and that those that are excluded exist.
func checkEndToEnd(t *testing.T, all []spec, err error, excluded exclusions) {
	t.Helper()
	counts := map[string]int{}
	for i := range all {
		s := &all[i]
		counts[s.State]++
		if s.State != "passed" && s.State != "skipped" {
			t.Errorf("%s: %s\n%.2000s", s.State, s.name(), s.Failure.Message)
		}
	}
	t.Logf("outcomes: %v", counts)
	if counts["passed"] == 0 {
		t.Fatalf("no test passed: %v", err)
	}
	if err != nil && counts["passed"]+counts["skipped"] == len(all) {
		t.Errorf("ginkgo failed, but no test: %v", err)
	}
	for _, name := range excluded.tests {
		if !slices.ContainsFunc(all, func(s spec) bool { return s.name() == name }) {
			t.Errorf("there is no test %s", name)
		}
	}
	for _, file := range excluded.files {
		if !slices.ContainsFunc(all, func(s spec) bool { return strings.HasSuffix(s.LeafNodeLocation.FileName, file) }) {
			t.Errorf("%s has no test", file)
		}
	}
}
