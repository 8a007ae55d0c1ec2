//go:build strangers

package strangers

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"portico/cmd/e2e"
	"portico/cmd/internal/testtools"
)

// TestKubernetesIntegration runs the integration tests of kubernetes, package by package: first with kube-apiserver, which
// they start in their own process, and then with Portico in its place, which the files of testdata/integration/tree start.
// A test that passes with kube-apiserver passes with Portico, unless testdata/integration/rows.txt names it with a reason.
func TestKubernetesIntegration(t *testing.T) {
	packages := entries(t, "packages.txt")
	rows := integrationRows(t, packages)
	if only := strings.Fields(os.Getenv("PORTICO_TEST_INTEGRATION_ONLY")); len(only) > 0 {
		for _, name := range only {
			if !slices.Contains(packages, name) {
				t.Fatalf("there is no package %s, but %s", name, strings.Join(packages, ", "))
			}
		}
		packages = only
	}
	tree := integrationTree(t)
	portico := e2e.Program(t, testtools.Portico)
	etcd := filepath.Dir(etcdWithLifeline(t, e2e.Program(t, testtools.Etcd)))
	for _, name := range packages {
		t.Run(name, func(t *testing.T) {
			s := suite{dir: filepath.Join(tree, "test/integration", filepath.FromSlash(name)), program: filepath.Join(t.TempDir(), "test"), etcd: "http://127.0.0.1:1"}
			if _, err := os.Stat(filepath.Join(s.dir, "main_test.go")); err != nil { // without the framework's main
				s.etcd = startEtcd(t, e2e.Program(t, testtools.Etcd))
			}
			run(t, tree, noWorkspace, "go", "test", "-mod=mod", "-c", "-vet=off", "-ldflags=-s -w", "-o", s.program, "./test/integration/"+name)
			env := []string{"PATH=" + etcd + string(os.PathListSeparator) + os.Getenv("PATH")}
			upstream := s.run(t, "kube-apiserver", env)
			ours := s.run(t, "Portico", append(env, "PORTICO="+portico))
			compareSuites(t, upstream, ours, rows[name])
		})
	}
}

// row says why tests do not pass with Portico.
type row struct {
	tests  string
	match  *regexp.Regexp
	reason string
	used   bool
}

// compareSuites checks that each test that ran with kube-apiserver passed with Portico or has a row, even if it failed with kube-apiserver. A
// test that runs with Portico only, for example for a kind that kube-apiserver lacks, must pass or have a row, too. A test that
// fails because a subtest fails needs no row of its own.
func compareSuites(t *testing.T, upstream, ours *results, rows []*row) {
	t.Helper()
	if len(upstream.outcomes) == 0 {
		t.Fatalf("no test ran with kube-apiserver: %v\n%s", upstream.failure, upstream.output[""])
	}
	for with, r := range map[string]*results{"kube-apiserver": upstream, "Portico": ours} {
		if err := r.crashed(); err != nil {
			t.Errorf("the suite with %s: %v\n%s", with, err, r.output[""])
		}
	}
	counts := map[string]int{}
	all := maps.Clone(ours.outcomes)
	maps.Copy(all, upstream.outcomes)
	for _, test := range slices.Sorted(maps.Keys(all)) {
		before, outcome := upstream.outcomes[test], cmp.Or(ours.outcomes[test], "not run")
		if before == "fail" && !hasFailure(upstream.outcomes, test) {
			t.Logf("fails with kube-apiserver, with Portico: %s: %s\n%s", outcome, test, upstream.output[test])
		}
		switch {
		case outcome == "pass":
		case before != "pass" && before != "fail" && outcome != "fail":
			outcome = "not run with kube-apiserver"
		case outcome == "fail" && hasFailure(ours.outcomes, test):
			outcome = "fail in subtests"
		case !named(rows, test):
			t.Errorf("%s: %s\n%s", outcome, test, ours.output[test])
		}
		counts[outcome]++
	}
	for _, r := range rows {
		if !r.used && !strings.HasPrefix(r.reason, "timing: ") {
			t.Errorf("all pass, or are not run; take the row out: %s: %s", r.tests, r.reason)
		}
	}
	t.Logf("with Portico: %v", counts)
}

// named reports whether a row names a test, and marks all that do as used.
func named(rows []*row, test string) (found bool) {
	for _, r := range rows {
		if r.match.MatchString(test) {
			r.used, found = true, true
		}
	}
	return found
}

// integrationRows returns the rows of rows.txt by package.
func integrationRows(t *testing.T, packages []string) map[string][]*row {
	t.Helper()
	rows := map[string][]*row{}
	for _, line := range entries(t, "rows.txt") {
		fields := strings.SplitN(line, "\t", 3)
		if len(fields) != 3 || !slices.Contains(packages, fields[0]) {
			t.Fatalf("rows.txt: package, tests and reason, with tabs between: %s", line)
		}
		match := "^" + strings.ReplaceAll(regexp.QuoteMeta(fields[1]), `\*`, ".*") + "(/.*)?$"
		rows[fields[0]] = append(rows[fields[0]], &row{tests: fields[1], match: regexp.MustCompile(match), reason: fields[2]})
	}
	return rows
}

// entries returns the lines of a file of testdata/integration, without comments and empty lines.
func entries(t *testing.T, file string) (lines []string) {
	t.Helper()
	for line := range strings.Lines(read(t, "testdata/integration", file)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			lines = append(lines, line)
		}
	}
	return lines
}

// etcdWithLifeline returns a program etcd that ends with the process that starts it: the test framework leaves etcd running
// if it is killed.
func etcdWithLifeline(t *testing.T, etcd string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "etcd")
	script := fmt.Sprintf(`#!/bin/sh
%s "$@" &
etcd=$!
trap 'kill $etcd' TERM INT
while kill -0 $PPID 2>/dev/null && kill -0 $etcd 2>/dev/null; do
  sleep 1 >/dev/null 2>&1 &
  wait $!
done
kill $etcd 2>/dev/null
wait $etcd
`, etcd)
	e2e.WriteFile(t, path, script)
	if err := os.Chmod(path, 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

// startEtcd starts an etcd for tests, and returns its URL.
func startEtcd(t *testing.T, program string) string {
	t.Helper()
	url := "http://127.0.0.1:" + e2e.FreePort(t, "127.0.0.1")
	start(t, nil, program, "--data-dir="+t.TempDir(), "--listen-client-urls="+url, "--advertise-client-urls="+url, "--listen-peer-urls=http://127.0.0.1:0")
	return url
}
