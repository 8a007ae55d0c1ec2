package swagger

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	openapi_v2 "github.com/google/gnostic-models/openapiv2"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/proto"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"portico/discovery/openapi"
)

// fleet is the servers that a Whole asks: what each says, by path. A path that
// is missing is a 404.
type fleet struct {
	mu      sync.Mutex
	servers []Server
	state   string
	says    map[string]map[string]Answer // by server and path
	asked   map[string]int               // by server and path
	fails   map[string]error             // by server
	hangs   map[string]chan struct{}     // by server; until closed
}

func newFleet() *fleet {
	return &fleet{says: map[string]map[string]Answer{}, asked: map[string]int{}, fails: map[string]error{}, hangs: map[string]chan struct{}{}, state: "1"}
}

// add has a server say what it has of a group.
func (f *fleet) add(id, group, url string, says map[string]Answer) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.says[id] = says
	f.servers = append(f.servers, Server{
		ID: id, Documents: []Document{{APIService: "v1." + group, Key: "apis/" + group + "/v1", URL: url}},
		Fetch: func(ctx context.Context, path, etag string) (*Answer, error) { return f.fetch(ctx, id, path, etag) },
	})
}

func (f *fleet) fetch(ctx context.Context, id, path, etag string) (*Answer, error) {
	f.mu.Lock()
	f.asked[id+" "+path]++
	a, ok := f.says[id][path]
	err, hang := f.fails[id], f.hangs[id]
	f.mu.Unlock()
	if hang != nil {
		select {
		case <-hang:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	switch {
	case err != nil:
		return nil, err
	case !ok:
		return &Answer{Code: http.StatusNotFound}, nil
	case etag != "" && etag == a.ETag:
		return &Answer{Code: http.StatusNotModified, ETag: etag}, nil
	}
	return &a, nil
}

// change has something change and the gateway know that it did.
func (f *fleet) change(state string, how func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.state = state
	how()
	f.servers = slices.Clone(f.servers)
}

func (f *fleet) counted(key string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.asked[key]
}

func (f *fleet) list() ([]Server, string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.servers, f.state
}

func good(body []byte, etag string) Answer { return Answer{Code: 200, ETag: etag, Body: body} }

// serverV3 says v3 documents only.
func serverV3(group, kind string) map[string]Answer {
	return map[string]Answer{"/openapi/v3/apis/" + group + "/v1?hash=1": good(v3(group, kind, "one", 10), "")}
}

// serverV2 says a v2 document with more than its group.
func serverV2(group, text string) map[string]Answer {
	data, err := json.Marshal(map[string]any{
		"swagger": "2.0", "info": map[string]any{"title": "t", "version": "v"},
		"paths": map[string]any{
			"/apis/" + group + "/v1/flunders": map[string]any{"get": map[string]any{"responses": map[string]any{"200": map[string]any{
				"description": "OK", "schema": map[string]any{"$ref": "#/definitions/Flunder"}}}}},
			"/apis/a.example.com/v1/apples": map[string]any{"get": map[string]any{"responses": map[string]any{"200": map[string]any{
				"description": "not its own", "schema": map[string]any{"$ref": "#/definitions/Apple"}}}}},
		},
		"definitions": map[string]any{
			"Flunder": map[string]any{"type": "object", "description": text, "properties": map[string]any{
				"list": map[string]any{"type": "array"}, "gone": map[string]any{"$ref": "#/definitions/Missing"}}},
			"Apple": map[string]any{"type": "object"},
		},
	})
	if err != nil {
		panic(err)
	}
	return map[string]Answer{"/openapi/v2": good(data, `"`+text+`"`)}
}

// started runs a Whole of a fleet until the test ends.
func started(t *testing.T, f *fleet) (*Whole, *prometheus.Registry, *bytes.Buffer) {
	t.Helper()
	registry, logs := prometheus.NewRegistry(), &bytes.Buffer{}
	w := New(Config{Servers: f.list, Registry: registry, Logger: slog.New(slog.NewTextHandler(logs, nil))})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = w.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	return w, registry, logs
}

func ask(w *Whole, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest("GET", "/openapi/v2", nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	rec := httptest.NewRecorder()
	w.ServeHTTP(rec, r)
	return rec
}

func definitions(t *testing.T, rec *httptest.ResponseRecorder) []string {
	t.Helper()
	var out spec.Swagger
	if err := json.Unmarshal(rec.Body.Bytes(), &out); err != nil || rec.Code != 200 {
		t.Fatalf("%d %v", rec.Code, err)
	}
	return slices.Sorted(maps.Keys(out.Definitions))
}

// value sums the metrics with exactly these values of labels: those of broken
// APIServices have one, those that count two.
func value(t *testing.T, registry *prometheus.Registry, labels ...string) (sum float64) {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			var got []string
			for _, l := range m.GetLabel() {
				got = append(got, l.GetValue())
			}
			if slices.Equal(got, labels) {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return sum
}

func TestWholeOfServers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		f.add("crd", "a.example.com", "/openapi/v3/apis/a.example.com/v1?hash=1", serverV3("a.example.com", "Apple"))
		f.add("sample", "wardle.example.com", "", serverV2("wardle.example.com", "first"))
		f.add("silent", "none.example.com", "", nil)
		w, registry, logs := started(t, f)
		synctest.Wait()
		if len(f.asked) != 0 {
			t.Errorf("before anybody asked: %v", f.asked)
		}
		rec := ask(w)
		if got := definitions(t, rec); !slices.Equal(got, []string{"Flunder", "Meta", "a.example.com.v1.Apple"}) {
			t.Errorf("definitions %v", got)
		}
		if err := tried(rec.Body.Bytes()); err != nil {
			t.Error(err)
		}
		h := rec.Header()
		if h.Get("Content-Type") != mediaJSON || h.Get("ETag") == "" || h.Get("Last-Modified") == "" || !slices.Contains(h.Values("Vary"), "Accept") {
			t.Errorf("headers %v", h)
		}
		for _, header := range [][]string{{"If-None-Match", h.Get("ETag")}, {"If-None-Match", `W/` + h.Get("ETag")}, {"If-Modified-Since", h.Get("Last-Modified")}} {
			if rec := ask(w, header...); rec.Code != http.StatusNotModified || rec.Body.Len() > 0 {
				t.Errorf("%v: %d", header, rec.Code)
			}
		}
		if rec := ask(w, "If-None-Match", `"other"`, "If-Modified-Since", h.Get("Last-Modified")); rec.Code != 200 {
			t.Errorf("another ETag: %d", rec.Code)
		}
		packed := ask(w, "Accept-Encoding", "gzip")
		if z, err := gzip.NewReader(packed.Body); err != nil || packed.Header().Get("Content-Encoding") != "gzip" {
			t.Errorf("gzip: %v %v", err, packed.Header())
		} else if data, _ := io.ReadAll(z); !bytes.Equal(data, rec.Body.Bytes()) {
			t.Error("unpacked it is something else")
		}
		for _, accept := range []string{mediaProtobuf, mediaProtobufOld, mediaProtobufOld + ",application/json"} {
			rec := ask(w, "Accept", accept)
			doc := &openapi_v2.Document{}
			if err := proto.Unmarshal(rec.Body.Bytes(), doc); err != nil || rec.Code != 200 || rec.Header().Get("Content-Type") != mediaProtobuf {
				t.Errorf("%s: %d %v %v", accept, rec.Code, rec.Header(), err)
			}
			if len(doc.GetDefinitions().GetAdditionalProperties()) != 3 || len(doc.GetPaths().GetPath()) != 2 {
				t.Errorf("%s: %d definitions", accept, len(doc.GetDefinitions().GetAdditionalProperties()))
			}
		}
		if rec := ask(w, "Accept", "text/html"); rec.Code != http.StatusNotAcceptable {
			t.Errorf("text/html: %d", rec.Code)
		}
		if n := value(t, registry, "v1.a.example.com", "add"); n != 1 {
			t.Errorf("counted %v", n)
		}
		if logs.Len() > 0 {
			t.Errorf("logs %s", logs)
		}
	})
}

// What changes is fetched, what does not is not; servers without hashes are
// asked again after a while.
func TestWholeFollowsChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		f.add("crd", "a.example.com", "/openapi/v3/apis/a.example.com/v1?hash=1", serverV3("a.example.com", "Apple"))
		f.add("other", "b.example.com", "/openapi/v3/apis/b.example.com/v1?hash=1", serverV3("b.example.com", "Bean"))
		f.add("sample", "wardle.example.com", "", serverV2("wardle.example.com", "first"))
		w, registry, _ := started(t, f)
		etag := ask(w).Header().Get("ETag")
		f.change("2", func() {
			f.servers[0].Documents = []Document{{APIService: "v1.a.example.com", Key: "apis/a.example.com/v1", URL: "/openapi/v3/apis/a.example.com/v1?hash=2"}}
			f.says["crd"]["/openapi/v3/apis/a.example.com/v1?hash=2"] = good(v3("a.example.com", "Avocado", "one", 10), "")
		})
		rec := ask(w)
		if got := definitions(t, rec); !slices.Contains(got, "a.example.com.v1.Avocado") || slices.Contains(got, "a.example.com.v1.Apple") {
			t.Errorf("after the change: %v", got)
		}
		if rec.Header().Get("ETag") == etag {
			t.Error("the same ETag")
		}
		if n := f.counted("other /openapi/v3/apis/b.example.com/v1?hash=1"); n != 1 {
			t.Errorf("what did not change was fetched %d times", n)
		}
		f.change("2", func() { maps.Copy(f.says["sample"], serverV2("wardle.example.com", "second")) })
		ask(w)
		time.Sleep(refreshDefault)
		if rec := ask(w); strings.Contains(rec.Body.String(), "second") {
			t.Error("an outdated document was waited for")
		}
		synctest.Wait()
		if rec := ask(w); !strings.Contains(rec.Body.String(), "second") {
			t.Error("the server was not asked again")
		}
		if n := value(t, registry, "v1.wardle.example.com", "update"); n != 1 {
			t.Errorf("counted %v", n)
		}
		f.change("3", func() { f.servers = f.servers[:2] })
		if got := definitions(t, ask(w)); slices.Contains(got, "Flunder") {
			t.Errorf("after a server went: %v", got)
		}
	})
}

