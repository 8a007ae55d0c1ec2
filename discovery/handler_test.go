package discovery

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"

	apidiscovery "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

const (
	mediaJSON     = "application/json"
	mediaYAML     = "application/yaml"
	mediaProtobuf = "application/vnd.kubernetes.protobuf"
	acceptV2      = mediaJSON + aggregatedParams
)

// sample returns a snapshot with the core group, a group that answers and one that never did.
func sample(t *testing.T) *Snapshot {
	t.Helper()
	pods := []metav1.APIResource{{
		Name: "pods", SingularName: "pod", Kind: "Pod", Namespaced: true, Verbs: fullVerbs, ShortNames: []string{"po"},
	}}
	deployments := []metav1.APIResource{{Name: "deployments", SingularName: "deployment", Kind: "Deployment", Namespaced: true, Verbs: fullVerbs}}
	return build(t,
		GroupVersion{Version: "v1", GroupPriority: 18000, VersionPriority: 1, Legacy: pods, Aggregated: Aggregate("", "v1", pods)},
		GroupVersion{Group: "apps", Version: "v1", GroupPriority: 17800, VersionPriority: 15, Legacy: deployments, Aggregated: Aggregate("apps", "v1", deployments)},
		GroupVersion{Group: "away.example.com", Version: "v1", GroupPriority: 1000, VersionPriority: 15, Unknown: true},
	)
}

