package definitions

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"portico/cmd/e2e"
	"portico/internal/testing/await"
)

const (
	badGroup = "bad.example.com"
	// badLasts bounds an answer, and badMemory what one request adds to the most memory that a process had.
	badLasts, badMemory = 20 * time.Second, 1 << 30
)

// badCase is a definition that is built to do harm, and an object for it.
type badCase struct {
	name   string
	schema string // of the specification
	// edit changes the definition as text; nil: nothing.
	edit func(definition string) string
	// spec is that of an object, if the definition is accepted.
	spec string
	// codes are the status codes of its creation.
	codes []int
	// slow: it takes up to a minute of a busy machine and is left to .ci/long definitions.
	slow bool
}

// numbered returns a text n times with its number for each %d, joined by commas.
func numbered(n int, text string) string {
	all := make([]string, n)
	for i := range all {
		all[i] = strings.ReplaceAll(text, "%d", strconv.Itoa(i))
	}
	return strings.Join(all, ",")
}

func badCases() []badCase {
	object := func(properties string) string { return `{"type":"object","properties":{` + properties + `}}` }
	nest := func(n int) string {
		return strings.Repeat(`{"type":"object","properties":{"a":`, n) + `{"type":"string"}` + strings.Repeat("}}", n)
	}
	free := `{"type":"object","x-kubernetes-preserve-unknown-fields":true}`
	rules := func(n int, rule string) string {
		return `{"type":"object","properties":{"a":{"type":"string"},"l":{"type":"array","items":{"type":"string"}}},"x-kubernetes-validations":[` + numbered(n, `{"rule":`+strconv.Quote(rule)+`}`) + `]}`
	}
	tooLarge := []int{413, 422, 500}        // 500 is etcd's (docs/wire.md 6.5)
	long := strings.Repeat("a{1000}", 2000) // two million instructions
	return []badCase{
		{name: "recursive", schema: object(`"a":{"$ref":"#/definitions/b"}`), codes: []int{422}},
		{name: "deep", schema: nest(120), spec: strings.Repeat(`{"a":`, 120) + `"x"` + strings.Repeat("}", 120), codes: []int{201}},
		{name: "too deep", schema: nest(4000), codes: []int{422}},
		{name: "20,000 properties", slow: true, schema: object(numbered(20_000, `"p%d":{"type":"string"}`)), spec: `{` + numbered(10_000, `"p%d":"x"`) + `}`, codes: []int{201}},
		{name: "90,000 properties", schema: object(numbered(90_000, `"p%d":{"type":"string"}`)), codes: tooLarge, slow: true},
		{name: "5,000 patterns", schema: object(numbered(5_000, `"p%d":{"type":"string","pattern":"^(a|b%d|[c-z]{0,50})*$"}`)), spec: `{` + numbered(5_000, `"p%d":"aaaa"`) + `}`, codes: []int{201}},
		{name: "a large pattern", schema: object(`"a":{"type":"string","pattern":"` + long + `"}`), spec: `{"a":"` + strings.Repeat("a", 10_000) + `"}`, codes: []int{422}},
		{name: "a pattern below the bound", schema: object(`"a":{"type":"string","pattern":"` + long[:450*len("a{1000}")] + `"}`), spec: `{"a":"` + strings.Repeat("a", 10_000) + `"}`, codes: []int{201}},
		{name: "60 large patterns", schema: object(numbered(60, `"p%d":{"type":"string","pattern":"`+long+`"}`)), spec: `{` + numbered(60, `"p%d":"aaaa"`) + `}`, codes: []int{422}},
		{name: "a pattern of repetitions", schema: object(`"a":{"type":"string","pattern":"((((a{0,30}){0,30}){0,30}){0,30})*"}`), codes: []int{422}},
		{name: "a costly pattern", schema: object(`"a":{"type":"string","pattern":"^(\\pL?){1000}$"}`), spec: `{"a":"` + strings.Repeat("ä", 400_000) + `"}`, codes: []int{201}},
		{name: "2,000 rules", schema: rules(2_000, "self.a.size() < 10%d"), spec: `{"a":"x"}`, codes: []int{201, 422}},
		{name: "20,000 rules", schema: rules(20_000, "self.a.size() < 10%d"), codes: []int{201}, slow: true},
		{name: "a costly rule", schema: rules(1, "self.l.all(a, self.l.all(b, self.l.all(c, self.l.all(d, a+b == c+d))))"), codes: []int{422}},
		{name: "a long rule", schema: rules(1, strings.TrimSuffix(strings.Repeat("self.a == 'x' || ", 20_000), " || ")), codes: []int{422}},
		{name: "a deep rule", schema: rules(1, strings.Repeat("(", 5_000)+"true"+strings.Repeat(")", 5_000)), codes: []int{422}},
		{name: "a rule of literals", schema: rules(1, "["+numbered(20_000, "%d")+"].exists(x, x == 1)"), codes: []int{201, 422}, spec: `{"a":"x"}`},
		{name: "10,000 versions", slow: true, schema: free, codes: []int{422}, edit: func(d string) string {
			return strings.Replace(d, `"versions":[`, `"versions":[`+numbered(10_000, `{"name":"w%d","served":true,"storage":false,"schema":{"openAPIV3Schema":{"type":"object"}}}`)+",", 1)
		}},
		{name: "a default of 1 MB", schema: object(`"a":{"type":"string","default":"` + strings.Repeat("x", 1_000_000) + `"}`), spec: `{}`, codes: []int{201}},
		{name: "a default of 2.9 MB", slow: true, schema: object(`"a":{"type":"string","default":"` + strings.Repeat("x", 2_900_000) + `"}`), codes: tooLarge},
		{name: "a default of 100,000 values", schema: object(`"a":{"type":"array","items":{"type":"integer"},"default":[` + numbered(100_000, "%d") + `]}`), codes: []int{413}},
		{name: "29,000 values of an enum", slow: true, schema: object(`"a":{"type":"string","enum":[` + numbered(29_000, `"v%d"`) + `]}`), spec: `{"a":"v28999"}`, codes: []int{201}},
		{name: "29,000 values of a default", slow: true, schema: object(`"a":{"type":"array","items":{"type":"integer"},"default":[` + numbered(29_000, "%d") + `]}`), spec: `{}`, codes: []int{201}},
		{name: "a million values of an enum", schema: object(`"a":{"type":"integer","enum":[` + numbered(400_000, "%d") + `]}`), codes: []int{413}},
		{name: "10,000 alternatives", slow: true, schema: object(`"l":{"type":"array","items":{"type":"string","anyOf":[` + numbered(10_000, `{"pattern":"^v%d$"}`) + `]}}`), spec: `{"l":[` + numbered(2_000, `"v%d"`) + `]}`, codes: []int{201}},
		{name: "nested alternatives", schema: `{"type":"object","properties":{"a":{"type":"integer"}},"allOf":[` + alternatives(9) + `]}`, spec: `{"a":5}`, codes: []int{201, 422}},
		{name: "100 columns", schema: free, spec: `{"a":"x"}`, codes: []int{201}, edit: columns(100, ".spec.a")},
		{name: "5,000 columns", schema: free, codes: []int{422}, edit: columns(5_000, ".spec.a")},
		{name: "a column of 500 KB", schema: free, codes: []int{422}, edit: columns(1, strings.Repeat(".a", 250_000))},
		{name: "columns of ranges", schema: free, codes: []int{201}, spec: `{"l":[` + numbered(300, "%d") + `]}`, edit: columns(50, strings.Repeat("..*", 6))},
		{name: "sets", slow: true, schema: object(`"l":{"type":"array","x-kubernetes-list-type":"set","items":{"type":"integer"}}`), spec: `{"l":[` + numbered(60_000, "%d") + `]}`, codes: []int{201}},
		{name: "maps", slow: true, schema: object(`"l":{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["k"],"items":{"type":"object","required":["k"],"properties":{"k":{"type":"string"}}}}`),
			spec: `{"l":[` + numbered(40_000, `{"k":"%d"}`) + `]}`, codes: []int{201}},
		{name: "names at their limits", schema: free, spec: `{}`, codes: []int{201}, edit: func(d string) string {
			plural, group := strings.Repeat("g", 63), badGroup+strings.Repeat("."+strings.Repeat("x", 28), 6)
			d = strings.NewReplacer(badGroup, group, `"gadgets`, `"`+plural, `"gadget"`, `"`+strings.Repeat("s", 63)+`"`, `"GadgetList"`, `"`+strings.Repeat("L", 63)+`"`).Replace(d)
			return d
		}},
	}
}

