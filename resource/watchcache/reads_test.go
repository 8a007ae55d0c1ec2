package watchcache_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"portico/resource"
	"portico/resource/rest"
	"portico/resource/rest/handlers"
	"portico/resource/watchcache"
)

// configMaps is a kind with objects stored as JSON.
func configMaps() *rest.Kind {
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		panic(err)
	}
	return &rest.Kind{
		Info:  resource.Info{Versions: []string{"v1"}, Resource: "configmaps", Kind: "ConfigMap", Namespaced: true},
		Codec: rest.TypedJSON(scheme, corev1.SchemeGroupVersion.WithKind("ConfigMap"), nil),
	}
}

// served is an API over one store of config maps.
type served struct {
	t       testing.TB
	store   resource.Store
	handler http.Handler
}

func serve(t testing.TB, open func(*resource.Info) resource.Store) *served {
	kind := configMaps()
	store := open(&kind.Info)
	api := handlers.New(handlers.Config{Resources: []*rest.Resource{{Kind: kind, Store: store}}, Logger: slog.New(slog.DiscardHandler)})
	return &served{t: t, store: store, handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		act := resource.ParseAction(r)
		act.User = &resource.User{Name: "alice"}
		api.ServeHTTP(w, r.WithContext(resource.WithAction(r.Context(), act)))
	})}
}

// running starts a cache and returns it when it is ready.
func running(t testing.TB, cfg watchcache.Config) *watchcache.Cache {
	t.Helper()
	cfg.Logger = slog.New(slog.DiscardHandler)
	c := watchcache.New(cfg)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = c.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	if err := c.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	return c
}

// answer is the response of a read: a Status, an object or a list.
type answer struct {
	metav1.Status
	Metadata struct {
		metav1.ObjectMeta
		Continue           string `json:"continue"`
		RemainingItemCount *int64 `json:"remainingItemCount"`
	} `json:"metadata"`
	Items []corev1.ConfigMap `json:"items"`
}

func (a *answer) names() string {
	names := a.Metadata.Name
	for _, item := range a.Items {
		names += item.Name
	}
	return names
}

func (s *served) get(path string) (*answer, *http.Response) {
	s.t.Helper()
	w := httptest.NewRecorder()
	s.handler.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
	got := &answer{}
	if err := json.Unmarshal(w.Body.Bytes(), got); err != nil {
		s.t.Fatalf("%s: %v: %s", path, err, w.Body)
	}
	return got, w.Result()
}

// create stores a config map and returns its revision.
func (s *served) create(name string, labels ...string) int64 {
	s.t.Helper()
	text := fmt.Sprintf(`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":%q,"namespace":"default"%s}}`, name, strings.Join(labels, ""))
	o, err := resource.Parse([]byte(text))
	if err != nil {
		s.t.Fatal(err)
	}
	if o, err = s.store.Create(s.t.Context(), o.Key(), o, 0); err != nil {
		s.t.Fatal(err)
	}
	return o.Revision
}

// history has the revisions that the reads of the table use.
type history struct {
	// old is compacted, past shows a, b and c, now shows a, c and d.
	old, past, now int64
}

// play makes the history; compact forgets everything before past.
func (s *served) play(compact func(past int64)) history {
	var h history
	h.old = s.create("a", `,"labels":{"k":"1"}`)
	s.create("b", `,"labels":{"k":"2"}`)
	h.past = s.create("c", `,"labels":{"k":"1"}`)
	if _, err := s.store.Delete(s.t.Context(), resource.Key{Namespace: "default", Name: "b"}, nil); err != nil {
		s.t.Fatal(err)
	}
	compact(h.past)
	h.now = s.create("d", `,"labels":{"k":"1"}`)
	return h
}

// read is one row: a query and its response.
type read struct {
	query string
	names string // of the objects, in order
	// at is the revision of a list: "past", "now", or "" for any.
	at        string
	remaining int64 // above 0; then there is a token too
	more      bool  // there is a token
	code      int   // 0 is 200
	message   string
	cause     string
}

const (
	inNamespace = "/api/v1/namespaces/default/configmaps"
	badOptions  = `ListOptions.meta.k8s.io "" is invalid: `
	matchField  = badOptions + "resourceVersionMatch: "
	tooOld      = "The resourceVersion for the provided list is too old."
	tokenTooOld = "The provided continue parameter is too old to display a consistent list result. You can start a new list without the " +
		"continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the " +
		"provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the first " +
		"chunk was returned and now may show up in the list."
	badToken  = "invalid continue token: continue key is not valid: "
	noVersion = `resourceVersion: Invalid value: "x": strconv.ParseUint: parsing "x": invalid syntax`
	noNumber  = `invalid resource version: resourceVersion: Invalid value: "x": strconv.ParseUint: parsing "x": invalid syntax`
)

