//go:build strangers

package strangers

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// keptOutput bounds the output that is kept of a test, in bytes.
const keptOutput = 16 << 10

// results are the outcomes of tests (pass, fail or skip), and the ends of their outputs. The output of the test "" is the
// output of the suite.
type results struct {
	outcomes, output map[string]string
	running          map[string]bool // tests that began, are not paused and did not end
	ended            bool            // the suite printed PASS or FAIL
	failure          error           // of the process of the suite
}

// crashed returns the error of a suite that did not end: for example, its process was killed. After its end a suite fails if
// goroutines are left, also of tests that were skipped.
func (r *results) crashed() error {
	if r.ended {
		return nil
	}
	return r.failure
}

// readResults reads the output of test2json, or of go test -json.
func readResults(from io.Reader) *results {
	r := &results{outcomes: map[string]string{}, output: map[string]string{}, running: map[string]bool{}}
	lines := bufio.NewReader(from)
	for {
		line, err := lines.ReadBytes('\n')
		var event struct{ Action, Test, Output string }
		if json.Unmarshal(line, &event) != nil {
			event.Action, event.Output = "output", string(line)
		}
		switch event.Action {
		case "output":
			kept := r.output[event.Test] + event.Output
			r.output[event.Test] = kept[max(0, len(kept)-keptOutput):]
			r.ended = r.ended || event.Test == "" && (event.Output == "PASS\n" || event.Output == "FAIL\n")
		case "run", "cont":
			r.running[event.Test] = true
		case "pause":
			delete(r.running, event.Test)
		case "pass", "fail", "skip":
			if event.Test != "" {
				r.outcomes[event.Test] = event.Action
			}
			delete(r.running, event.Test)
		}
		if err != nil {
			return r
		}
	}
}

// tests returns the tests with an outcome, without subtests, in order.
func (r *results) tests() (all []string) {
	for _, name := range slices.Sorted(maps.Keys(r.outcomes)) {
		if !strings.Contains(name, "/") {
			all = append(all, name)
		}
	}
	return all
}

// hasFailure reports whether a subtest of a test failed.
func hasFailure(outcomes map[string]string, test string) bool {
	for name, outcome := range outcomes {
		if outcome == "fail" && strings.HasPrefix(name, test+"/") {
			return true
		}
	}
	return false
}

// countOutcomes returns how many tests and subtests passed.
func countOutcomes(outcomes map[string]string) string {
	var tests, testsPassed, subtests, subtestsPassed int
	for name, outcome := range outcomes {
		all, passed := &tests, &testsPassed
		if strings.Contains(name, "/") {
			all, passed = &subtests, &subtestsPassed
		}
		*all++
		if outcome == "pass" {
			*passed++
		}
	}
	return fmt.Sprintf("%d of %d tests and %d of %d subtests passed", testsPassed, tests, subtestsPassed, subtests)
}
