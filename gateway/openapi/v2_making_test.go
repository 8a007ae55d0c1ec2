package openapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
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
	"google.golang.org/protobuf/proto"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// fleet are the OpenAPI v3 documents of v2: one per group, v1.
type fleet struct {
	mu     sync.Mutex
	list   []v2Source
	state  int
	says   map[string][]byte // by group
	fails  map[string]error  // by group
	asked  map[string]int    // by group
	hangs  map[string]bool   // by group
	order  []string
	hashes map[string]int
}

func newFleet() *fleet {
	return &fleet{says: map[string][]byte{}, fails: map[string]error{}, asked: map[string]int{}, hangs: map[string]bool{}, hashes: map[string]int{}}
}

// say sets the document of a group, with a new hash.
func (f *fleet) say(group string, document []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.says[group] == nil {
		f.order = append(f.order, group)
	}
	f.says[group] = document
	f.hashes[group]++
	f.state++
	f.list = nil
	for _, g := range f.order {
		f.list = append(f.list, v2Source{
			apiService: "v1." + g, key: "apis/" + g + "/v1", owner: "server of " + g, url: fmt.Sprintf("/openapi/v3/apis/%s/v1?hash=%d", g, f.hashes[g]),
			fetch: func(ctx context.Context) ([]byte, error) { return f.fetch(ctx, g) },
		})
	}
}

