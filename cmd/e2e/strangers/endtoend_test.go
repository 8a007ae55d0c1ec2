//go:build strangers

package strangers

import (
	"encoding/json"
	"fmt"
	"maps"
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

// Upstream's end-to-end tests run against an installation with kube-controller-manager and kube-scheduler; kwok plays the
// nodes, so that pods become Running. testdata/endtoend.txt names what is not run, because it needs a container that really
// runs, and what fails, each with the reason.
func TestKubernetesEndToEnd(t *testing.T) {
	expected := readReasons(t, "testdata/endtoend.txt")
	module := kubernetesModule(t)
	suite := buildEndToEnd(t, module)
	ginkgo := build(t, module, "github.com/onsi/ginkgo/v2/ginkgo")
	scheduler := build(t, module, "k8s.io/kubernetes/cmd/kube-scheduler")
	up := e2e.Install(t, t.TempDir())
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
	report := runEndToEnd(t, up, ginkgo, suite, filter, expected)
	checkEndToEnd(t, report, expected)
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

// reasons has the reason for each test that is not run, or fails, by its name, and for each file that is left out whole.
type reasons struct{ notRun, fails, files map[string]string }

// readReasons reads lines of the form "not run: REASON" or "fails: REASON". Each is followed by indented lines with the names
// of tests, or of files of tests that are not run, as "file PATH".
func readReasons(t *testing.T, file string) reasons {
	t.Helper()
	out := reasons{map[string]string{}, map[string]string{}, map[string]string{}}
	var of map[string]string
	reason := ""
	for line := range strings.Lines(read(t, file)) {
		line = strings.TrimSuffix(line, "\n")
		name, indented := strings.CutPrefix(line, "\t")
		path, isFile := strings.CutPrefix(name, "file ")
		kind, why, _ := strings.Cut(line, ": ")
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
		case indented && isFile:
			out.files[path] = reason
		case indented:
			of[name] = reason
		case kind == "not run":
			of, reason = out.notRun, why
		case kind == "fails":
			of, reason = out.fails, why
		default:
			t.Fatalf("%s: %q is neither a reason nor the name of a test", file, line)
		}
	}
	return out
}

// alternatives returns a regular expression for texts that end in one of the keys.
func alternatives(of map[string]string) string {
	var all []string
	for _, text := range slices.Sorted(maps.Keys(of)) {
		all = append(all, regexp.QuoteMeta(text)+"$")
	}
	return strings.Join(all, "|")
}

// spec is what the report of ginkgo says of a test.
type spec struct {
	ContainerHierarchyTexts []string
	LeafNodeText, LeafNodeType,
	State string
	RunTime          int64 // in nanoseconds
	Failure          struct{ Message string }
	LeafNodeLocation struct {
		FileName   string
		LineNumber int
	}
}

// name is the name as it is printed, without the part that all have.
func (s *spec) name() string {
	return strings.Join(append(s.ContainerHierarchyTexts, s.LeafNodeText), " ")
}

// runEndToEnd runs the tests that a label filter selects, but for those that are not to be run.
func runEndToEnd(t *testing.T, up *e2e.Installation, ginkgo, suite, filter string, expected reasons) (all []spec) {
	t.Helper()
	dir := t.TempDir()
	args := []string{
		"--procs=3", "--timeout=4h", "--seed=1", "--no-color", "--output-dir=" + dir, "--json-report=report.json", "--label-filter=" + filter,
	}
	if len(expected.notRun) > 0 {
		args = append(args, "--skip="+alternatives(expected.notRun))
	}
	for file := range expected.files {
		args = append(args, "--skip-file="+regexp.QuoteMeta(file)+"$")
	}
	args = append(args, suite, "--", "--kubeconfig="+up.Kubeconfig, "--provider=skeleton", "--kubectl-path="+e2e.Program(t, testtools.Kubectl),
		"--disable-log-dump", "--dump-logs-on-failure=false", "--report-dir="+dir, "--e2e-output-dir="+dir)
	out, err := try(t, dir, []string{"HOME=" + dir, "TMPDIR=" + dir, "KUBECONFIG=/dev/null"}, ginkgo, args...)
	if keep := os.Getenv("PORTICO_TEST_ENDTOEND_REPORT"); keep != "" {
		e2e.WriteFile(t, keep+".log", out)
		e2e.WriteFile(t, keep, read(t, filepath.Join(dir, "report.json")))
	}
	var reports []struct{ SpecReports []spec }
	if jsonErr := json.Unmarshal([]byte(read(t, filepath.Join(dir, "report.json"))), &reports); jsonErr != nil || len(reports) != 1 {
		t.Fatalf("ginkgo: %v, its report: %v\n%s", err, jsonErr, out[max(0, len(out)-8192):])
	}
	return slices.DeleteFunc(reports[0].SpecReports, func(s spec) bool { return s.LeafNodeType != "It" })
}

// checkEndToEnd checks that all tests pass but for those that are expected to fail.
func checkEndToEnd(t *testing.T, all []spec, expected reasons) {
	t.Helper()
	counts := map[string]int{}
	for i := range all {
		s := &all[i]
		name := s.name()
		counts[s.State]++
		reason, fails := expected.fails[name]
		switch passed := s.State == "passed"; {
		case s.State == "skipped", passed && !fails:
		case passed:
			t.Errorf("passed, expected to fail: %s: %s", name, reason)
		case fails:
			t.Logf("expected: %s: %s", name, reason)
		default:
			t.Errorf("%s: %s\n%.2000s", s.State, name, s.Failure.Message)
		}
	}
	t.Logf("outcomes: %v", counts)
}