// alternatives returns nested choices of which each doubles those below.
func alternatives(n int) string {
	if n == 0 {
		return `{"properties":{"a":{"minimum":1}}}`
	}
	below := alternatives(n - 1)
	return `{"anyOf":[` + below + `,` + below + `]}`
}

func columns(n int, path string) func(string) string {
	return func(d string) string {
		return strings.Replace(d, `"subresources"`, `"additionalPrinterColumns":[`+numbered(n, `{"name":"c%d","type":"string","jsonPath":`+strconv.Quote(path)+`}`)+`],"subresources"`, 1)
	}
}

// peak is the most memory that processes had since their last reset.
func peak(t *testing.T, pids map[string]int, reset bool) map[string]int {
	t.Helper()
	out := map[string]int{}
	for name, pid := range pids {
		if reset {
			if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0); err != nil {
				t.Fatal(err)
			}
		}
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil {
			t.Fatal(err)
		}
		out[name], _ = strconv.Atoi(regexp.MustCompile(`VmHWM:\s+(\d+)`).FindStringSubmatch(string(status))[1])
	}
	return out
}

// neighbour gets and creates objects of another definition, and keeps how long that took.
type neighbour struct {
	mu    sync.Mutex
	took  []time.Duration
	wrong error
}

// run works until ctx ends.
func (n *neighbour) run(ctx context.Context, c *client, group string) {
	all := "/apis/" + group + "/v1/namespaces/default/gadgets"
	for i := 0; ctx.Err() == nil; i++ {
		name := fmt.Sprint("n", time.Now().UnixNano())
		for _, err := range []func() error{
			func() error { return c.must(ctx, 201, "POST", all, gadget(group, "v1", "Gadget", name, `{"size":1}`)) },
			func() error { return c.must(ctx, 200, "GET", all+"/"+name, "") },
			func() error { return c.must(ctx, 200, "DELETE", all+"/"+name, "") },
		} {
			began := time.Now()
			err := err()
			if ctx.Err() != nil {
				return
			}
			n.mu.Lock()
			n.took = append(n.took, time.Since(began))
			n.wrong = errors.Join(n.wrong, err)
			n.mu.Unlock()
		}
		time.Sleep(2 * time.Millisecond) // a client that is not in a hurry
	}
}

