//go:build strangers && integration

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

// integrationPackages are the packages of kubernetes/test/integration that start an API server, but for those that test the
// scheduler, and of which at least one test can run against a server in another process.
var integrationPackages = []string{
	"secrets", "apiserver/anonymous", "events", "client",
	"storageclasses", "scale", "staleness", "dryrun", "endpoints", "endpointslice", "tls", "kubelet", "certificates", "clustertrustbundles",
	"podcertificaterequests", "ttlcontroller", "podgc", "pvc", "evictions", "disruption", "namespace", "garbagecollector", "quota",
	"service", "network", "serviceaccount", "storageversionmigrator", "serving", "controllermanager", "cloudprovider",
	"apiserver/apply", "apiserver/apidefinitions", "apiserver/cel", "apiserver/cel/authorizerselector", "apiserver/certreload", "apiserver/discovery",
	"apiserver/egressselector", "apiserver/oidc", "apiserver/openapi", "apiserver/podlogs", "apiserver/portforward", "apiserver/flowcontrol",
	"apiserver/admissionwebhook", "apiserver/tracing", "apiserver", "auth", "controlplane", "controlplane/audit", "controlplane/transformation",
	"apimachinery", "pods", "servicecidr", "dualstack", "metrics", "client/metrics", "examples", "etcd", "defaulttolerationseconds",
	"cronjob", "daemonset", "deployment", "job", "replicaset", "replicationcontroller", "statefulset", "podautoscaler", "node", "volume",
}

// TestIntegration runs the integration tests of kubernetes, package by package: first with kube-apiserver, which they start
// in their own process, and then with Portico in its place, which the files of testdata/integration start. What passes
// with kube-apiserver passes with Portico, unless testdata/integration/rows.txt names it with a reason.
func TestIntegration(t *testing.T) {
	tree := integrationTree(t)
	rows := integrationRows(t)
	only := os.Getenv("PORTICO_TEST_INTEGRATION_ONLY")
	if only != "" && !slices.Contains(integrationPackages, only) {
		t.Fatalf("there is no package %s, but %s", only, strings.Join(integrationPackages, ", "))
	}
	portico := e2e.Program(t, testtools.Portico)
	etcd := filepath.Dir(etcdWithLifeline(t, e2e.Program(t, testtools.Etcd)))
	for _, name := range integrationPackages {
		if only != "" && name != only {
			continue
		}
		t.Run(name, func(t *testing.T) {
			s := suite{dir: filepath.Join(tree, "test/integration", filepath.FromSlash(name)), program: filepath.Join(t.TempDir(), "test")}
			run(t, tree, noWorkspace, "go", "test", "-mod=mod", "-c", "-vet=off", "-ldflags=-s -w", "-o", s.program, "./test/integration/"+name)
			env := []string{"PATH=" + etcd + string(os.PathListSeparator) + os.Getenv("PATH")}
			upstream := s.run(t, "kube-apiserver", env)
			ours := s.run(t, "portico", append(env, "PORTICO="+portico))
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

// flaky reports whether the tests pass at times.
func (r *row) flaky() bool { return strings.HasPrefix(r.reason, "flake: ") }

// compareSuites checks that each test that passed with kube-apiserver passed with Portico or has a row. A test that runs with
// Portico only, for example for a kind that kube-apiserver lacks, must pass or have a row, too. A test that fails because a
// subtest fails needs no row of its own.
func compareSuites(t *testing.T, upstream, ours *results, rows []*row) {
	t.Helper()
	counts := map[string]int{}
	all := maps.Clone(ours.outcomes)
	maps.Copy(all, upstream.outcomes)
	for _, test := range slices.Sorted(maps.Keys(all)) {
		before, outcome := upstream.outcomes[test], cmp.Or(ours.outcomes[test], "not run")
		switch {
		case outcome == "pass":
		case before == "fail" && !hasFailure(upstream.outcomes, test):
			t.Logf("fails with kube-apiserver, with Portico: %s: %s\n%s", outcome, test, upstream.output[test])
			fallthrough
		case before == "fail" || before == "skip" || before == "" && outcome != "fail":
			outcome = "not passed with kube-apiserver"
		case outcome == "fail" && hasFailure(ours.outcomes, test):
			outcome = "fail in subtests"
		case !named(rows, test):
			t.Errorf("%s: %s\n%s", outcome, test, ours.output[test])
		}
		counts[outcome]++
	}
	for _, r := range rows {
		if !r.used && !r.flaky() {
			t.Errorf("all pass, or are not run; take the row out: %s: %s", r.tests, r.reason)
		}
	}
	if ours.failure != nil && upstream.failure == nil && !slices.Contains(slices.Collect(maps.Values(ours.outcomes)), "fail") {
		t.Errorf("the suite: %v\n%s", ours.failure, ours.output[""])
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
func integrationRows(t *testing.T) map[string][]*row {
	t.Helper()
	rows := map[string][]*row{}
	for line := range strings.Lines(read(t, "testdata/integration/rows.txt")) {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		fields := strings.SplitN(line, "\t", 3)
		if len(fields) != 3 || !slices.Contains(integrationPackages, fields[0]) {
			t.Fatalf("rows.txt: package, tests and reason, with tabs between: %s", line)
		}
		match := "^" + strings.ReplaceAll(regexp.QuoteMeta(fields[1]), `\*`, ".*") + "(/.*)?$"
		rows[fields[0]] = append(rows[fields[0]], &row{tests: fields[1], match: regexp.MustCompile(match), reason: fields[2]})
	}
	return rows
}

// etcdWithLifeline returns a program etcd that ends with the process that starts it: the framework of the tests has none
// that does.
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
