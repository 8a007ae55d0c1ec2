package clients

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"portico/cmd/e2e"
)

// watchTest is the state that the subtests of TestWatches share.
type watchTest struct {
	up     *e2e.Installation
	client kubernetes.Interface
	group  string
}

// Watches of the core and of the CRD server through the gateway, over each protocol and in each
// form.
func TestWatches(t *testing.T) {
	t.Parallel()
	up := e2e.SharedInstallation(t)
	w := &watchTest{up: up, client: up.Client(t), group: "watches.example.com"}
	e2e.Define(t, e2e.DynamicClient(t, up.Config(t)), w.group)
	// t.Run returns when the parallel subtests have ended.
	t.Run("all", func(t *testing.T) {
		for name, test := range map[string]func(*testing.T){
			"WebSocket": w.overWebSocket, "Legacy": w.legacyPaths, "Kubectl": w.kubectlTables, "Protobuf": w.protobuf,
			"Timeout": w.timeout, "Slow": w.slowClient, "Packed": w.packed,
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				test(t)
			})
		}
	})
	w.counted(t)
	if err := e2e.DynamicClient(t, up.Config(t)).Resource(e2e.Definitions).Delete(t.Context(), "widgets."+w.group, metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
}

// resources returns the paths of a collection of each server in a namespace.
func (w *watchTest) resources(ns string) []string {
	return []string{"/api/v1/namespaces/" + ns + "/secrets", "/apis/" + w.group + "/v1/namespaces/" + ns + "/widgets"}
}

// write creates, patches or deletes an object of a collection.
func (w *watchTest) write(t *testing.T, method, path, name string) {
	t.Helper()
	body, contentType := `{"metadata":{"labels":{"changed":"yes"}}}`, "application/merge-patch+json"
	if method == http.MethodPost {
		body, contentType = fmt.Sprintf(`{"metadata":{"name":%q}}`, name), "application/json"
		if strings.HasPrefix(path, "/apis/") {
			body = fmt.Sprintf(`{"apiVersion":"%s/v1","kind":"Widget","metadata":{"name":%q}}`, w.group, name)
		}
	} else {
		path += "/" + name
	}
	req, err := http.NewRequestWithContext(t.Context(), method, w.up.Endpoint+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if method != http.MethodDelete {
		req.Header.Set("Content-Type", contentType)
	} else {
		req.Body, req.ContentLength = http.NoBody, 0
	}
	if code, answer := e2e.Send(t, e2e.HTTPClient(t, w.up.Config(t)), req); code >= 300 {
		t.Fatalf("%s %s: %d %s", method, path, code, answer)
	}
}

// watched is an event as a client reads it.
type watched struct {
	Type   string
	Object struct {
		Kind     string
		Metadata metav1.ObjectMeta
		Data     map[string]string
		Code     int
	}
}

func (e watched) String() string {
	return strings.TrimSpace(e.Type + " " + e.Object.Kind + " " + e.Object.Metadata.Name)
}

// open opens a watch; it ends with the test.
func (w *watchTest) open(t *testing.T, cfg *rest.Config, path string, header http.Header) *http.Response {
	t.Helper()
	client := e2e.HTTPClient(t, cfg)
	client.Timeout = 0
	ctx, cancel := context.WithTimeout(t.Context(), e2e.Patience)
	t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.up.Endpoint+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header = header
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	return resp
}

// expectEvents reads events and compares them with want, "TYPE kind name".
func expectEvents(t *testing.T, next func(*watched) error, want ...string) {
	t.Helper()
	for _, text := range want {
		var e watched
		if err := next(&e); err != nil {
			t.Fatalf("instead of %s: %v", text, err)
		}
		if e.String() != text {
			t.Fatalf("event %s, want %s", e, text)
		}
	}
}

func events(body io.Reader) func(*watched) error {
	dec := json.NewDecoder(body)
	return func(e *watched) error { return dec.Decode(e) }
}

// timeout checks that a watch ends after timeoutSeconds without an error.
func (w *watchTest) timeout(t *testing.T) {
	var ends []func() error
	for _, path := range w.resources(e2e.NewNamespace(t, w.client)) {
		path += "?watch=1&timeoutSeconds=1"
		resp, ws := w.open(t, w.up.Config(t), path, nil), w.dial(t, path, "")
		ends = append(ends, func() error {
			data, err := io.ReadAll(resp.Body)
			if err != nil || len(data) > 0 || resp.StatusCode != http.StatusOK {
				return fmt.Errorf("%s: %s %q, %w", path, resp.Status, data, err)
			}
			return nil
		}, func() error {
			if data, _, err := receive(ws); !errors.Is(err, io.EOF) {
				return fmt.Errorf("%s over WebSocket: %q, %w", path, data, err)
			}
			return nil
		})
	}
	for _, ended := range ends {
		if err := ended(); err != nil {
			t.Error(err)
		}
	}
}

// slowClient checks that a client that does not read delays no other client, and that it then
// gets every event or a Status with code 410.
func (w *watchTest) slowClient(t *testing.T) {
	const changes, size = 24, 700 << 10 // far more than the buffers on the way hold
	maps := w.client.CoreV1().ConfigMaps(e2e.NewNamespace(t, w.client))
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "big"}, Data: map[string]string{"fill": strings.Repeat("x", size)}}
	made, err := maps.Create(t.Context(), cm, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	path := "/api/v1/namespaces/" + made.Namespace + "/configmaps?watch=1&fieldSelector=metadata.name=big&resourceVersion=" + made.ResourceVersion
	slow, quick := w.open(t, w.up.Config(t), path, nil), w.open(t, w.up.Config(t), path, nil)
	go func() {
		for i := range changes {
			patch := fmt.Sprintf(`{"data":{"n":"%d"}}`, i)
			if _, err := maps.Patch(t.Context(), "big", types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
				t.Error(err)
				return
			}
		}
	}()
	if n := readChanges(t, quick.Body, changes); n != changes {
		t.Errorf("the quick client was ended after %d of %d changes", n, changes)
	}
	t.Logf("the slow client read %d of %d changes", readChanges(t, slow.Body, changes), changes)
}