// since returns the percentile of what was taken since the last call, and how many requests that were.
func (n *neighbour) since() (p50, p99 time.Duration, requests int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.took) == 0 {
		return 0, 0, 0
	}
	slices.Sort(n.took)
	p50, p99, requests = n.took[len(n.took)/2], n.took[len(n.took)*99/100], len(n.took)
	n.took = nil
	return p50, p99, requests
}

// Definitions that are built to do harm, and objects of them, are answered in bounded time with a Status that names the
// reason, or served; they take bounded memory, what is stored can be read and deleted, and requests for other resources are
// answered meanwhile.
func TestDefinitionsBuiltToDoHarm(t *testing.T) {
	t.Parallel()
	up := e2e.Install(t, t.TempDir())
	c := newClient(t, up)
	const other = "neighbour.example.com"
	if err := errors.Join(
		c.must(t.Context(), 201, "POST", definitionsPath, definition(other, "Namespaced", "Gadget", churnSchema(0), "v1 served storage")),
		c.served(t.Context(), "/apis/"+other+"/v1/gadgets"),
	); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	n := &neighbour{}
	var running sync.WaitGroup
	running.Go(func() { n.run(ctx, newClient(t, up), other) })
	defer running.Wait()
	defer cancel()
	time.Sleep(3 * time.Second) // what is quiet
	p50, p99, requests := n.since()
	t.Logf("the neighbour alone: p50 %v, p99 %v of %d requests", p50, p99, requests)
	pids := map[string]int{"gateway": up.Child(t, "gateway"), "crd": up.Child(t, "crd")}
	for _, bad := range badCases() {
		if !bad.slow || os.Getenv("PORTICO_TEST_CHURN") != "" {
			bad.check(t, c, n, pids)
		}
	}
	if n.wrong != nil {
		t.Errorf("the neighbour: %.2000v", n.wrong)
	}
}

