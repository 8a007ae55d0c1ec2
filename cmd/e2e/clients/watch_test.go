package clients

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/websocket"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"portico/cmd/e2e"
	"portico/internal/testing/await"
)

// watchTest is the state that the tests of watches share.
type watchTest struct {
	up     *e2e.Installation
	client kubernetes.Interface
	group  string
}

// newWatchTest defines widgets in a group, for the length of the test.
func newWatchTest(t *testing.T, group string) *watchTest {
	t.Helper()
	up := e2e.SharedInstallation(t)
	client := e2e.DynamicClient(t, up.Config(t))
	e2e.Define(t, client, group)
	t.Cleanup(func() {
		if err := client.Resource(e2e.Definitions).Delete(context.Background(), "widgets."+group, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	return &watchTest{up: up, client: up.Client(t), group: group}
}

// resources returns the kinds of a collection of each server in a namespace, by its path.
func (w *watchTest) resources(ns string) map[string]string {
	return map[string]string{
		"/api/v1/namespaces/" + ns + "/secrets": "Secret", "/apis/" + w.group + "/v1/namespaces/" + ns + "/widgets": "Widget",
	}
}

// write creates, patches or deletes an object of a collection.
func (w *watchTest) write(t *testing.T, method, path, name string) {
	t.Helper()
	body, contentType := "", "application/json"
	switch method {
	case http.MethodPost:
		body = fmt.Sprintf(`{"metadata":{"name":%q}}`, name)
		if strings.HasPrefix(path, "/apis/") {
			body = fmt.Sprintf(`{"apiVersion":"%s/v1","kind":"Widget","metadata":{"name":%q}}`, w.group, name)
		}
	case http.MethodPatch:
		body, contentType = `{"metadata":{"labels":{"changed":"yes"}}}`, "application/merge-patch+json"
		fallthrough
	default:
		path += "/" + name
	}
	if code, answer := w.up.Do(t, method, path, body, "Content-Type: "+contentType); code >= 300 {
		t.Fatalf("%s %s: %d %s", method, path, code, answer)
	}
}

// open opens a watch; it ends with the test.
func (w *watchTest) open(t *testing.T, cfg *rest.Config, path string) *http.Response {
	t.Helper()
	client := e2e.HTTPClient(t, cfg)
	client.Timeout = 0
	ctx, cancel := context.WithTimeout(t.Context(), await.Patience())
	t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.up.Endpoint+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	return resp
}

// expectEvents reads events and compares them with want, "TYPE kind name".
func expectEvents(t *testing.T, events *json.Decoder, want ...string) {
	t.Helper()
	for _, text := range want {
		var e struct {
			Type   string
			Object metav1.PartialObjectMetadata
		}
		if err := events.Decode(&e); err != nil {
			t.Fatalf("instead of %s: %v", text, err)
		}
		if got := strings.TrimSpace(e.Type + " " + e.Object.Kind + " " + e.Object.Name); got != text {
			t.Fatalf("event %s, want %s", got, text)
		}
	}
}

// Over a WebSocket through the gateway each event is a message, text for JSON and binary
// otherwise.
func TestWatchOverWebSocket(t *testing.T) {
	t.Parallel()
	w := newWatchTest(t, "websocket.example.com")
	ns := e2e.NewNamespace(t, w.client)
	for path, kind := range w.resources(ns) {
		ws := w.dial(t, path+"?watch=1", "")
		for i, method := range []string{http.MethodPost, http.MethodPatch, http.MethodDelete} {
			w.write(t, method, path, "a")
			data, payload := receive(t, ws)
			if payload != websocket.TextFrame {
				t.Errorf("%s: a frame of type %d, want text", path, payload)
			}
			expectEvents(t, json.NewDecoder(strings.NewReader(data)), []string{"ADDED", "MODIFIED", "DELETED"}[i]+" "+kind+" a")
		}
	}
	secrets := "/api/v1/namespaces/" + ns + "/secrets"
	ws := w.dial(t, secrets+"?watch=1", "application/vnd.kubernetes.protobuf;stream=watch")
	w.write(t, http.MethodPost, secrets, "b")
	if data, payload := receive(t, ws); payload != websocket.BinaryFrame || !strings.Contains(data, "ADDED") || !strings.Contains(data, "k8s\x00") {
		t.Errorf("in protobuf: type %d %q", payload, data)
	}
}

func (w *watchTest) dial(t *testing.T, path, accept string) *websocket.Conn {
	t.Helper()
	config, err := websocket.NewConfig("wss"+strings.TrimPrefix(w.up.Endpoint, "https")+path, w.up.Endpoint)
	if err != nil {
		t.Fatal(err)
	}
	if config.TlsConfig, err = rest.TLSConfigFor(w.up.Config(t)); err != nil {
		t.Fatal(err)
	}
	if accept != "" {
		config.Header.Set("Accept", accept)
	}
	ctx, cancel := context.WithTimeout(t.Context(), await.Patience())
	defer cancel()
	ws, err := config.DialContext(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ws.Close() })
	if err := ws.SetDeadline(time.Now().Add(await.Patience())); err != nil {
		t.Fatal(err)
	}
	return ws
}

// receive returns one message and its frame type.
func receive(t *testing.T, ws *websocket.Conn) (data string, payload byte) {
	t.Helper()
	codec := websocket.Codec{Unmarshal: func(message []byte, typ byte, _ any) error {
		data, payload = string(message), typ
		return nil
	}}
	if err := codec.Receive(ws, nil); err != nil {
		t.Fatal(err)
	}
	return data, payload
}

// user returns the configuration of a user with one rule in the namespace.
func (w *watchTest) user(t *testing.T, ns, name string, rule rbacv1.PolicyRule) *rest.Config {
	t.Helper()
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{rule}}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}},
	}
	if _, err := w.client.RbacV1().Roles(ns).Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.client.RbacV1().RoleBindings(ns).Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	cfg := w.up.Config(t)
	cfg.Impersonate.UserName = name
	return cfg
}