func (f *fleet) fetch(ctx context.Context, group string) ([]byte, error) {
	f.mu.Lock()
	f.asked[group]++
	data, err, hang := f.says[group], f.fails[group], f.hangs[group]
	f.mu.Unlock()
	if hang {
		ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
		defer cancel()
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return data, err
}

func (f *fleet) sources() ([]v2Source, any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.list, f.state
}

func (f *fleet) counted(group string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.asked[group]
}

// document is the v3 document of one kind of a group. It uses Meta, which says meta.
func document(group, kind, meta string) []byte {
	data, err := json.Marshal(map[string]any{
		"openapi": "3.0.0", "info": map[string]any{"title": "t", "version": "v"},
		"paths": map[string]any{
			"/apis/" + group + "/v1/things": map[string]any{"get": map[string]any{
				"operationId": "list" + kind, "parameters": []any{map[string]any{"name": "limit", "in": "query", "schema": map[string]any{"type": "integer"}}},
				"responses": map[string]any{"200": map[string]any{"description": "OK", "content": map[string]any{"application/json": map[string]any{
					"schema": map[string]any{"$ref": "#/components/schemas/" + group + ".v1." + kind}}}}},
			}},
			"/apis/another.example.com/v1/things": map[string]any{"get": map[string]any{"responses": map[string]any{"200": map[string]any{"description": "not its own"}}}},
		},
		"components": map[string]any{"schemas": map[string]any{
			group + ".v1." + kind: map[string]any{"type": "object", "description": kind, "properties": map[string]any{
				"metadata": map[string]any{"allOf": []any{map[string]any{"$ref": "#/components/schemas/Meta"}}},
				"list":     map[string]any{"type": "array"}, "gone": map[string]any{"$ref": "#/components/schemas/Missing"},
			}},
			"Meta":   map[string]any{"type": "object", "description": meta},
			"Unused": map[string]any{"type": "object"},
		}},
	})
	if err != nil {
		panic(err)
	}
	return data
}

// serving runs the v2 of a fleet until the test ends.
func (f *fleet) serving(t *testing.T) (*v2, *bytes.Buffer) {
	t.Helper()
	logs := &bytes.Buffer{}
	v := newV2(f.sources, nil, slog.New(slog.NewTextHandler(logs, nil)))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = v.run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	return v, logs
}

func askV2(v *v2, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest("GET", "/openapi/v2", nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	v.ServeHTTP(w, r)
	return w
}

func definitions(t *testing.T, w *httptest.ResponseRecorder) []string {
	t.Helper()
	return slices.Sorted(maps.Keys(schemas(t, w)))
}

func schemas(t *testing.T, w *httptest.ResponseRecorder) spec.Definitions {
	t.Helper()
	var out spec.Swagger
	if err := json.Unmarshal(w.Body.Bytes(), &out); err != nil || w.Code != 200 {
		t.Fatalf("%d %v %s", w.Code, err, w.Body)
	}
	return out.Definitions
}

// The document merges all documents, in JSON and in protobuf, with equal definitions once. Nothing is
// fetched before the first request.
func TestV2OfDocuments(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		f.say("a.example.com", document("a.example.com", "Apple", "one"))
		f.say("b.example.com", document("b.example.com", "Bean", "one"))
		f.say("c.example.com", document("c.example.com", "Cod", "another"))
		v, logs := f.serving(t)
		synctest.Wait()
		if len(f.asked) != 0 {
			t.Errorf("fetched before the first request: %v", f.asked)
		}
		w := askV2(v)
		want := []string{"Meta", "Meta_v2", "Unused", "a.example.com.v1.Apple", "b.example.com.v1.Bean", "c.example.com.v1.Cod"}
		if got := definitions(t, w); !slices.Equal(got, want) {
			t.Errorf("definitions %v", got)
		}
		// The first document keeps its names.
		if all := schemas(t, w); all["Meta"].Description != "one" || all["Meta_v2"].Description != "another" {
			t.Errorf("Meta is %q, Meta_v2 is %q", all["Meta"].Description, all["Meta_v2"].Description)
		}
		h := w.Header()
		if h.Get("Content-Type") != mediaJSON || h.Get("Last-Modified") == "" || !slices.Contains(h.Values("Vary"), "Accept") {
			t.Errorf("headers %v", h)
		}
		for _, header := range [][]string{{"If-None-Match", h.Get("ETag")}, {"If-None-Match", `W/` + h.Get("ETag")}, {"If-Modified-Since", h.Get("Last-Modified")}} {
			if w := askV2(v, header...); w.Code != http.StatusNotModified || w.Body.Len() > 0 {
				t.Errorf("%v: %d", header, w.Code)
			}
		}
		if w := askV2(v, "If-None-Match", `"other"`, "If-Modified-Since", h.Get("Last-Modified")); w.Code != 200 {
			t.Errorf("another ETag: %d", w.Code)
		}
		for _, accept := range []string{mediaProtobufV2, mediaProtobufV2Old, mediaProtobufV2Old + ",application/json"} {
			w := askV2(v, "Accept", accept)
			doc := &openapi_v2.Document{}
			if err := proto.Unmarshal(w.Body.Bytes(), doc); err != nil || w.Code != 200 || w.Header().Get("Content-Type") != mediaProtobufV2 {
				t.Errorf("%s: %d %v %v", accept, w.Code, w.Header(), err)
			}
			if len(doc.GetDefinitions().GetAdditionalProperties()) != len(want) || len(doc.GetPaths().GetPath()) != 3 {
				t.Errorf("%s: %d definitions", accept, len(doc.GetDefinitions().GetAdditionalProperties()))
			}
		}
		if w := askV2(v, "Accept", "text/html"); w.Code != http.StatusNotAcceptable {
			t.Errorf("text/html: %d", w.Code)
		}
		if logs.Len() > 0 {
			t.Errorf("logs %s", logs)
		}
	})
}

