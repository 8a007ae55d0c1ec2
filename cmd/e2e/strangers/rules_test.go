//go:build strangers

package strangers

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"portico/cmd/e2e"
	"portico/cmd/internal/testtools"
)

// gatewayAPI is the last version of Gateway API's module that has the tests of its rules: since v1.5 they are a module that
// is not published.
const gatewayAPI = "sigs.k8s.io/gateway-api@v1.4.1"

// wantsType is why a test fails: in the error of a rule it expects the type as the invalid value, "string" or "object".
// kube-apiserver 1.37 has the value itself there, and none of an object.
const wantsType = "expects the type of the value in the error of a rule, as older releases print it"

// gatewayAPIFailures are the tests of Gateway API that fail, by channel, with the reason.
var gatewayAPIFailures = map[string]map[string]string{
	"standard": nil,
	"experimental": {
		"TestHTTPRouteTimeouts/invalid_timeout_request_200ms_less_than_backendRequest_1s": wantsType,
	},
}

// TestGatewayAPI runs the tests of Gateway API's rules in CEL, those of each channel against its definitions in an
// installation of its own.
func TestGatewayAPI(t *testing.T) {
	dir := source(t, gatewayAPI)
	for channel, failures := range gatewayAPIFailures {
		t.Run(channel, func(t *testing.T) {
			up := e2e.Install(t, t.TempDir())
			applyDefinitions(t, up, filepath.Join(dir, "config/crd", channel))
			env := append([]string{kubeconfig(up), "CRD_CHANNEL=" + channel, "GOFLAGS=-mod=mod"}, noWorkspace...)
			out, err := try(t, dir, env, "go", "test", "-json", "-vet=off", "-count=1", "-timeout=10m", "-tags="+channel, "./pkg/test/cel")
			r := readResults(strings.NewReader(out))
			checkOutcomes(t, r.outcomes, r.output, failures)
			if len(r.outcomes) < 100 {
				t.Errorf("%d tests ran: %v\n%s", len(r.outcomes), err, out)
			}
			t.Log(countOutcomes(r.outcomes))
		})
	}
}

// applyDefinitions applies the definitions in a folder and waits until they are established.
func applyDefinitions(t *testing.T, up *e2e.Installation, folder string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*_*.yaml")) // not kustomization.yaml
	if err != nil || len(files) == 0 {
		t.Fatalf("no definitions in %s: %v", folder, err)
	}
	list := strings.Join(files, ",")
	up.MustKubectl(t, "apply", "--server-side", "-f", list)
	up.MustKubectl(t, "wait", "--for=condition=Established", "--timeout=60s", "-f", list)
}

// snapshotterFailures are the cases of external-snapshotter's tests that fail, with the reason.
var snapshotterFailures = map[string]string{
	"volumegroupsnapshotclass/vgs-class-deletionpolicy-immutable changed": wantsType,
	"volumegroupsnapshotclass/vgs-class-parameters-immutable changed":     wantsType,
	"volumegroupsnapshotcontent/vgsc-class-immutable changed":             wantsType,
	"volumegroupsnapshotcontent/vgsc-driver-immutable changed":            wantsType,
	"volumegroupsnapshotcontent/vgsc-ref-name-immutable changed":          wantsType,
	"volumegroupsnapshotcontent/vgsc-ref-namespace-immutable changed":     wantsType,
	"volumegroupsnapshotcontent/vgsc-ref-uid-immutable changed":           wantsType,
	"volumesnapshot/vs-source-vsc-to-vsc changed":                         wantsType,
}

// snapshotterOutcome matches what the script prints of a file, or of the first file of a pair.
var snapshotterOutcome = regexp.MustCompile(`(?m)^cel-tests/(\S+)\.yaml( -> \S+)?: (SUCCESS|FAIL).*$`)

// TestExternalSnapshotter runs the script by which external-snapshotter tests the rules in CEL of its definitions: kubectl
// applies files, with a dry run or one after the other, and their errors are compared.
func TestExternalSnapshotter(t *testing.T) {
	dir := source(t, "github.com/kubernetes-csi/external-snapshotter/client/v8@v8.7.0")
	up := e2e.Install(t, t.TempDir())
	applyDefinitions(t, up, filepath.Join(dir, "config/crd"))
	cases := snapshotterCases(t, filepath.Join(dir, "hack/cel-tests"))

	programs := t.TempDir()
	if err := os.Symlink(e2e.Program(t, testtools.Kubectl), filepath.Join(programs, "kubectl")); err != nil {
		t.Fatal(err)
	}
	env := []string{kubeconfig(up), "PATH=" + programs + ":" + os.Getenv("PATH")}
	out, err := try(t, dir, env, "bash", "hack/run-cel-tests.sh", "-v")
	outcomes, output := map[string]string{}, map[string]string{}
	failed := 0
	for _, match := range snapshotterOutcome.FindAllStringSubmatch(out, -1) {
		name := match[1]
		if match[2] != "" {
			name = strings.TrimSuffix(name, ".pre") + " changed"
		}
		outcomes[name], output[name] = "pass", match[0]
		if match[3] == "FAIL" {
			outcomes[name] = "fail"
			failed++
		}
	}
	checkOutcomes(t, outcomes, output, snapshotterFailures)
	if len(outcomes) != cases {
		t.Errorf("%d of %d cases ran: %v\n%s", len(outcomes), cases, err, out)
	}
	t.Logf("%d of %d cases passed", cases-failed, cases)
}

// snapshotterCases returns how many cases are in a folder: each object, and each pair of objects.
func snapshotterCases(t *testing.T, folder string) (cases int) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*/*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no cases in %s: %v", folder, err)
	}
	pairs := slices.DeleteFunc(slices.Clone(files), func(f string) bool { return !strings.HasSuffix(f, ".pre.yaml") })
	return len(files) + len(pairs)
}