// check sends a case by each way of writing, and deletes what that stored.
func (bad *badCase) check(t *testing.T, c *client, n *neighbour, pids map[string]int) {
	t.Helper()
	before := peak(t, pids, true)
	body := definition(badGroup, "Namespaced", "Gadget", bad.schema, "v1 served storage")
	if bad.edit != nil {
		body = bad.edit(body)
	}
	var meta struct {
		Metadata struct{ Name string }
		Spec     struct {
			Group, Scope string
			Names        struct{ Plural, Kind string }
		}
	}
	if err := json.Unmarshal([]byte(body), &meta); err != nil {
		t.Fatalf("%s: %v", bad.name, err)
	}
	path, all := definitionsPath+"/"+meta.Metadata.Name, "/apis/"+meta.Spec.Group+"/v1/namespaces/default/"+meta.Spec.Names.Plural
	var line strings.Builder
	send := func(what string, codes []int, method, path, body string, header ...string) int {
		began := time.Now()
		code, answer := c.ask(t.Context(), method, path, body, header...)
		took := time.Since(began)
		fmt.Fprintf(&line, " %s %d %.2fs", what, code, took.Seconds())
		status := struct{ Kind, Message string }{}
		if err := json.Unmarshal([]byte(answer), &status); !slices.Contains(codes, code) || code >= 400 && (err != nil || status.Kind != "Status" || status.Message == "") {
			t.Errorf("%s: %s: %d %.500s, want %v", bad.name, what, code, answer, codes)
		}
		await.Bar(t, bad.name+": "+what, took, badLasts)
		if len(answer) > 4<<20 {
			t.Errorf("%s: %s is answered with %d bytes", bad.name, what, len(answer))
		}
		return code
	}
	const apply = "Content-Type: application/apply-patch+yaml"
	created := send("create", bad.codes, "POST", definitionsPath, body)
	if created >= 400 {
		send("apply", bad.codes, "PATCH", path+"?fieldManager=x", body, apply)
		// As a change of a definition that there is.
		harmless := definition(meta.Spec.Group, "Namespaced", "Gadget", `{"type":"object"}`, "v1 served storage")
		send("harmless", []int{201}, "POST", definitionsPath, harmless)
		send("patch", bad.codes, "PATCH", path, body, mergePatch)
		if err := poll(t.Context(), func() error { return c.established(t.Context(), path) }); err != nil {
			t.Fatalf("%s: %v", bad.name, err)
		}
		_, now := c.ask(t.Context(), "GET", path, "")
		revision := regexp.MustCompile(`"resourceVersion":"(\d+)"`).FindStringSubmatch(now)[1]
		send("update", bad.codes, "PUT", path, strings.Replace(body, `"metadata":{`, `"metadata":{"resourceVersion":"`+revision+`",`, 1))
	} else {
		// Apply has bounds of its own on the items of lists.
		send("apply", []int{200, 413, 422}, "PATCH", path+"?fieldManager=x&force=true", body, apply)
		send("patch", []int{200}, "PATCH", path, `{"metadata":{"labels":{"a":"b"}}}`, mergePatch)
		if bad.spec != "" {
			bad.objects(t, c, send, all, meta.Spec.Group, meta.Spec.Names.Kind)
		}
		send("openapi", []int{200}, "GET", "/openapi/v3/apis/"+meta.Spec.Group+"/v1", "")
	}
	send("get", []int{200}, "GET", path, "")
	send("delete", []int{200}, "DELETE", path, "")
	if err := c.gone(t.Context(), path); err != nil {
		t.Errorf("%s: %v", bad.name, err)
	}
	after := peak(t, pids, false)
	p50, p99, requests := n.since()
	t.Logf("%s:%s; most memory: crd +%d MB, gateway +%d MB; neighbour: p50 %v, p99 %v of %d", bad.name, line.String(),
		(after["crd"]-before["crd"])>>10, (after["gateway"]-before["gateway"])>>10, p50.Round(10*time.Microsecond), p99.Round(10*time.Microsecond), requests)
	for name := range pids {
		if grown := (after[name] - before[name]) << 10; grown > badMemory {
			t.Errorf("%s: the memory of %s grew by %d MB", bad.name, name, grown>>20)
		}
	}
}

// objects writes an object of the definition in every way, and reads it in every form.
func (bad *badCase) objects(t *testing.T, c *client, send func(what string, codes []int, method, path, body string, header ...string) int, all, group, kind string) {
	t.Helper()
	if err := c.served(t.Context(), all); err != nil {
		t.Errorf("%s: %v", bad.name, err)
		return
	}
	object := gadget(group, "v1", kind, "o", bad.spec)
	either := []int{200, 201, 400, 404, 413, 422}
	send("object", either, "POST", all, object)
	send("patched", either, "PATCH", all+"/o", `{"metadata":{"labels":{"a":"b"}},"spec":{"other":1}}`, mergePatch)
	send("applied", either, "PATCH", all+"/p?fieldManager=x&force=true", strings.Replace(object, `"name":"o"`, `"name":"p"`, 1), "Content-Type: application/apply-patch+yaml")
	send("list", []int{200}, "GET", all, "")
	send("table", []int{200}, "GET", all, "", "Accept: application/json;as=Table;g=meta.k8s.io;v=v1")
}