// A path below /watch/ is authorized and served as a watch, whatever its query, and the path of
// an object as a watch of that name only.
func TestLegacyWatchPaths(t *testing.T) {
	t.Parallel()
	w := newWatchTest(t, "legacy.example.com")
	ns := e2e.NewNamespace(t, w.client)
	rule := rbacv1.PolicyRule{Verbs: []string{"watch"}, APIGroups: []string{"", w.group}, Resources: []string{"secrets", "widgets"}}
	all := w.user(t, ns, "watcher-of-all", rule)
	rule.ResourceNames = []string{"a"}
	one := w.user(t, ns, "watcher-of-one", rule)
	for path, kind := range w.resources(ns) {
		w.write(t, http.MethodPost, path, "a")
		base, in, _ := strings.Cut(path, "/namespaces/")
		in, res := "/namespaces/"+in, in[strings.LastIndex(in, "/")+1:]
		e2e.Eventually(t, "the rights apply", func() error {
			resp := w.open(t, one, base+"/watch"+in+"/a")
			defer resp.Body.Close()
			if resp.StatusCode != http.StatusOK {
				return fmt.Errorf("%s: %s", in, resp.Status)
			}
			return nil
		})
		for _, tc := range []struct {
			path               string
			ofAll, ofOne, root int
		}{
			{"/watch" + in, 200, 403, 200},
			{"/watch" + in + "?watch=false", 200, 403, 200},
			{"/watch" + in + "/a", 200, 200, 200},
			{"/watch" + in + "/b", 200, 403, 200},
			{in + "?watch", 200, 403, 200},
			{in + "?watch=1&fieldSelector=metadata.name=a", 200, 200, 200},
			{in, 403, 403, 200},
			{in + "?watch=false", 403, 403, 200},
			{in + "/a", 403, 403, 200},
			{"/watch/" + res, 403, 403, 200},
			{"/watch/namespaces/default/" + res, 403, 403, 200},
			{"/watch/namespaces/default/" + res + "/a", 403, 403, 200},
			{"/watch" + in + "/a?fieldSelector=metadata.name=b", 400, 400, 400},
		} {
			for cfg, want := range map[*rest.Config]int{all: tc.ofAll, one: tc.ofOne, w.up.Config(t): tc.root} {
				resp := w.open(t, cfg, base+tc.path)
				if resp.StatusCode != want {
					t.Errorf("%s as %q: %s, want %d", base+tc.path, cfg.Impersonate.UserName, resp.Status, want)
				}
				resp.Body.Close()
			}
		}
		ofOne := json.NewDecoder(w.open(t, one, base+"/watch"+in+"/a").Body)
		expectEvents(t, ofOne, "ADDED "+kind+" a")
		w.write(t, http.MethodPost, path, "b")
		w.write(t, http.MethodPatch, path, "a")
		expectEvents(t, ofOne, "MODIFIED "+kind+" a")
	}
}

// A typed client in protobuf gets the objects of a watch-list, the bookmark behind them, and
// every change.
func TestProtobufWatchList(t *testing.T) {
	t.Parallel()
	cfg := e2e.SharedInstallation(t).Config(t)
	cfg.ContentType, cfg.AcceptContentTypes = "application/vnd.kubernetes.protobuf", "application/vnd.kubernetes.protobuf"
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	secrets := client.CoreV1().Secrets(e2e.NewNamespace(t, client))
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Data: map[string][]byte{"k": {0, 255}}}
	if _, err := secrets.Create(t.Context(), s, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	stream, err := secrets.Watch(t.Context(), metav1.ListOptions{
		AllowWatchBookmarks: true, SendInitialEvents: new(true), ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Stop()
	expect := func(typ watch.EventType, data string) *corev1.Secret {
		t.Helper()
		e := <-stream.ResultChan()
		got, ok := e.Object.(*corev1.Secret)
		if e.Type != typ || !ok || string(got.Data["k"]) != data {
			t.Fatalf("event %s %v, want %s with %q", e.Type, e.Object, typ, data)
		}
		return got
	}
	expect(watch.Added, "\x00\xff")
	if bookmark := expect(watch.Bookmark, ""); bookmark.Annotations[metav1.InitialEventsAnnotationKey] != "true" || bookmark.ResourceVersion == "" {
		t.Errorf("bookmark %+v", bookmark)
	}
	if _, err := secrets.Patch(t.Context(), "a", types.MergePatchType, []byte(`{"data":{"k":"eA=="}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	changed := expect(watch.Modified, "x")
	if err := secrets.Delete(t.Context(), "a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if gone := expect(watch.Deleted, "x"); gone.ResourceVersion == changed.ResourceVersion {
		t.Error("the deletion has the revision of the last update")
	}
}