// gets are reads of one object (docs/wire.md 5.2).
var gets = []read{
	{query: "/a", names: "a"},
	{query: "/a?resourceVersion=", names: "a"},
	{query: "/a?resourceVersion=0", names: "a"},
	{query: "/a?resourceVersion={past}", names: "a"},
	{query: "/a?resourceVersion={now}", names: "a"},
	{query: "/a?resourceVersion={future}", code: 504, message: "Timeout: Too large resource version: {future}, current: {now}", cause: "ResourceVersionTooLarge"},
	{query: "/a?resourceVersion=x", code: 500, message: noVersion},
	{query: "/b", code: 404, message: `configmaps "b" not found`},
	{query: "/b?resourceVersion=0", code: 404, message: `configmaps "b" not found`},
	{query: "/b?resourceVersion={past}", code: 404, message: `configmaps "b" not found`},
}

// lists are reads of many (docs/wire.md 5.2, 5.3).
var lists = []read{
	{query: "", names: "acd", at: "now"},
	{query: "?limit=2", names: "ac", at: "now", remaining: 1},
	{query: "?limit=3", names: "acd", at: "now"},
	{query: "?limit=0", names: "acd", at: "now"},
	{query: "?limit=-1", names: "acd", at: "now"},
	{query: "?resourceVersion=0", names: "acd"},
	{query: "?resourceVersion=0&limit=1", names: "acd"},
	{query: "?resourceVersion=0&resourceVersionMatch=NotOlderThan&limit=1", names: "acd"},
	{query: "?resourceVersion={past}", names: "acd", at: "now"},
	{query: "?resourceVersion={now}", names: "acd", at: "now"},
	{query: "?resourceVersion={past}&resourceVersionMatch=NotOlderThan", names: "acd", at: "now"},
	{query: "?resourceVersion={past}&resourceVersionMatch=NotOlderThan&limit=2", names: "ac", at: "now", remaining: 1},
	{query: "?resourceVersion={old}&resourceVersionMatch=NotOlderThan", names: "acd", at: "now"},
	{query: "?resourceVersion={past}&limit=2", names: "ab", at: "past", remaining: 1},
	{query: "?resourceVersion={past}&limit=5", names: "abc", at: "past"},
	{query: "?resourceVersion={past}&resourceVersionMatch=Exact", names: "abc", at: "past"},
	{query: "?resourceVersion={past}&resourceVersionMatch=Exact&limit=1", names: "a", at: "past", remaining: 2},
	{query: "?resourceVersion={now}&resourceVersionMatch=Exact", names: "acd", at: "now"},
	{query: "?resourceVersion={now}&limit=1", names: "a", at: "now", remaining: 2},
	{query: "?continue={past/a}", names: "bc", at: "past"},
	{query: "?continue={past/a}&limit=1", names: "b", at: "past", remaining: 1},
	{query: "?continue={past/a}&resourceVersion=0&limit=1", names: "b", at: "past", remaining: 1},
	{query: "?continue={past/c}", names: "", at: "past"},
	{query: "?continue={latest/a}&limit=1", names: "c", at: "now", remaining: 1},
	{query: "?continue={latest/a}", names: "cd", at: "now"},
	{query: "?labelSelector=k%3D1&limit=2", names: "ac", at: "now", more: true},
	{query: "?labelSelector=k%3D1&limit=3", names: "acd", at: "now"},
	{query: "?labelSelector=k%3D2&resourceVersion={past}&limit=2", names: "b", at: "past"},
	{query: "?labelSelector=k%3D1&continue={past/a}&limit=1", names: "c", at: "past"},
	{query: "?fieldSelector=metadata.name%3Dc", names: "c", at: "now"},
	{query: "?fieldSelector=metadata.name%3Db&resourceVersion={past}&resourceVersionMatch=Exact", names: "b", at: "past"},
	{query: "?fieldSelector=metadata.namespace%3Dother", names: "", at: "now"},
}