func build(t *testing.T, gvs ...GroupVersion) *Snapshot {
	t.Helper()
	s, err := Build(gvs, "gw.example.com:6443")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func ask(s *Snapshot, path string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, path, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	NewHandler(Fixed(s)).ServeHTTP(w, r)
	return w
}

// The Accept header chooses the encoding and, where it exists, the aggregated form.
func TestNegotiation(t *testing.T) {
	s := sample(t)
	for name, c := range map[string]struct {
		path, accept string
		code         int
		contentType  string
	}{
		"no Accept":                     {"/apis", "", 200, mediaJSON},
		"v2":                            {"/apis", acceptV2, 200, acceptV2},
		"v2, parameters in other order": {"/apis", "application/json;as=APIGroupDiscoveryList;v=v2;g=apidiscovery.k8s.io", 200, acceptV2},
		"what client-go sends":          {"/api", acceptV2 + ",application/json", 200, acceptV2},
		"no-peer profile":               {"/apis", acceptV2 + ";profile=nopeer," + acceptV2 + ",application/json", 200, acceptV2},
		"v2beta1 falls back":            {"/apis", "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json", 200, mediaJSON},
		"v2beta1 before v2":             {"/apis", "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList," + acceptV2, 200, acceptV2},
		"v2 where there is none":        {"/apis/apps/v1", acceptV2 + ",application/json", 200, mediaJSON},
		"protobuf":                      {"/apis", mediaProtobuf, 200, mediaProtobuf},
		"v2 as protobuf":                {"/apis", mediaProtobuf + aggregatedParams, 200, mediaProtobuf + aggregatedParams},
		"yaml":                          {"/apis/apps", mediaYAML, 200, mediaYAML},
		"v2 as yaml":                    {"/apis", mediaYAML + aggregatedParams + "," + mediaJSON, 200, mediaJSON},
		"a Table":                       {"/apis", "application/json;as=Table;v=v1;g=meta.k8s.io,application/yaml", 200, mediaYAML},
		"nothing acceptable":            {"/apis", "text/html", 406, mediaJSON},
	} {
		t.Run(name, func(t *testing.T) {
			var header []string
			if c.accept != "" {
				header = []string{"Accept", c.accept}
			}
			w := ask(s, c.path, header...)
			if w.Code != c.code || w.Header().Get("Content-Type") != c.contentType {
				t.Fatalf("got %d %q, want %d %q\n%s", w.Code, w.Header().Get("Content-Type"), c.code, c.contentType, w.Body)
			}
		})
	}
	w := ask(s, "/apis", "Accept", "text/html")
	const want = "only the following media types are accepted: application/json, application/yaml, application/vnd.kubernetes.protobuf"
	if status := decode[metav1.Status](t, w.Body.Bytes()); status.Message != want || status.Reason != metav1.StatusReasonNotAcceptable {
		t.Errorf("406 says %+v", status)
	}
}

func decode[T any](t *testing.T, data []byte) *T {
	t.Helper()
	out := new(T)
	if err := json.Unmarshal(data, out); err != nil {
		t.Fatalf("decode %q: %v", data, err)
	}
	return out
}

// YAML and protobuf have the content of the JSON form.
func TestEncodingsAreEqual(t *testing.T) {
	s := sample(t)
	fromJSON := ask(s, "/apis", "Accept", mediaJSON).Body.Bytes()
	asYAML, err := yaml.YAMLToJSON(ask(s, "/apis", "Accept", mediaYAML).Body.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(decode[any](t, fromJSON), decode[any](t, asYAML)) {
		t.Errorf("YAML is\n%s\nwant\n%s", asYAML, fromJSON)
	}
	raw := ask(s, "/apis", "Accept", mediaProtobuf+aggregatedParams).Body.Bytes()
	envelope, ok := bytes.CutPrefix(raw, []byte("k8s\x00"))
	if !ok {
		t.Fatalf("no protobuf envelope: %q", raw[:8])
	}
	var unknown runtime.Unknown
	if err := unknown.Unmarshal(envelope); err != nil {
		t.Fatal(err)
	}
	var list apidiscovery.APIGroupDiscoveryList
	if err := list.Unmarshal(unknown.Raw); err != nil {
		t.Fatal(err)
	}
	if unknown.Kind != "APIGroupDiscoveryList" || unknown.APIVersion != "apidiscovery.k8s.io/v2" || len(list.Items) != 2 {
		t.Errorf("protobuf is %s %s with %d items", unknown.APIVersion, unknown.Kind, len(list.Items))
	}
}

// Every form has an ETag of its own (docs/wire.md 2.3), which depends on the content only.
func TestETag(t *testing.T) {
	s := sample(t)
	first := ask(s, "/apis", "Accept", acceptV2)
	etag := first.Header().Get("ETag")
	if len(etag) != 130 || etag[0] != '"' || strings.ToUpper(etag) != etag {
		t.Fatalf("ETag %q is not the quoted upper-hex SHA-512", etag)
	}
	if first.Header().Get("Vary") != "Accept" || first.Header().Get("Cache-Control") != "public" {
		t.Errorf("headers %v", first.Header())
	}
	for _, match := range []string{etag, "W/" + etag, `"X", ` + etag} {
		w := ask(s, "/apis", "Accept", acceptV2, "If-None-Match", match)
		if w.Code != http.StatusNotModified || w.Body.Len() != 0 || w.Header().Get("ETag") != etag {
			t.Errorf("If-None-Match %s: %d, %d bytes", match, w.Code, w.Body.Len())
		}
	}
	for _, accept := range []string{mediaJSON, mediaProtobuf + aggregatedParams} {
		other := ask(s, "/apis", "Accept", accept).Header().Get("ETag")
		if w := ask(s, "/apis", "Accept", accept, "If-None-Match", other); other == "" || w.Code != http.StatusNotModified || w.Body.Len() != 0 {
			t.Errorf("%s with its ETag %q: %d, %d bytes", accept, other, w.Code, w.Body.Len())
		}
		if w := ask(s, "/apis", "Accept", acceptV2, "If-None-Match", other); w.Code != http.StatusOK {
			t.Errorf("the aggregated form with the ETag of %s: %d", accept, w.Code)
		}
		if again := ask(sample(t), "/apis", "Accept", accept).Header().Get("ETag"); again != other {
			t.Errorf("%s: the same content has the ETags %s and %s", accept, other, again)
		}
	}
	if again := sample(t); again.ETag() != etag || !again.Equal(s) {
		t.Error("the same content has another ETag")
	}
	if other := build(t); other.ETag() == etag || other.Equal(s) {
		t.Error("other content has the same ETag")
	}
}

// Large documents are compressed, with the ETag of the uncompressed form.
func TestCompression(t *testing.T) {
	var kinds []metav1.APIResource
	for i := range 1000 {
		name := fmt.Sprintf("kind%ds", i)
		kinds = append(kinds, metav1.APIResource{Name: name, SingularName: name, Kind: name, Verbs: fullVerbs})
	}
	s := build(t, GroupVersion{Group: "example.com", Version: "v1", Legacy: kinds, Aggregated: Aggregate("example.com", "v1", kinds)})
	plain := ask(s, "/apis", "Accept", acceptV2)
	small := ask(s, "/apis", "Accept", acceptV2, "Accept-Encoding", "gzip")
	h := small.Header()
	if h.Get("Content-Encoding") != "gzip" || !slices.Equal(h.Values("Vary"), []string{"Accept", "Accept-Encoding"}) || h.Get("ETag") != plain.Header().Get("ETag") {
		t.Errorf("headers %v", h)
	}
	if w := ask(s, "/apis", "Accept", acceptV2, "Accept-Encoding", "gzip", "If-None-Match", h.Get("ETag")); w.Code != http.StatusNotModified || w.Body.Len() != 0 {
		t.Errorf("with its ETag: %d %v", w.Code, w.Header())
	}
	z, err := gzip.NewReader(small.Body)
	if err != nil {
		t.Fatal(err)
	}
	if data, err := io.ReadAll(z); err != nil || !bytes.Equal(data, plain.Body.Bytes()) {
		t.Errorf("%d bytes (%v), want %d", len(data), err, plain.Body.Len())
	}
}

// JSON is indented for clients that ask for it, and for curl.
func TestPretty(t *testing.T) {
	s := sample(t)
	for name, c := range map[string]struct {
		path   string
		header []string
		want   string
	}{
		"a client": {"/apis", []string{"User-Agent", "kubectl/v1.37"}, `{"kind":"APIGroupList",`},
		"curl":     {"/apis", []string{"User-Agent", "curl/8"}, "{\n  \"kind\": \"APIGroupList\",\n"},
		"Accept":   {"/apis", []string{"Accept", acceptV2 + ";pretty=1"}, "{\n  \"kind\": \"APIGroupDiscoveryList\",\n"},
		"yaml":     {"/apis?pretty=1", []string{"Accept", mediaYAML}, "apiVersion: v1\n"},
	} {
		if w := ask(s, c.path, c.header...); w.Code != 200 || !strings.HasPrefix(w.Body.String(), c.want) {
			t.Errorf("%s: %d %.100s", name, w.Code, w.Body)
		}
	}
}

// Paths without a document are 404, and a group/version of a server that never answered is 503,
// while its group is listed as stale.
func TestAbsentAndUnknown(t *testing.T) {
	s := sample(t)
	for _, path := range []string{"/apis/nobody", "/apis/apps/v2", "/api/v2", "/apis/apps/v1/deployments", "/other"} {
		w := ask(s, path)
		if w.Code != http.StatusNotFound || w.Body.String() != "404 page not found\n" {
			t.Errorf("%s: %d %q", path, w.Code, w.Body)
		}
	}
	w := ask(s, "/apis/away.example.com/v1")
	if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") != "" {
		t.Errorf("unknown group/version: %d %v", w.Code, w.Header())
	}
	// The group itself stays listed in every form.
	if w := ask(s, "/apis/away.example.com"); w.Code != http.StatusOK {
		t.Errorf("group of an unknown version: %d", w.Code)
	}
	list := decode[apidiscovery.APIGroupDiscoveryList](t, ask(s, "/apis", "Accept", acceptV2).Body.Bytes())
	if v := list.Items[1].Versions[0]; list.Items[1].Name != "away.example.com" || v.Freshness != apidiscovery.DiscoveryFreshnessStale {
		t.Errorf("unknown group in v2: %+v", list.Items[1])
	}
	if w := ask(nil, "/apis"); w.Code != http.StatusServiceUnavailable {
		t.Errorf("before the first snapshot: %d", w.Code)
	}
	r := httptest.NewRequest(http.MethodPost, "/apis", nil)
	post := httptest.NewRecorder()
	NewHandler(Fixed(s)).ServeHTTP(post, r)
	if post.Code != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d", post.Code)
	}
}

