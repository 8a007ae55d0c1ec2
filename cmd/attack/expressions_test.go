package attack

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

const definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

// expressions returns a definition in the group of these tests, with columns and the schema of spec.
func expressions(plural, columns, schema string) string {
	return fmt.Sprintf(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"%[1]s.expressions.example.com"},
		"spec":{"group":"expressions.example.com","scope":"Cluster","names":{"plural":%[1]q,"kind":"K%[1]s"},"versions":[{"name":"v1","served":true,"storage":true,
		"additionalPrinterColumns":[%[2]s],"schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":%[3]s}}}}]}}`, plural, columns, schema)
}

// used returns the processor time of a process of the installation.
func (i *installation) used(t *testing.T, name string) time.Duration {
	t.Helper()
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", i.Cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		children, _ := os.ReadFile(task) // a thread that has ended has none
		for _, pid := range strings.Fields(string(children)) {
			args, _ := os.ReadFile("/proc/" + pid + "/cmdline")
			if strings.Split(string(args)+"\x00\x00", "\x00")[1] != name {
				continue
			}
			stat, _ := os.ReadFile("/proc/" + pid + "/stat")
			fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
			user, _ := strconv.Atoi(fields[11])
			system, _ := strconv.Atoi(fields[12])
			return time.Duration(user+system) * 10 * time.Millisecond // a hundred ticks a second
		}
	}
	t.Fatalf("there is no process %s", name)
	return 0
}

// maxProcessorTime is the processor time that the CRD server may take beside the requests of an attack.
const maxProcessorTime = time.Minute

// Columns of a definition that an object of a few hundred bytes makes visit any number of values are refused, and the
// costliest within the bounds take bounded memory and processor time.
func TestCostlyColumns(t *testing.T) {
	t.Parallel()
	i := target
	const open = `{"type":"object","x-kubernetes-preserve-unknown-fields":true}`
	column := func(path string) string { return fmt.Sprintf(`{"name":"X","type":"string","jsonPath":%q}`, path) }
	union := "['a'" + strings.Repeat(",'a'", 9) + "]"
	for name, path := range map[string]string{
		"a union on each of seven levels":           ".spec.s" + strings.Repeat(union, 7),
		"five descents":                             "..a..a..a..a..a",
		"a path that would overflow the stack":      "." + strings.Repeat("@", 1_400_000),
		"a descent in a filter and another outside": ".spec[?(@..a)]..a",
	} {
		code, body, err := i.ask(i.admin, "POST", definitions, expressions("chains", column(path), open))
		if err != nil || code != http.StatusUnprocessableEntity || !strings.Contains(body, "spec.versions[0].additionalPrinterColumns[0].jsonPath") {
			t.Errorf("%s: %d %.300s %v", name, code, body, err)
		}
	}
	// One descent and two unions of ten, in each of a hundred columns.
	i.must(t, "POST", definitions, expressions("chains", list(100, column("..a"+union+union)), open))
	const chains = "/apis/expressions.example.com/v1/chains"
	eventually(t, "chains are served", func() error { return i.answers(chains, http.StatusOK, "") })
	chain := strings.Repeat(`{"a":`, 100) + "1" + strings.Repeat("}", 100)
	i.must(t, "POST", chains, `{"apiVersion":"expressions.example.com/v1","kind":"Kchains","metadata":{"name":"c"},"spec":{"s":`+chain+`}}`)
	before := i.used(t, "crd")
	for range 10 {
		if table := i.must(t, "GET", chains, "", "Accept: application/json;as=Table;v=v1;g=meta.k8s.io"); !strings.Contains(compact(table), `"cells":["c",`) {
			t.Fatalf("control: %.300s", table)
		}
	}
	if used := i.used(t, "crd") - before; used > maxProcessorTime {
		t.Errorf("ten lists of one object took %v of processor time", used)
	}
	i.unharmed(t)
	i.must(t, "DELETE", definitions+"/chains.expressions.example.com", "")
}

// An object whose validation would take minutes, by the alternatives of its schema times its items, is refused before that
// begins; nothing of it goes on when its clients have gone.
func TestCostlyValidation(t *testing.T) {
	t.Parallel()
	i := target
	i.must(t, "POST", definitions, expressions("alts", "", `{"type":"array","items":{"type":"string","anyOf":[`+numbered(1000, `{"pattern":"(x|y)*z%dq$"}`)+`,{"pattern":"^xy"}]}}`))
	const alts = "/apis/expressions.example.com/v1/alts"
	eventually(t, "alternatives are served", func() error { return i.answers(alts, http.StatusOK, "") })
	object := func(name string, items int) string {
		return `{"apiVersion":"expressions.example.com/v1","kind":"Kalts","metadata":{"name":"` + name + `"},"spec":[` + list(items, `"xyxyxyxyxyxy"`) + `]}`
	}
	i.must(t, "POST", alts, object("few", 10)) // control
	before := i.used(t, "crd")
	for _, r := range []struct{ method, path, name, mediaType string }{
		{"POST", alts, "many", "application/json"}, {"POST", alts + "?dryRun=All", "many", "application/json"},
		{"PATCH", alts + "/few", "few", "application/merge-patch+json"}, {"PATCH", alts + "/many?fieldManager=x", "many", "application/apply-patch+yaml"},
	} {
		code, answer, err := i.ask(i.admin, r.method, r.path, object(r.name, 60_000), "Content-Type: "+r.mediaType)
		if err != nil || code != http.StatusUnprocessableEntity && code != http.StatusRequestEntityTooLarge {
			t.Errorf("%s %s: %d %.300s %v", r.method, r.path, code, answer, err)
		}
	}
	for range 10 { // clients that leave at once
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		r, err := http.NewRequestWithContext(ctx, "POST", "https://"+i.host+alts, strings.NewReader(object("gone", 60_000)))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		if answer, err := i.admin.Do(r); err == nil {
			answer.Body.Close()
		}
		cancel()
	}
	i.unharmed(t)
	if used := i.used(t, "crd") - before; used > maxProcessorTime {
		t.Errorf("fourteen objects took %v of processor time", used)
	}
	i.must(t, "DELETE", definitions+"/alts.expressions.example.com", "")
}
