package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"portico/resource"
	"portico/resource/client"
)

var configMaps = &resource.Info{Versions: []string{"v1"}, Resource: "configmaps", Kind: "ConfigMap", Namespaced: true}

// over returns a store over a server that answers as f does.
func over(t *testing.T, f http.HandlerFunc) resource.Reader {
	server := httptest.NewServer(f)
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return client.New(client.Config{BaseURL: server.URL + "/"}).Reader(configMaps)
}

func parse(t *testing.T, data string) *resource.Object {
	t.Helper()
	o, err := resource.Parse([]byte(data))
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func configMap(name string, rev int) string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q,"namespace":"a","uid":"u","resourceVersion":"%d"}}`, name, rev)
}

func TestQueries(t *testing.T) {
	var got *http.Request
	s := over(t, func(w http.ResponseWriter, r *http.Request) {
		got = r.Clone(context.Background())
		fmt.Fprint(w, `{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"5"},"items":null}`)
	})
	list := func(o resource.ListOptions) func() { return func() { _, _ = s.List(t.Context(), o) } }
	watch := func(o resource.WatchOptions) func() {
		return func() {
			if w, err := s.Watch(t.Context(), o); err == nil {
				w.Close()
			}
		}
	}
	get := func(at resource.At) func() {
		return func() { _, _ = s.Get(t.Context(), resource.Key{Namespace: "a", Name: "x/y"}, at) }
	}
	sel, err := labels.Parse("k=v,x")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		do   func()
		want string
	}{
		{get(resource.At{}), "/api/v1/namespaces/a/configmaps/x%2Fy"},
		{get(resource.At{Freshness: resource.Any}), "/api/v1/namespaces/a/configmaps/x%2Fy?resourceVersion=0"},
		{get(resource.At{Freshness: resource.NotOlderThan, Revision: 7}), "/api/v1/namespaces/a/configmaps/x%2Fy?resourceVersion=7"},
		{list(resource.ListOptions{}), "/api/v1/configmaps"},
		{list(resource.ListOptions{Namespace: "a", Limit: 3, Continue: "t", At: resource.At{Freshness: resource.Any}}), "/api/v1/namespaces/a/configmaps?continue=t&limit=3"},
		{list(resource.ListOptions{At: resource.At{Freshness: resource.Exact, Revision: 7}}), "/api/v1/configmaps?resourceVersion=7&resourceVersionMatch=Exact"},
		{list(resource.ListOptions{At: resource.At{Freshness: resource.NotOlderThan, Revision: 7}}), "/api/v1/configmaps?resourceVersion=7&resourceVersionMatch=NotOlderThan"},
		{list(resource.ListOptions{Selector: resource.Selector{Labels: sel, Fields: fields.OneTermEqualSelector("metadata.name", "n")}}), "/api/v1/configmaps?fieldSelector=metadata.name=n&labelSelector=k=v,x"},
		{watch(resource.WatchOptions{Since: 7, InitialEvents: true}), "/api/v1/configmaps?resourceVersion=7&watch=1"},
		{watch(resource.WatchOptions{Since: 7, Bookmarks: true}), "/api/v1/configmaps?allowWatchBookmarks=true&resourceVersion=7&watch=1"},
		{watch(resource.WatchOptions{InitialEvents: true}), "/api/v1/configmaps?allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan&sendInitialEvents=true&watch=1"},
		{watch(resource.WatchOptions{InitialEvents: true, At: resource.At{Freshness: resource.NotOlderThan, Revision: 7}}), "/api/v1/configmaps?allowWatchBookmarks=true&resourceVersion=7&resourceVersionMatch=NotOlderThan&sendInitialEvents=true&watch=1"},
		{watch(resource.WatchOptions{}), "/api/v1/configmaps?resourceVersionMatch=NotOlderThan&sendInitialEvents=false&watch=1"},
	} {
		tt.do()
		uri, err := url.QueryUnescape(got.URL.RawQuery)
		if err != nil {
			t.Fatal(err)
		}
		if uri != "" {
			uri = "?" + uri
		}
		if uri = got.URL.EscapedPath() + uri; uri != tt.want {
			t.Errorf("got  %s\nwant %s", uri, tt.want)
		}
		if got.Header.Get("User-Agent") != "portico" || got.Header.Get("Accept") != "application/json" {
			t.Errorf("headers %v", got.Header)
		}
	}
}

func TestErrors(t *testing.T) {
	for name, tt := range map[string]struct {
		code   int
		header string
		body   string
		is     func(error) bool
		delay  int
	}{
		"status":       {404, "", `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404,"message":"configmaps \"x\" not found"}`, apierrors.IsNotFound, 0},
		"retry":        {429, "3", `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"TooManyRequests","code":429}`, apierrors.IsTooManyRequests, 3},
		"text":         {503, "", "upstream connect error", apierrors.IsServiceUnavailable, 0},
		"no body":      {403, "", "", apierrors.IsForbidden, 0},
		"other JSON":   {409, "", `{"error":"no"}`, apierrors.IsConflict, 0},
		"redirect":     {302, "", "", func(err error) bool { return err != nil }, 0},
		"not JSON":     {200, "", "<html>", apierrors.IsInternalError, 0},
		"empty answer": {200, "", "", apierrors.IsInternalError, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := over(t, func(w http.ResponseWriter, _ *http.Request) {
				if tt.header != "" {
					w.Header().Set("Retry-After", tt.header)
				}
				w.WriteHeader(tt.code)
				io.WriteString(w, tt.body)
			})
			_, getErr := s.Get(t.Context(), resource.Key{Namespace: "a", Name: "x"}, resource.At{})
			_, listErr := s.List(t.Context(), resource.ListOptions{})
			for _, err := range []error{getErr, listErr} {
				if _, ok := err.(apierrors.APIStatus); !ok || !tt.is(err) {
					t.Errorf("got %v (%T)", err, err)
				}
				if seconds, _ := apierrors.SuggestsClientDelay(err); seconds != tt.delay {
					t.Errorf("delay %d", seconds)
				}
			}
		})
	}
}

func TestUnreachable(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	server.Close()
	s := client.New(client.Config{BaseURL: server.URL}).Reader(configMaps)
	if _, err := s.List(t.Context(), resource.ListOptions{}); !apierrors.IsServiceUnavailable(err) {
		t.Errorf("closed server: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := s.List(ctx, resource.ListOptions{})
	if !apierrors.IsTimeout(err) || !errors.Is(err, context.Canceled) {
		t.Errorf("ended context: %v", err)
	}
}

// A write without a response may have been executed: its error has no Retry-After, unlike
// that of a read, or of a request that was never sent.
func TestUnansweredWrites(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err == nil {
			conn.Close()
		}
	}))
	defer server.Close()
	away := httptest.NewServer(http.NotFoundHandler())
	away.Close()
	send := func(method, url string) error {
		res, err := client.New(client.Config{BaseURL: url}).Do(t.Context(), method, "/api/v1/namespaces/a/configmaps", nil, []byte(configMap("x", 0)))
		if err == nil {
			res.Body.Close()
		}
		return err
	}
	for what, tt := range map[string]struct {
		err   error
		retry bool
	}{
		"POST": {send("POST", server.URL), false}, "GET": {send("GET", server.URL), true},
		"POST not sent": {send("POST", away.URL), true}, "GET not sent": {send("GET", away.URL), true},
	} {
		seconds, _ := apierrors.SuggestsClientDelay(tt.err)
		if !apierrors.IsServiceUnavailable(tt.err) || (seconds > 0) != tt.retry {
			t.Errorf("%s: %v (retry after %d s)", what, tt.err, seconds)
		}
	}
}

// Servers that encode Go types leave apiVersion and kind out of items.
func TestListItemsAreWhole(t *testing.T) {
	s := over(t, func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"items":[{"metadata":{"name":"x","namespace":"a","resourceVersion":"3"}}, `+configMap("y", 4)+`],
			"extra":{"a":[1]},"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"9","continue":"c","remainingItemCount":2}}`)
	})
	l, err := s.List(t.Context(), resource.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if l.Revision != 9 || l.Continue != "c" || l.Remaining == nil || *l.Remaining != 2 || len(l.Items) != 2 {
		t.Fatalf("got %+v", l)
	}
	for i, name := range []string{"x", "y"} {
		o := l.Items[i]
		if o.Name != name || o.Kind != "ConfigMap" || o.APIVersion != "v1" || o.Revision != int64(3+i) {
			t.Errorf("item %+v", o.Header)
		}
		if again := parse(t, string(o.Data)); again.Kind != "ConfigMap" || again.APIVersion != "v1" {
			t.Errorf("bytes %s", o.Data)
		}
	}
}