// readChanges reads changes, which are numbered from 0, until all are read or a Status with code
// 410 ends the watch, and returns their number.
func readChanges(t *testing.T, body io.Reader, changes int) int {
	t.Helper()
	next := events(body)
	for i := range changes {
		var e watched
		switch err := next(&e); {
		case err != nil:
			t.Fatalf("after %d changes: %v", i, err)
		case e.Type == "ERROR" && e.Object.Code == http.StatusGone:
			return i
		case e.Object.Data["n"] != fmt.Sprint(i):
			t.Fatalf("change %s, want %d", e.Object.Data["n"], i)
		}
	}
	return changes
}

// packed checks that a watch-list is compressed for a client that accepts gzip, and that later
// events are flushed.
func (w *watchTest) packed(t *testing.T) {
	ns := e2e.NewNamespace(t, w.client)
	for _, path := range w.resources(ns) {
		kind := map[bool]string{true: "Widget", false: "Secret"}[strings.HasPrefix(path, "/apis/")]
		w.write(t, http.MethodPost, path, "a")
		w.write(t, http.MethodPost, path, "b")
		resp := w.open(t, w.up.Config(t), path+"?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true",
			http.Header{"Accept-Encoding": {"gzip"}})
		if resp.Header.Get("Content-Encoding") != "gzip" {
			t.Fatalf("%s is not compressed: %v", path, resp.Header)
		}
		body, err := gzip.NewReader(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		next := events(body)
		expectEvents(t, next, "ADDED "+kind+" a", "ADDED "+kind+" b")
		var bookmark watched
		if err := next(&bookmark); err != nil || bookmark.Type != "BOOKMARK" || bookmark.Object.Metadata.Annotations[metav1.InitialEventsAnnotationKey] != "true" {
			t.Fatalf("%v, %v", bookmark, err)
		}
		w.write(t, http.MethodPatch, path, "b")
		expectEvents(t, next, "MODIFIED "+kind+" b")
		w.write(t, http.MethodDelete, path, "a")
		expectEvents(t, next, "DELETED "+kind+" a")
	}
}

// counted checks the metrics of the watches.
func (w *watchTest) counted(t *testing.T) {
	for server, lines := range map[string][]string{
		"core": {
			`apiserver_watch_events_total{group="",resource="secrets",version="v1"} \d\d`,
			`apiserver_watch_events_sizes_bucket{group="",resource="configmaps",version="v1",le="131072"} \d`,
			`apiserver_watch_list_duration_seconds_count{group="",resource="secrets",scope="namespace",version="v1"} \d`,
			`apiserver_longrunning_requests{.*resource="configmaps".*verb="WATCH".*} \d`,
			`apiserver_storage_objects{resource="namespaces"} \d`,
			`apiserver_resource_objects{group="",resource="namespaces"} \d`,
			`apiserver_watch_cache_events_received_total{group="",resource="secrets"} \d\d`,
		},
		"crd": {
			`apiserver_watch_events_total{group="watches.example.com",resource="widgets",version="v1"} \d\d`,
			`apiserver_storage_objects{resource="widgets.watches.example.com"} \d`,
			`apiserver_resource_objects{group="apiextensions.k8s.io",resource="customresourcedefinitions"} \d`,
		},
	} {
		text := w.up.Metrics(t, server)
		for _, line := range lines {
			if !regexp.MustCompile("(?m)^" + line).MatchString(text) {
				t.Errorf("%s does not show %s", server, line)
			}
		}
	}
}