// A broken server is named, and the others are as they are. It is asked again
// later and later, or at once when something about it changes.
func TestWholeWithABrokenServer(t *testing.T) {
	for name, broken := range map[string]map[string]Answer{
		"nonsense":       {"/openapi/v2": good([]byte("<html>"), "")},
		"no v2":          {"/openapi/v2": good([]byte(`{"openapi":"3.0.0"}`), "")},
		"bad status":     {"/openapi/v2": {Code: 500}},
		"no gnostic":     {"/openapi/v2": good([]byte(`{"swagger":"2.0","info":{"title":"","version":""},"paths":{"/apis/bad.example.com/v1/x":{"get":{"responses":{"200":{"description":"d"}},"parameters":[{"in":"nowhere","name":"n"}]}}}}`), "")},
		"nonsense in v3": {"/openapi/v3/apis/bad.example.com/v1?hash=1": good([]byte(`{"paths":[]}`), "")},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet()
				f.add("bad", "bad.example.com", "/openapi/v3/apis/bad.example.com/v1?hash=1", broken)
				f.add("crd", "a.example.com", "/openapi/v3/apis/a.example.com/v1?hash=1", serverV3("a.example.com", "Apple"))
				w, registry, logs := started(t, f)
				if got := definitions(t, ask(w)); !slices.Equal(got, []string{"Meta", "a.example.com.v1.Apple"}) {
					t.Errorf("definitions %v", got)
				}
				if n := value(t, registry, "v1.bad.example.com"); n != 1 {
					t.Errorf("the metric says %v", n)
				}
				if all := w.Broken(); len(all) != 1 || all["v1.bad.example.com"] == "" {
					t.Errorf("broken are %v", all)
				}
				for range 5 {
					time.Sleep(refreshDefault)
					ask(w)
					synctest.Wait()
				}
				if n := strings.Count(logs.String(), "apiservice=v1.bad.example.com"); n != 1 {
					t.Errorf("named %d times:\n%s", n, logs)
				}
				tries := 0
				for path := range broken {
					tries = f.counted("bad " + path)
				}
				if tries != 3 { // at 0, 1 and 3 minutes
					t.Errorf("tried %d times", tries)
				}
				f.change("2", func() {
					f.servers[0].State = "works again"
					f.says["bad"] = serverV2("bad.example.com", "first")
				})
				if got := definitions(t, ask(w)); !slices.Contains(got, "Flunder") {
					t.Errorf("after it was mended: %v", got)
				}
				if value(t, registry, "v1.bad.example.com") != 0 || len(w.Broken()) > 0 {
					t.Errorf("it is still named: %v", w.Broken())
				}
			})
		})
	}
}