func TestEndlessAnswersAreBounded(t *testing.T) {
	s := over(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Query().Has("watch"):
			fmt.Fprint(w, `{"type":"ADDED","object":{"metadata":{"name":"`)
		case strings.HasSuffix(r.URL.Path, "/configmaps"):
			fmt.Fprint(w, `{"items":[{"metadata":{"name":"`)
		}
		for chunk := strings.Repeat("x", 1<<16); r.Context().Err() == nil; {
			if _, err := io.WriteString(w, chunk); err != nil {
				return
			}
		}
	})
	if _, err := s.Get(t.Context(), resource.Key{Namespace: "a", Name: "x"}, resource.At{}); !apierrors.IsInternalError(err) {
		t.Errorf("get: %v", err)
	}
	if _, err := s.List(t.Context(), resource.ListOptions{}); !apierrors.IsInternalError(err) {
		t.Errorf("list: %v", err)
	}
	w, err := s.Watch(t.Context(), resource.WatchOptions{Since: 1})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Next(t.Context()); !apierrors.IsInternalError(err) {
		t.Errorf("watch: %v", err)
	}
}

func FuzzList(f *testing.F) {
	f.Add(`{"items":[{"metadata":{"name":"x"}}],"metadata":{"resourceVersion":"9"}}`)
	f.Add(`{"items":null}`)
	f.Add(`[]`)
	f.Add(`{"items":[{}],"metadata":{"resourceVersion":"x"}}`)
	f.Fuzz(func(t *testing.T, body string) {
		s := client.New(client.Config{BaseURL: "http://x", Transport: answer(body)}).Reader(configMaps)
		l, err := s.List(t.Context(), resource.ListOptions{})
		if err != nil {
			if !apierrors.IsInternalError(err) {
				t.Fatalf("%q: %v", body, err)
			}
			return
		}
		for _, o := range l.Items {
			if o.Kind == "" || o.APIVersion == "" {
				t.Fatalf("%q: item %s", body, o.Data)
			}
		}
	})
}

// answer is a transport that answers everything with itself.
type answer string

func (a answer) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: 200, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(string(a)))}, nil
}
