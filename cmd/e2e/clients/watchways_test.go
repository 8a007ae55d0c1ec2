package clients

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/net/websocket"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"portico/cmd/e2e"
)

// overWebSocket checks that each event is a message, text for JSON and binary otherwise.
func (w *watchTest) overWebSocket(t *testing.T) {
	ns := e2e.NewNamespace(t, w.client)
	for _, path := range w.resources(ns) {
		kind := map[bool]string{true: "Widget", false: "Secret"}[strings.HasPrefix(path, "/apis/")]
		ws := w.dial(t, path+"?watch=1", "")
		for _, method := range []string{http.MethodPost, http.MethodPatch, http.MethodDelete} {
			w.write(t, method, path, "a")
		}
		next := func(e *watched) error {
			data, payload, err := receive(ws)
			if err != nil {
				return err
			}
			if payload != websocket.TextFrame {
				return fmt.Errorf("a frame of type %d", payload)
			}
			return json.Unmarshal(data, e)
		}
		expectEvents(t, next, "ADDED "+kind+" a", "MODIFIED "+kind+" a", "DELETED "+kind+" a")
	}
	ws := w.dial(t, w.resources(ns)[0]+"?watch=1", "application/vnd.kubernetes.protobuf;stream=watch")
	w.write(t, http.MethodPost, w.resources(ns)[0], "b")
	data, payload, err := receive(ws)
	if err != nil || payload != websocket.BinaryFrame || !strings.Contains(string(data), "ADDED") || !strings.Contains(string(data), "k8s\x00") {
		t.Errorf("in protobuf: type %d %q, %v", payload, data, err)
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
	ctx, cancel := context.WithTimeout(t.Context(), e2e.Patience)
	defer cancel()
	ws, err := config.DialContext(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ws.Close() })
	if deadline, ok := ctx.Deadline(); ok {
		if err := ws.SetDeadline(deadline); err != nil {
			t.Fatal(err)
		}
	}
	return ws
}

// receive returns one message and its frame type.
func receive(ws *websocket.Conn) (data []byte, payload byte, err error) {
	codec := websocket.Codec{Unmarshal: func(message []byte, typ byte, _ any) error {
		data, payload = message, typ
		return nil
	}}
	err = codec.Receive(ws, nil)
	return data, payload, err
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

// legacyPaths checks that a path below /watch/ is authorized and served as a watch, whatever its
// query, and the path of an object as a watch of that name only.
func (w *watchTest) legacyPaths(t *testing.T) {
	ns := e2e.NewNamespace(t, w.client)
	rule := rbacv1.PolicyRule{Verbs: []string{"watch"}, APIGroups: []string{"", w.group}, Resources: []string{"secrets", "widgets"}}
	all := w.user(t, ns, "watcher-of-all", rule)
	rule.ResourceNames = []string{"a"}
	one := w.user(t, ns, "watcher-of-one", rule)
	for _, path := range w.resources(ns) {
		w.write(t, http.MethodPost, path, "a")
	}
	for _, base := range []string{"/api/v1", "/apis/" + w.group + "/v1"} {
		res, kind := "secrets", "Secret"
		if base != "/api/v1" {
			res, kind = "widgets", "Widget"
		}
		in := "/namespaces/" + ns + "/" + res
		e2e.Eventually(t, "the rights apply", func() error {
			resp := w.open(t, one, base+"/watch"+in+"/a", nil)
			defer resp.Body.Close()
			if resp.StatusCode != http.StatusOK {
				return errors.New(resp.Status)
			}
			return nil
		})
		for _, tc := range []struct {
			path               string
			ofAll, ofOne, root int
		}{
			{base + "/watch" + in, 200, 403, 200},
			{base + "/watch" + in + "?watch=false", 200, 403, 200},
			{base + "/watch" + in + "/a", 200, 200, 200},
			{base + "/watch" + in + "/b", 200, 403, 200},
			{base + in + "?watch", 200, 403, 200},
			{base + in + "?watch=1&fieldSelector=metadata.name=a", 200, 200, 200},
			{base + in, 403, 403, 200},
			{base + in + "?watch=false", 403, 403, 200},
			{base + in + "/a", 403, 403, 200},
			{base + "/watch/" + res, 403, 403, 200},
			{base + "/watch/namespaces/default/" + res, 403, 403, 200},
			{base + "/watch/namespaces/default/" + res + "/a", 403, 403, 200},
			{base + "/watch" + in + "/a?fieldSelector=metadata.name=b", 400, 400, 400},
		} {
			for cfg, want := range map[*rest.Config]int{all: tc.ofAll, one: tc.ofOne, w.up.Config(t): tc.root} {
				resp := w.open(t, cfg, tc.path, nil)
				if resp.StatusCode != want {
					t.Errorf("%s as %q: %s, want %d", tc.path, cfg.Impersonate.UserName, resp.Status, want)
				}
				resp.Body.Close()
			}
		}
		next := events(w.open(t, one, base+"/watch"+in+"/a", nil).Body)
		expectEvents(t, next, "ADDED "+kind+" a")
		w.write(t, http.MethodPost, base+in, "b")
		w.write(t, http.MethodPatch, base+in, "a")
		expectEvents(t, next, "MODIFIED "+kind+" a")
	}
}

// kubectlTables checks that kubectl prints events as the servers' tables.
func (w *watchTest) kubectlTables(t *testing.T) {
	ns := e2e.NewNamespace(t, w.client)
	for _, path := range w.resources(ns) {
		res := path[strings.LastIndex(path, "/")+1:]
		w.write(t, http.MethodPost, path, "a")
		ctx, cancel := context.WithTimeout(t.Context(), e2e.Patience)
		defer cancel()
		qualified := map[string]string{"secrets": "secrets", "widgets": "widgets." + w.group}[res]
		cmd := w.up.KubectlCommand(ctx, t, "get", qualified, "-n", ns, "-w", "--output-watch-events")
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		cmd.Stderr = cmd.Stdout
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		expect := func(patterns ...string) {
			t.Helper()
			for _, pattern := range patterns {
				if !lines.Scan() || !regexp.MustCompile("^"+pattern+"$").MatchString(lines.Text()) {
					t.Fatalf("kubectl prints %q, want %q", lines.Text(), pattern)
				}
			}
		}
		head, row := `EVENT +NAME +TYPE +DATA +AGE`, ` +Opaque +0 +\d+s`
		if res == "widgets" {
			head, row = `EVENT +NAME +AGE`, ` +\d+s`
		}
		expect(head, "ADDED +a"+row)
		w.write(t, http.MethodPatch, path, "a")
		w.write(t, http.MethodPost, path, "b")
		w.write(t, http.MethodDelete, path, "a")
		expect("MODIFIED +a"+row, "ADDED +b"+row, "DELETED +a"+row)
		cancel()
		_ = cmd.Wait() // its error is that it was killed
	}
}

// protobuf checks a watch-list of a typed client in protobuf.
func (w *watchTest) protobuf(t *testing.T) {
	cfg := w.up.Config(t)
	cfg.ContentType, cfg.AcceptContentTypes = "application/vnd.kubernetes.protobuf", "application/vnd.kubernetes.protobuf"
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ns := e2e.NewNamespace(t, client)
	secrets := client.CoreV1().Secrets(ns)
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Data: map[string][]byte{"k": {0, 255}}}
	if _, err := secrets.Create(t.Context(), s, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	initial := true
	stream, err := secrets.Watch(t.Context(), metav1.ListOptions{
		AllowWatchBookmarks: true, SendInitialEvents: &initial, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
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