// Only a changed document is fetched again. After a failure the old part remains, the error is
// reported, and the document is fetched again later.
func TestV2FollowsChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		f.say("a.example.com", document("a.example.com", "Apple", "one"))
		f.say("b.example.com", document("b.example.com", "Bean", "one"))
		v, logs := f.serving(t)
		etag := askV2(v).Header().Get("ETag")
		f.say("a.example.com", document("a.example.com", "Avocado", "one"))
		w := askV2(v)
		if got := definitions(t, w); !slices.Contains(got, "a.example.com.v1.Avocado") || slices.Contains(got, "a.example.com.v1.Apple") || w.Header().Get("ETag") == etag {
			t.Errorf("after the change: %v, %v", got, w.Header())
		}
		for what, broken := range map[string]func(){
			"out of reach": func() { f.fails["a.example.com"] = errors.New("connection refused") },
			"nonsense":     func() { f.says["a.example.com"] = []byte("<html>") },
		} {
			good := f.says["a.example.com"]
			f.say("a.example.com", good)
			broken()
			before := f.counted("a.example.com")
			for range 3 {
				if got := definitions(t, askV2(v)); !slices.Contains(got, "a.example.com.v1.Avocado") {
					t.Errorf("%s: %v", what, got)
				}
				f.state++
			}
			if n := f.counted("a.example.com") - before; n != 1 {
				t.Errorf("%s: fetched %d times", what, n)
			}
			if named := len(v.brokenAPIServices()) == 1; named != (what == "nonsense") {
				t.Errorf("%s: broken are %v", what, v.brokenAPIServices())
			}
			time.Sleep(v2Pause)
			delete(f.fails, "a.example.com")
			f.says["a.example.com"] = good
			f.state++
			if w := askV2(v); w.Code != 200 || f.counted("a.example.com")-before != 2 || len(v.brokenAPIServices()) > 0 {
				t.Errorf("%s, later: %d, fetched %d times, broken are %v", what, w.Code, f.counted("a.example.com")-before, v.brokenAPIServices())
			}
		}
		if n := strings.Count(logs.String(), "apiservice=v1.a.example.com"); n != 2 {
			t.Errorf("named %d times:\n%s", n, logs)
		}
		if n := f.counted("b.example.com"); n != 1 {
			t.Errorf("what did not change was fetched %d times", n)
		}
	})
}

// The first requests wait for the document, which a server that hangs delays once. After a change
// the older document is served until the new one is made.
func TestV2IsMadeInTheBackground(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		f.say("slow.example.com", document("slow.example.com", "Snail", "one"))
		f.say("a.example.com", document("a.example.com", "Apple", "one"))
		f.hangs["slow.example.com"] = true
		v, _ := f.serving(t)
		began := time.Now()
		var clients sync.WaitGroup
		for range 20 {
			clients.Go(func() {
				if got := definitions(t, askV2(v)); len(got) != 3 || time.Since(began) != fetchTimeout {
					t.Errorf("without the server that hangs: %v after %v", got, time.Since(began))
				}
			})
		}
		clients.Wait()
		time.Sleep(v2Pause)
		f.say("a.example.com", document("a.example.com", "Avocado", "one"))
		began = time.Now()
		if got := definitions(t, askV2(v)); !slices.Contains(got, "a.example.com.v1.Apple") || time.Since(began) != v2Wait {
			t.Errorf("the older one: %v after %v", got, time.Since(began))
		}
		time.Sleep(fetchTimeout)
		synctest.Wait()
		if got := definitions(t, askV2(v)); !slices.Contains(got, "a.example.com.v1.Avocado") {
			t.Errorf("the new one: %v", got)
		}
	})
}

// If many servers hang, the first requests get what the others have.
func TestFirstV2IsNotLateForServersThatHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		f.say("a.example.com", document("a.example.com", "Apple", "one"))
		for i := range 3 * v2Fetches {
			group := fmt.Sprintf("slow%d.example.com", i)
			f.say(group, document(group, "Snail", "one"))
			f.hangs[group] = true
		}
		f.say("b.example.com", document("b.example.com", "Bean", "one")) // behind them
		v, _ := f.serving(t)
		began := time.Now()
		got := definitions(t, askV2(v))
		if at := time.Since(began); !slices.Contains(got, "a.example.com.v1.Apple") || at < v2First || at > v2First+v2Wait {
			t.Errorf("at first %v after %v", got, at)
		}
		time.Sleep(fetchTimeout * 3)
		synctest.Wait()
		if got := definitions(t, askV2(v)); !slices.Contains(got, "b.example.com.v1.Bean") {
			t.Errorf("in the end %v", got)
		}
	})
}

