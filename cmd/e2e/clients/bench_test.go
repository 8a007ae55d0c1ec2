package clients

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico/cmd/e2e"
	"portico/cmd/internal/testtools"
	"portico/internal/testing/await"
)

// The bench program runs each scenario, with its yardstick, and deletes what it
// created. The test does not judge the figures.
func TestBenchProgram(t *testing.T) {
	t.Parallel()
	up, program := e2e.SharedInstallation(t), e2e.Program(t, testtools.Bench)
	ctx, cancel := context.WithTimeout(t.Context(), await.Patience())
	defer cancel()
	cmd := exec.CommandContext(ctx, program, "--data-dir="+up.Dir, "--json", "--also=configmaps", "--objects=40", "--rounds=1", "--time=100ms", "--rest=0",
		"--gets=100", "--lists=4", "--watchers=20", "--definitions=3")
	var report, progress bytes.Buffer
	cmd.Stdout, cmd.Stderr = &report, &progress
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s", err, progress.String())
	}
	checkReport(t, report.Bytes())
	client := e2e.DynamicClient(t, up.Config(t))
	for _, resource := range []schema.GroupVersionResource{
		{Version: "v1", Resource: "namespaces"}, {Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"},
	} {
		list, err := client.Resource(resource).List(ctx, metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range list.Items {
			if strings.Contains(o.GetName(), "bench-") {
				t.Errorf("not deleted: %s %s", resource.Resource, o.GetName())
			}
		}
	}
}

// The table of costs has a figure for every process that a row is about.
func TestBenchCosts(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), await.Patience())
	defer cancel()
	cmd := exec.CommandContext(ctx, e2e.Program(t, testtools.Bench), "costs", "--portico="+e2e.Program(t, testtools.Portico),
		"--objects=50", "--gets=500", "--watchers=50", "--definitions=2", "--servers=2", "--rest=1s")
	// Killed it would leave its installation behind.
	cmd.Cancel, cmd.WaitDelay = func() error { return cmd.Process.Signal(os.Interrupt) }, await.Patience()
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	const memory, processor, idle = `– \| |[\d.]+ KB \| `, `[\d.]+ µs \| `, `\d+ MB \| `
	for _, row := range []string{
		`nothing: an idle installation \| (` + idle + `){4}`, `definition .* \| (` + memory + `)`, `registered REST server .* \| (` + memory + `)`,
		`create a custom resource of 3\.7 KB, processor \| ` + processor + `.*` + processor, `create a pod of 6\.0 KB, processor \| ` + processor + processor,
		`GET of the latest state, custom resource, processor \| ` + processor, `GET with resourceVersion 0, ConfigMap, processor \| ` + processor + processor,
		`item of a LIST, ConfigMap, processor \| ` + processor + processor, `event to one watch, processor \| ` + processor + `.*` + processor,
		`custom resource of 0\.[67] KB as JSON`, `ConfigMap of 3\.7 KB as JSON`, `pod of 6\.0 KB as JSON`, `idle watch \| (` + memory + `)`,
	} {
		if !regexp.MustCompile(`(?m)^\| ` + row).Match(out) {
			t.Errorf("no row %s in:\n%s", row, out)
		}
	}
}

// checkReport checks that everything was measured.
func checkReport(t *testing.T, data []byte) {
	t.Helper()
	var report struct {
		Results []struct {
			What, Yardstick                string
			Figure, YardstickFigure, Ratio float64
		}
		Memory []struct{ Bytes map[string]int64 }
	}
	if err := json.Unmarshal(data, &report); err != nil {
		t.Fatalf("%v\n%s", err, data)
	}
	for _, want := range []struct{ what, yardstick string }{
		{"create custom resources", "raw etcd"}, {"GET, resourceVersion unset, custom resources", "chain"},
		{"GET, resourceVersion 0, custom resources", "chain"}, {"LIST of 40 custom resources", "chain"},
		{"watch, 20 watchers of custom resources", "chain"}, {"watch, 20 watchers sent", "chain"},
		{"crd server, RssAnon, 40 custom resources", ""}, {"crd server, RssAnon, after 4 LISTs of custom resources", ""},
		{"GET, resourceVersion 0, ConfigMaps", "chain"}, {"LIST in protobuf of 40 ConfigMaps", "chain"},
		{"watch, 20 watchers of ConfigMaps", "chain"}, {"2 definitions, 16 at a time", ""},
	} {
		found := false
		for _, r := range report.Results {
			if strings.HasPrefix(r.What, want.what) {
				found = true
				if r.Figure <= 0 || r.Yardstick != want.yardstick || want.yardstick != "" && (r.YardstickFigure <= 0 || r.Ratio <= 0) {
					t.Errorf("%s: %+v", want.what, r)
				}
			}
		}
		if !found {
			t.Errorf("%s was not measured", want.what)
		}
	}
	for _, process := range []string{"gateway", "core", "crd", "etcd"} {
		if len(report.Memory) == 0 || report.Memory[0].Bytes[process] == 0 {
			t.Errorf("the memory of %s was not read", process)
		}
	}
}