// refusals are lists that fail (docs/wire.md 5.1, 5.2, 5.3).
var refusals = []read{
	{query: "?resourceVersion={future}", code: 504, message: "Timeout: Too large resource version: {future}, current: {now}", cause: "ResourceVersionTooLarge"},
	{query: "?resourceVersion={future}&resourceVersionMatch=NotOlderThan&limit=5", code: 504,
		message: "Timeout: Too large resource version: {future}, current: {now}", cause: "ResourceVersionTooLarge"},
	{query: "?resourceVersion={future}&resourceVersionMatch=Exact", code: 504,
		message: "Timeout: Too large resource version: {future}, current: {now}", cause: "ResourceVersionTooLarge"},
	{query: "?resourceVersion={future}&limit=5", code: 504, message: "Timeout: Too large resource version: {future}, current: {now}", cause: "ResourceVersionTooLarge"},
	{query: "?resourceVersion={old}&resourceVersionMatch=Exact", code: 410, message: tooOld},
	{query: "?resourceVersion={old}&limit=5", code: 410, message: tooOld},
	{query: "?continue={old/a}", code: 410, message: tokenTooOld, more: true},
	{query: "?continue={old/a}&limit=1&labelSelector=k%3D1", code: 410, message: tokenTooOld, more: true},

	{query: "?resourceVersionMatch=Exact", code: 422, message: matchField + "Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided"},
	{query: "?resourceVersionMatch=NotOlderThan", code: 422, message: matchField + "Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided"},
	{query: "?resourceVersionMatch=Exact&resourceVersion={now}&continue={past/a}", code: 422, message: matchField + "Forbidden: resourceVersionMatch is forbidden when continue is provided"},
	{query: "?resourceVersionMatch=Exact&continue={past/a}", code: 422,
		message: badOptions + "[resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided, " +
			"resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden when continue is provided]"},
	{query: "?resourceVersionMatch=Exact&resourceVersion=0", code: 422, message: matchField + `Forbidden: resourceVersionMatch "exact" is forbidden for resourceVersion "0"`},
	{query: "?resourceVersionMatch=exact&resourceVersion={now}", code: 422, message: matchField + `Unsupported value: "exact": supported values: "Exact", "NotOlderThan", ""`},
	{query: "?sendInitialEvents=true", code: 422, message: badOptions + "sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list"},
	{query: "?sendInitialEvents=false&resourceVersion=0&resourceVersionMatch=NotOlderThan", code: 422,
		message: badOptions + "sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list"},
	{query: "?watch=1&sendInitialEvents=true", code: 422, message: matchField + "Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"},
	{query: "?watch=1&sendInitialEvents=false&resourceVersionMatch=Exact&resourceVersion={now}", code: 422,
		message: badOptions + "[resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan, " +
			`resourceVersionMatch: Unsupported value: "Exact": supported values: "NotOlderThan"]`},
	{query: "?watch=1&resourceVersionMatch=NotOlderThan&resourceVersion={now}", code: 422,
		message: matchField + "Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"},
	{query: "?watch=1&resourceVersion=x", code: 500, message: noVersion},
	{query: "?resourceVersion=x", code: 400, message: noNumber},
	{query: "?resourceVersion=99999999999999999999", code: 400,
		message: `invalid resource version: resourceVersion: Invalid value: "99999999999999999999": strconv.ParseUint: parsing "99999999999999999999": value out of range`},
	{query: "?continue={past/a}&resourceVersion={now}", code: 400, message: "specifying resource version is not allowed when using continue"},
	{query: "?continue=%21", code: 400, message: badToken + "illegal base64 data at input byte 0"},
	{query: "?continue=e30", code: 400, message: badToken + "server does not recognize this encoded version "},
	{query: "?continue={0/a}", code: 400, message: badToken + "incorrect encoded start resourceVersion (version meta.k8s.io/v1)"},
	{query: "?continue={-2/a}", code: 400, message: badToken + "incorrect encoded start resourceVersion (version meta.k8s.io/v1)"},
	{query: "?continue={past/../../secrets/default/s}", code: 400, message: badToken + "../../secrets/default/s\x00"},
	{query: "?limit=x", code: 400, message: `strconv.ParseInt: parsing "x": invalid syntax`},
	{query: "?labelSelector=a+in+%28", code: 400, message: "unable to parse requirement: found '', expected: ',', ')' or identifier"},
	{query: "?fieldSelector=a", code: 400, message: "invalid selector: 'a'; can't understand 'a'"},
	{query: "?fieldSelector=spec.x%3D1", code: 400, message: `"spec.x" is not a known field selector: only "metadata.name", "metadata.namespace"`},
	{query: "?fieldSelector=metadata.name%3Da&watch=1&resourceVersionMatch=Exact&sendInitialEvents=true", code: 422,
		message: badOptions + "[resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan, " +
			`resourceVersionMatch: Unsupported value: "Exact": supported values: "NotOlderThan"]`},
}