// The legacy documents have the members of kube-apiserver's, in their order.
func TestLegacyShapes(t *testing.T) {
	s := sample(t)
	for path, want := range map[string]string{
		"/api":          `{"kind":"APIVersions","versions":["v1"],"serverAddressByClientCIDRs":[{"clientCIDR":"0.0.0.0/0","serverAddress":"gw.example.com:6443"}]}`,
		"/apis/apps":    `{"kind":"APIGroup","apiVersion":"v1","name":"apps","versions":[{"groupVersion":"apps/v1","version":"v1"}],"preferredVersion":{"groupVersion":"apps/v1","version":"v1"}}`,
		"/apis/apps/v1": `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"apps/v1","resources":[{"name":"deployments","singularName":"deployment","namespaced":true,"kind":"Deployment","verbs":["create","delete","deletecollection","get","list","patch","update","watch"]}]}`,
	} {
		if got := strings.TrimSpace(ask(s, path).Body.String()); got != want {
			t.Errorf("%s:\n got %s\nwant %s", path, got, want)
		}
	}
	if core := ask(s, "/api/v1").Body.String(); !strings.HasPrefix(core, `{"kind":"APIResourceList","groupVersion":"v1"`) {
		t.Errorf("the core list names an apiVersion: %s", core)
	}
}