// A server that goes away keeps its part.
func TestWholeKeepsTheLastGood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		f.add("sample", "wardle.example.com", "", serverV2("wardle.example.com", "first"))
		f.add("crd", "a.example.com", "/openapi/v3/apis/a.example.com/v1?hash=1", serverV3("a.example.com", "Apple"))
		w, registry, _ := started(t, f)
		before := definitions(t, ask(w))
		f.change("2", func() {
			f.fails["sample"], f.fails["crd"] = errors.New("connection refused"), errors.New("connection refused")
		})
		if got := definitions(t, ask(w)); !slices.Equal(got, before) {
			t.Errorf("%v, before %v", got, before)
		}
		if n := value(t, registry, "v1.wardle.example.com"); n != 1 {
			t.Errorf("the metric says %v", n)
		}
		if len(w.Broken()) > 0 {
			t.Errorf("a server that is away is called broken: %v", w.Broken())
		}
	})
}

// While the first document is made a request is told to come again; nobody
// waits for a server that hangs for longer than it may take.
func TestWholeIsMadeInTheBackground(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		f.add("slow", "b.example.com", "", nil)
		f.add("crd", "a.example.com", "/openapi/v3/apis/a.example.com/v1?hash=1", serverV3("a.example.com", "Apple"))
		f.hangs["slow"] = make(chan struct{})
		w, _, _ := started(t, f)
		began := time.Now()
		rec := ask(w)
		if rec.Code != http.StatusServiceUnavailable || rec.Header().Get("Retry-After") == "" || time.Since(began) != patience {
			t.Errorf("%d %v after %v", rec.Code, rec.Header(), time.Since(began))
		}
		time.Sleep(fetchTimeout - patience)
		synctest.Wait()
		if got := definitions(t, ask(w)); len(got) != 2 {
			t.Errorf("without the server that hangs: %v", got)
		}
		close(f.hangs["slow"])
	})
}

