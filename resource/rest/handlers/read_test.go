package handlers

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"

	"portico/internal/testing/memstore"
	"portico/resource"
	"portico/resource/rest"
	"portico/resource/rest/resttest"
)

// bench is an API over a store in memory behind an HTTP server.
type bench struct {
	*httptest.Server
	t          testing.TB
	configMaps *rest.Resource
	secrets    *rest.Resource
}

func newBench(t testing.TB, configure ...func(*Config)) *bench {
	t.Helper()
	storage := memstore.New()
	serve := func(k *rest.Kind) *rest.Resource { return &rest.Resource{Kind: k, Store: storage.Store(&k.Info)} }
	b := &bench{t: t, configMaps: serve(resttest.ConfigMaps()), secrets: serve(resttest.Secrets())}
	cfg := Config{Resources: []*rest.Resource{b.configMaps, b.secrets}}
	for _, c := range configure {
		c(&cfg)
	}
	api := New(cfg)
	b.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		act := resource.ParseAction(r)
		act.User = &resource.User{Name: "alice"}
		api.ServeHTTP(w, r.WithContext(resource.WithAction(r.Context(), act)))
	}))
	t.Cleanup(b.Close)
	return b
}

// put stores an object and returns it.
func (b *bench) put(res *rest.Resource, obj rest.Object) *resource.Object {
	b.t.Helper()
	o, err := res.Codec.EncodeStored(obj)
	if err != nil {
		b.t.Fatal(err)
	}
	o, err = res.Store.Update(b.t.Context(), o.Key(), func(*resource.Object) (resource.Mutation, error) {
		return resource.Mutation{Object: o}, nil
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return o
}

// do sends a request; headers are name, value pairs.
func (b *bench) do(method, path string, headers ...string) (*http.Response, string) {
	b.t.Helper()
	r, err := http.NewRequestWithContext(b.t.Context(), method, b.URL+path, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	// Tests of compression request it themselves.
	client := &http.Client{Transport: &http.Transport{DisableCompression: true}}
	b.t.Cleanup(client.CloseIdleConnections)
	resp, err := client.Do(r)
	if err != nil {
		b.t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return resp, string(data)
}

const inDefault = "/api/v1/namespaces/default/"

func TestGet(t *testing.T) {
	b := newBench(t)
	b.put(b.configMaps, resttest.ConfigMap("a"))
	const whole = `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a","namespace":"default","uid":"u-1","resourceVersion":"%s",` +
		`"creationTimestamp":"2026-01-02T03:04:05Z","labels":{"name":"a"}},"data":{"\u003ckey\u003e":"value of a"}}` + "\n"
	resp, body := b.do("GET", inDefault+"configmaps/a")
	var got corev1.ConfigMap
	if err := json.Unmarshal([]byte(body), &got); err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf(whole, got.ResourceVersion); resp.StatusCode != 200 || body != want || got.ResourceVersion == "" {
		t.Fatalf("%s: %s, want %s", resp.Status, body, want)
	}
	if ct := resp.Header.Get("Content-Type"); ct != "application/json" {
		t.Errorf("content type %q", ct)
	}

	if _, body = b.do("GET", inDefault+"configmaps/a?pretty=1"); !strings.HasPrefix(body, "{\n  \"kind\": \"ConfigMap\",\n") || !strings.HasSuffix(body, "\n}\n") {
		t.Errorf("pretty: %s", body)
	}
	if resp, body = b.do("GET", inDefault+"configmaps/a", "Accept", runtime.ContentTypeYAML); !strings.Contains(body, "\nkind: ConfigMap\n") || resp.Header.Get("Content-Type") != runtime.ContentTypeYAML {
		t.Errorf("YAML: %s", body)
	}
	if _, body = b.do("GET", inDefault+"configmaps/a?resourceVersion=0"); !strings.Contains(body, `"name":"a"`) {
		t.Errorf("any version: %s", body)
	}
	_, body = b.do("GET", inDefault+"configmaps/a", "Accept", runtime.ContentTypeProtobuf)
	decoder := protobuf.NewSerializer(resttest.CoreScheme(), resttest.CoreScheme())
	obj, gvk, err := decoder.Decode([]byte(body), nil, nil)
	if err != nil || gvk.Kind != "ConfigMap" || obj.(*corev1.ConfigMap).ResourceVersion != got.ResourceVersion {
		t.Errorf("protobuf: %+v, %v", obj, err)
	}
}

func TestReadErrors(t *testing.T) {
	b := newBench(t)
	b.put(b.configMaps, resttest.ConfigMap("a"))
	for _, c := range []struct {
		method, path, accept string
		code                 int
		message              string
	}{
		{"GET", inDefault + "configmaps/b", "", 404, `configmaps "b" not found`},
		{"GET", inDefault + "configmaps/a?resourceVersion=x", "", 400, `invalid resource version: resourceVersion: Invalid value: "x"`},
		{"GET", inDefault + "configmaps/a?export=true", "", 400, "the export parameter, deprecated since v1.14, is no longer supported"},
		{"GET", inDefault + "configmaps?export", "", 400, "the export parameter, deprecated since v1.14, is no longer supported"},
		{"GET", inDefault + "configmaps/a", "text/html", 406, "only the following media types are accepted: application/json, application/yaml, application/vnd.kubernetes.protobuf"},
		{"GET", "/api/v1/configmaps?watch=1", runtime.ContentTypeYAML, 406, "only the following media types are accepted: application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch"},
		{"GET", "/api/v1/configmaps?watch=1&sendInitialEvents=true", "", 422, `ListOptions.meta.k8s.io "" is invalid: resourceVersionMatch: Forbidden: sendInitialEvents requires`},
		{"GET", "/api/v1/configmaps?continue=!", "", 400, "invalid continue token: "},
		{"POST", "/api/v1/configmaps", "", 405, `create is not supported on resources of kind "configmaps"`},
		{"DELETE", "/api/v1/configmaps", "", 405, `deletecollection is not supported on resources of kind "configmaps"`},
		{"PUT", inDefault + "configmaps", "", 405, `update is not supported on resources of kind "configmaps"`},
		{"POST", inDefault + "configmaps/a", "", 405, `create is not supported on resources of kind "configmaps"`},
		{"POST", "/api/v1/watch/configmaps", "", 405, `watch is not supported on resources of kind "configmaps"`},
		{"DELETE", inDefault + "configmaps/a", "text/html", 406, "only the following media types are accepted"},
	} {
		resp, body := b.do(c.method, c.path, "Accept", c.accept)
		var status metav1.Status
		if err := json.Unmarshal([]byte(body), &status); err != nil {
			t.Errorf("%s %s: %s: %v", c.method, c.path, body, err)
			continue
		}
		if resp.StatusCode != c.code || int(status.Code) != c.code || !strings.HasPrefix(status.Message, c.message) ||
			status.Kind != "Status" || resp.Header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s %s: %s %s, want %d %s", c.method, c.path, resp.Status, body, c.code, c.message)
		}
		if c.code == 406 && !strings.HasPrefix(body, "{\n  ") {
			t.Errorf("%s %s: the error of a failed negotiation is not indented: %s", c.method, c.path, body)
		}
	}
	if o, err := b.configMaps.Store.Get(t.Context(), resource.Key{Namespace: "default", Name: "a"}, resource.At{}); err != nil || o == nil {
		t.Errorf("a request that was refused has changed something: %v", err)
	}
	if resp, _ := b.do("HEAD", inDefault+"configmaps/a"); resp.StatusCode != 405 {
		t.Errorf("HEAD: %s", resp.Status)
	}
	for _, path := range []string{"/api/v1/pods", "/api/v2/configmaps", "/apis/x.io/v1/configmaps", "/api/v1/configmaps/a", "/api/v1/proxy/configmaps", "/other",
		inDefault + "configmaps/a/status"} {
		if resp, body := b.do("GET", path); resp.StatusCode != 404 || body != "404 page not found\n" || !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/plain") {
			t.Errorf("GET %s: %s %s", path, resp.Status, body)
		}
	}
}

func TestList(t *testing.T) {
	b := newBench(t)
	_, body := b.do("GET", inDefault+"configmaps")
	var list corev1.ConfigMapList
	if err := json.Unmarshal([]byte(body), &list); err != nil {
		t.Fatal(err)
	}
	if want := `{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"` + list.ResourceVersion + `"},"items":[]}` + "\n"; body != want || list.ResourceVersion == "" {
		t.Fatalf("empty list %s, want %s", body, want)
	}
	for _, name := range []string{"c", "a", "b"} {
		b.put(b.configMaps, resttest.ConfigMap(name))
	}
	names := func(body string) string {
		t.Helper()
		var list corev1.ConfigMapList
		if err := json.Unmarshal([]byte(body), &list); err != nil {
			t.Fatal(err, body)
		}
		s := ""
		for _, item := range list.Items {
			s += item.Name
			if item.Kind != "" || item.APIVersion != "" {
				t.Errorf("item with type: %s", body)
			}
		}
		if list.RemainingItemCount != nil {
			s += fmt.Sprintf("+%d", *list.RemainingItemCount)
		}
		return s
	}
	for query, want := range map[string]string{
		"":                                  "abc",
		"?labelSelector=name+in+(a,c)":      "ac",
		"?fieldSelector=metadata.name%3Db":  "b",
		"?fieldSelector=metadata.name!%3Db": "ac",
		"?limit=2":                          "ab+1",
		"?limit=2&resourceVersion=0":        "abc",
	} {
		if _, body := b.do("GET", inDefault+"configmaps"+query); names(body) != want {
			t.Errorf("%s: %s, want %s", query, body, want)
		}
	}
	_, body = b.do("GET", inDefault+"configmaps?limit=2")
	if err := json.Unmarshal([]byte(body), &list); err != nil {
		t.Fatal(err)
	}
	if _, body = b.do("GET", inDefault+"configmaps?limit=2&continue="+list.Continue); names(body) != "c" || strings.Contains(body, `"continue"`) {
		t.Errorf("second page: %s", body)
	}
	if _, body = b.do("GET", inDefault+"configmaps?pretty=true"); !strings.HasPrefix(body, "{\n  \"kind\": \"ConfigMapList\",\n  \"apiVersion\": \"v1\",\n  \"metadata\": {\n") || names(body) != "abc" {
		t.Errorf("pretty: %s", body)
	}
	_, body = b.do("GET", inDefault+"configmaps", "Accept", runtime.ContentTypeProtobuf)
	obj, _, err := protobuf.NewSerializer(resttest.CoreScheme(), resttest.CoreScheme()).Decode([]byte(body), nil, nil)
	if err != nil || len(obj.(*corev1.ConfigMapList).Items) != 3 || obj.(*corev1.ConfigMapList).Items[2].Data["<key>"] != "value of c" {
		t.Errorf("protobuf: %+v, %v", obj, err)
	}
}

func TestListByOwnField(t *testing.T) {
	b := newBench(t)
	b.put(b.secrets, resttest.Secret("a"))
	other := resttest.Secret("b")
	other.Type = corev1.SecretTypeTLS
	b.put(b.secrets, other)
	if _, body := b.do("GET", inDefault+"secrets?fieldSelector=type%3Dkubernetes.io/tls"); strings.Contains(body, `"name":"a"`) || !strings.Contains(body, `"name":"b"`) {
		t.Errorf("got %s", body)
	}
}

func TestListFailsAsAWholeForABadObject(t *testing.T) {
	b := newBench(t)
	b.put(b.configMaps, resttest.ConfigMap("a"))
	bad, err := resource.Parse([]byte(`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"b","namespace":"default"},"data":[]}`))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.configMaps.Store.Create(t.Context(), bad.Key(), bad, 0); err != nil {
		t.Fatal(err)
	}
	resp, body := b.do("GET", inDefault+"configmaps", "Accept", runtime.ContentTypeProtobuf+","+runtime.ContentTypeJSON+";q=0.5")
	if resp.StatusCode != 500 || !strings.Contains(body, string(metav1.StatusReasonStoreReadError)) {
		t.Errorf("%s %q", resp.Status, body)
	}
	if resp, _ := b.do("GET", inDefault+"configmaps/a"); resp.StatusCode != 200 {
		t.Errorf("a good object beside a bad one: %s", resp.Status)
	}
}