// A request that ends before there is a document is not answered 503: no server is unavailable.
func TestRequestForV2Ends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		f.say("slow.example.com", document("slow.example.com", "Snail", "one"))
		f.hangs["slow.example.com"] = true
		v, _ := f.serving(t)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		w := httptest.NewRecorder()
		v.ServeHTTP(w, httptest.NewRequestWithContext(ctx, "GET", "/openapi/v2", nil))
		if w.Code != http.StatusGatewayTimeout {
			t.Errorf("%d %s", w.Code, w.Body)
		}
	})
}

// A document without requests is dropped, and made again for the next request.
func TestV2IsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		f.say("a.example.com", document("a.example.com", "Apple", "one"))
		v, _ := f.serving(t)
		askV2(v)
		time.Sleep(v2Idle + time.Second)
		synctest.Wait()
		if v.doc != nil || v.parts != nil {
			t.Error("it is still kept")
		}
		if w := askV2(v); w.Code != 200 || f.counted("a.example.com") != 2 {
			t.Errorf("%d, fetched %d times", w.Code, f.counted("a.example.com"))
		}
	})
}

// A part beyond the limit is omitted, also if its size is in definitions with names of others.
func TestV2IsBounded(t *testing.T) {
	part := func(group, meta string) *v2Part {
		p, err := newV2Part(&v2Source{apiService: "v1." + group, key: "apis/" + group + "/v1"}, document(group, "Thing", meta))
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	small, next := part("a.example.com", "one"), part("c.example.com", "one")
	most := 8500
	for i := range 3 {
		var failed []string
		large := part(fmt.Sprintf("b%d.example.com", i), strings.Repeat("x", 3000))
		data, err := mergeV2([]*v2Part{small, large, part("d.example.com", strings.Repeat("y", 3000)), next}, most, func(p *v2Part, err error) {
			failed = append(failed, p.apiService)
			if !errors.Is(err, errV2TooLarge) {
				t.Error(err)
			}
		})
		if err != nil || len(data) > 2*most {
			t.Errorf("%d bytes, %v", len(data), err)
		}
		if !slices.Equal(failed, []string{"v1.d.example.com"}) || !bytes.Contains(data, []byte("c.example.com.v1.Thing")) {
			t.Errorf("left out: %v", failed)
		}
	}
}

// A part that cannot be encoded as protobuf is omitted from that form.
func TestProtobufOfV2WithoutWhatIsBroken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		f.say("a.example.com", document("a.example.com", "Apple", "one"))
		f.say("bad.example.com", bytes.ReplaceAll(document("bad.example.com", "Bad", "one"), []byte(`"in":"query"`), []byte(`"in":"nowhere"`)))
		v, logs := f.serving(t)
		w := askV2(v, "Accept", mediaProtobufV2)
		doc := &openapi_v2.Document{}
		if err := proto.Unmarshal(w.Body.Bytes(), doc); err != nil || w.Code != 200 || len(doc.GetPaths().GetPath()) != 1 {
			t.Errorf("%d %v, paths %v", w.Code, err, doc.GetPaths())
		}
		if !strings.Contains(logs.String(), "apiservice=v1.bad.example.com") {
			t.Errorf("logs %s", logs)
		}
	})
}

// Any document is converted or an error.
func FuzzPartOfV2(f *testing.F) {
	f.Add(document("a.example.com", "Apple", "one"))
	f.Add([]byte(`{"openapi":"3.0.0","paths":{"/apis/a.example.com/v1/x":null},"components":{"schemas":{"X":null,"Y":{"items":[{}],"allOf":[{"$ref":"#/components/schemas/Y"}]}}}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := newV2Part(&v2Source{apiService: "v1.a.example.com", key: "apis/a.example.com/v1"}, data)
		if err != nil {
			return
		}
		if _, err := mergeV2([]*v2Part{p, p}, maxV2, func(*v2Part, error) {}); err != nil {
			t.Error(err)
		}
	})
}