// fill replaces the names of revisions and tokens in a text.
func (h history) fill(text string) string {
	const future = 1_000_000_000
	revisions := map[string]int64{"old": h.old, "past": h.past, "now": h.now, "future": future, "latest": -1, "0": 0, "-2": -2}
	for {
		before, rest, found := strings.Cut(text, "{")
		if !found {
			return text
		}
		name, after, _ := strings.Cut(rest, "}")
		name, start, isToken := strings.Cut(name, "/")
		value := strconv.FormatInt(revisions[name], 10)
		if isToken {
			value = resource.EncodeContinue(revisions[name], start)
		}
		text = before + value + after
	}
}

// Every form of a read has the response that docs/wire.md describes, from etcd and from a
// cache over it.
func TestReads(t *testing.T) {
	t.Parallel()
	server := newEtcd(t)
	for _, name := range []string{"etcd", "watch cache over etcd"} {
		t.Run(name, func(t *testing.T) {
			client := server.open(t)
			s := serve(t, client.Store)
			if name != "etcd" {
				s = serve(t, running(t, watchcache.Config{Feed: client.Feed(), Store: client.Store, FreshTimeout: 200 * time.Millisecond}).Store)
			}
			h := s.play(func(past int64) {
				if _, err := server.Etcd.Server.Compact(t.Context(), &etcdserverpb.CompactionRequest{Revision: past, Physical: true}); err != nil {
					t.Fatal(err)
				}
			})
			for _, r := range gets {
				s.check(h, inNamespace, r)
			}
			for _, r := range append(lists, refusals...) {
				s.check(h, inNamespace, r)
			}
			s.inconsistent(h)
		})
	}
}

// check compares a response with its row.
func (s *served) check(h history, path string, r read) {
	s.t.Helper()
	query := h.fill(r.query)
	got, resp := s.get(path + query)
	if r.code == 0 {
		s.checkContent(h, query, r, got, resp)
		return
	}
	if resp.StatusCode != r.code || int(got.Code) != r.code || got.Message != h.fill(r.message) {
		s.t.Errorf("%s: %d %q\nwant %d %q", r.query, resp.StatusCode, got.Message, r.code, h.fill(r.message))
	}
	cause := ""
	if got.Details != nil && len(got.Details.Causes) > 0 {
		cause = string(got.Details.Causes[0].Type)
	}
	if r.cause != "" && (cause != r.cause || got.Details.RetryAfterSeconds != 1 || resp.Header.Get("Retry-After") != "1") {
		s.t.Errorf("%s: cause %q, details %+v", r.query, cause, got.Details)
	}
	if r.more != (got.Metadata.Continue != "") {
		s.t.Errorf("%s: the Status has the token %q", r.query, got.Metadata.Continue)
	}
}

func (s *served) checkContent(h history, query string, r read, got *answer, resp *http.Response) {
	s.t.Helper()
	if resp.StatusCode != http.StatusOK || got.names() != r.names {
		s.t.Errorf("%s: %s with %q, want %q: %s", query, resp.Status, got.names(), r.names, got.Message)
		return
	}
	want := map[string]int64{"past": h.past, "now": h.now}[r.at]
	if r.at != "" && got.Metadata.ResourceVersion != strconv.FormatInt(want, 10) {
		s.t.Errorf("%s: list at %s, want %s = %d", query, got.Metadata.ResourceVersion, r.at, want)
	}
	remaining := int64(0)
	if got.Metadata.RemainingItemCount != nil {
		remaining = *got.Metadata.RemainingItemCount
	}
	if remaining != r.remaining || (r.more || r.remaining > 0) != (got.Metadata.Continue != "") {
		s.t.Errorf("%s: %d remain, token %q; want %d", query, remaining, got.Metadata.Continue, r.remaining)
	}
}

// inconsistent continues with the token of a 410.
func (s *served) inconsistent(h history) {
	s.t.Helper()
	got, _ := s.get(inNamespace + "?limit=1&continue=" + resource.EncodeContinue(h.old, "a"))
	if rev, _, err := resource.DecodeContinue(got.Metadata.Continue); err != nil || rev != resource.InconsistentRevision {
		s.t.Fatalf("token of revision %d, %v", rev, err)
	}
	var names strings.Builder
	for token := got.Metadata.Continue; token != ""; {
		page, resp := s.get(inNamespace + "?limit=1&continue=" + url.QueryEscape(token))
		if resp.StatusCode != http.StatusOK || page.Metadata.ResourceVersion != strconv.FormatInt(h.now, 10) {
			s.t.Fatalf("%s at %s: %s", resp.Status, page.Metadata.ResourceVersion, page.Message)
		}
		_, _ = io.WriteString(&names, page.names())
		token = page.Metadata.Continue
	}
	if names.String() != "cd" {
		s.t.Errorf("went on with %q", names.String())
	}
}
