//go:build strangers

package strangers

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"portico/cmd/e2e"
)

const controllerRuntime = "sigs.k8s.io/controller-runtime"

// envtestFlags are for what the tests take from the control plane that they start otherwise,
// kube-apiserver without controllers: namespaces are empty and are finalized by the tests
// themselves, and pods need no service account.
var envtestFlags = []string{
	"--disable-admission-plugins=ServiceAccount",
	"--controllers=*,-namespace-controller,-root-ca-certificate-publisher-controller,-serviceaccount-controller",
}

// expectedFailures are the tests of controller-runtime that fail, with the reason. A test is
// named by its package and a part of its name.
var expectedFailures = []struct{ pkg, test, reason string }{
	{"pkg/client/apiutil", "/aggregatedDiscovery=false/", "counts requests to a kube-apiserver with aggregated discovery off"},
	{"pkg/manager/internal/integration", "controller warmup not enabled", "finds the object of the other test"},
}

// TestControllerRuntime runs the tests of controller-runtime, one package after the other,
// each against an installation of its own. Left out are the root, which has examples that
// do not run, and packages that start programs of a control plane.
func TestControllerRuntime(t *testing.T) {
	dir := source(t, controllerRuntime+"@v0.25.2")
	var all suiteResult
	var table strings.Builder
	list := `{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}`
	for _, pkg := range strings.Fields(run(t, dir, noWorkspace, "go", "list", "-f", list, "./...")) {
		name, inFolder := strings.CutPrefix(pkg, controllerRuntime+"/")
		if !inFolder || strings.HasPrefix(name, "pkg/internal/testing/") {
			continue
		}
		t.Run(name, func(t *testing.T) {
			up := e2e.Install(t, t.TempDir(), envtestFlags...)
			env := append([]string{"USE_EXISTING_CLUSTER=true", "GINKGO_NO_COLOR=true", kubeconfig(up)}, noWorkspace...)
			out, err := try(t, dir, env, "go", "test", "-json", "-vet=off", "-count=1", "-timeout=10m", pkg)
			result := parseGoTest(out)
			all.add(result)
			fmt.Fprintf(&table, "%-40s %v\n", name, result)
			unexpected := 0
			for _, test := range result.failures {
				if reason := expectedFailure(name, test); reason != "" {
					t.Logf("expected: %s: %s", test, reason)
					continue
				}
				unexpected++
				t.Errorf("failed: %s", test)
			}
			if unexpected > 0 || err != nil && len(result.failures) == 0 {
				t.Errorf("%v\n%s", err, result.output.String())
			}
		})
	}
	t.Logf("tests of %s:\n%s%-40s %v", controllerRuntime, &table, "in all", &all)
}

// noWorkspace is the environment of commands in a module of its own.
var noWorkspace = []string{"GOWORK=off"}

func expectedFailure(pkg, test string) (reason string) {
	for _, e := range expectedFailures {
		if e.pkg == pkg && strings.Contains(test, e.test) {
			return e.reason
		}
	}
	return ""
}

// suiteResult is the outcome of the tests of a package, or of several.
type suiteResult struct {
	specs, specsPassed, specsSkipped int // of Ginkgo
	tests, testsPassed               int // of package testing, without those that have subtests or run specs
	failures                         []string
	output                           strings.Builder
}

func (r *suiteResult) String() string {
	return fmt.Sprintf("%d of %d specs passed, %d skipped; %d of %d tests passed", r.specsPassed, r.specs, r.specsSkipped, r.testsPassed, r.tests)
}

func (r *suiteResult) add(o *suiteResult) {
	r.specs += o.specs
	r.specsPassed += o.specsPassed
	r.specsSkipped += o.specsSkipped
	r.tests += o.tests
	r.testsPassed += o.testsPassed
}

var (
	specsRun    = regexp.MustCompile(`^Ran (\d+) of \d+ Specs`)
	specCounts  = regexp.MustCompile(`-- (\d+) Passed \| \d+ Failed \| .*?(\d+) Pending \| (\d+) Skipped`)
	specFailure = regexp.MustCompile(`^\s*\[(?:FAIL|PANICKED!|ABORTED|TIMEDOUT|INTERRUPTED)\] (.*)`)
)

// parseGoTest returns the result that `go test -json` of one package printed.
func parseGoTest(out string) *suiteResult {
	r := &suiteResult{}
	outcomes := map[string]string{}
	counted := map[string]bool{} // in specs, or by its subtests
	for line := range strings.Lines(out) {
		var event struct{ Action, Test, Output string }
		if json.Unmarshal([]byte(line), &event) != nil {
			event.Action, event.Output = "output", line
		}
		switch event.Action {
		case "output", "build-output":
			r.output.WriteString(event.Output)
			if r.parseGinkgo(event.Output) {
				counted[event.Test] = true
			}
		case "pass", "fail", "skip":
			outcomes[event.Test] = event.Action
			for i, c := range event.Test {
				if c == '/' {
					counted[event.Test[:i]] = true
				}
			}
		}
	}
	counted[""] = true // the package
	for test, outcome := range outcomes {
		if counted[test] || outcome == "skip" {
			continue
		}
		r.tests++
		if outcome == "pass" {
			r.testsPassed++
		} else {
			r.failures = append(r.failures, test)
		}
	}
	return r
}

// parseGinkgo adds what a line of Ginkgo's summary says, and reports whether it is one.
func (r *suiteResult) parseGinkgo(line string) bool {
	if m := specFailure.FindStringSubmatch(line); m != nil {
		r.failures = append(r.failures, m[1])
		return true
	}
	if m := specsRun.FindStringSubmatch(line); m != nil {
		r.specs += atoi(m[1])
		return true
	}
	if m := specCounts.FindStringSubmatch(line); m != nil {
		r.specsPassed += atoi(m[1])
		r.specsSkipped += atoi(m[2]) + atoi(m[3])
		return true
	}
	return false
}

// atoi converts the digits that a pattern matched.
func atoi(digits string) int {
	n, _ := strconv.Atoi(digits)
	return n
}