// What nobody asks for is dropped, and made again for who asks next.
func TestWholeIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		const path = "/openapi/v3/apis/a.example.com/v1?hash=1"
		f.add("crd", "a.example.com", path, serverV3("a.example.com", "Apple"))
		w, _, _ := started(t, f)
		ask(w, "Accept", mediaProtobuf)
		time.Sleep(idleDefault - time.Second)
		if rec := ask(w); rec.Code != 200 || f.counted("crd "+path) != 1 {
			t.Errorf("%d, fetched %d times", rec.Code, f.counted("crd "+path))
		}
		time.Sleep(idleDefault + time.Second)
		synctest.Wait()
		if w.now != (shown{}) || w.known != nil || w.parts != nil {
			t.Error("it is still kept")
		}
		if rec := ask(w); rec.Code != 200 || f.counted("crd "+path) != 2 {
			t.Errorf("%d, fetched %d times", rec.Code, f.counted("crd "+path))
		}
	})
}

// Documents over HTTP: bounds, and no redirects followed.
func TestFetch(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/large":
			_, _ = w.Write(make([]byte, maxDocument+1))
		case r.Header.Get("If-None-Match") == `"1"`:
			w.WriteHeader(http.StatusNotModified)
		case r.Header.Get("X-Who") != "me" || r.Header.Get("Accept") != mediaJSON:
			w.WriteHeader(http.StatusForbidden)
		default:
			http.Redirect(w, r, "/large", http.StatusMovedPermanently)
		}
	}))
	defer server.Close()
	get := func(path, etag string) (*Answer, error) {
		return Fetch(t.Context(), http.DefaultTransport, server.URL, func(h http.Header) { h.Set("X-Who", "me") }, path, etag)
	}
	var broken *openapi.BrokenError
	var large *largeError
	if _, err := get("/large", ""); !errors.As(err, &broken) || !errors.As(err, &large) {
		t.Errorf("too large a document was read: %v", err)
	}
	if a, err := get("/small", `"1"`); err != nil || a.Code != http.StatusNotModified {
		t.Errorf("%+v %v", a, err)
	}
	if a, err := get("/small", ""); err != nil || a.Code != http.StatusMovedPermanently || a.Location != "/large" {
		t.Errorf("%+v %v", a, err)
	}
}
