package openapi

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
)

// The index has, beside group/versions, the documents of discovery, of the version and
// of the service-account issuer, as kube-apiserver's has; each can be fetched.
func TestDocumentsOfPaths(t *testing.T) {
	t.Parallel()
	g := startIndexing(t, startDescribing(t, "crd", "a.example.com"))
	g.check(t)
	urls := g.urls(t)
	for key, operation := range map[string]string{
		"api": "getCoreAPIVersions", "apis": "getAPIVersions", "version": "getCodeVersion",
		"apis/a.example.com": "getAExampleComAPIGroup", "apis/apiregistration.k8s.io": "getApiregistrationAPIGroup",
	} {
		w := g.get(urls[key])
		var doc struct {
			Paths map[string]struct {
				Get struct{ OperationID string }
			}
			Components struct{ Schemas map[string]any }
		}
		if err := json.Unmarshal(w.Body.Bytes(), &doc); err != nil || w.Code != http.StatusOK || !strings.Contains(w.Header().Get("Cache-Control"), "immutable") {
			t.Errorf("%s: %v, %d %v %s", key, err, w.Code, w.Header(), w.Body)
			continue
		}
		if doc.Paths["/"+key+"/"].Get.OperationID != operation || len(doc.Components.Schemas) == 0 {
			t.Errorf("%s: %s", key, w.Body)
		}
		if w := g.get(urls[key], "Accept", "application/com.github.proto-openapi.spec.v3@v1.0+protobuf"); w.Code != http.StatusOK || w.Body.Len() == 0 {
			t.Errorf("%s as protobuf: %d %s", key, w.Code, w.Body)
		}
		if w := g.get("/openapi/v3/" + key + "?hash=OLD"); w.Code != http.StatusMovedPermanently || w.Header().Get("Location") != urls[key] {
			t.Errorf("%s under another hash: %d %v", key, w.Code, w.Header())
		}
	}
	for _, key := range []string{"openid/v1/jwks", ".well-known/openid-configuration", "apis/none.example.com"} {
		if w := g.get("/openapi/v3/" + key); w.Code != http.StatusNotFound || urls[key] != "" {
			t.Errorf("%s, which is not served: %d, %q", key, w.Code, urls[key])
		}
	}
	issuing := New(Config{Own: g.cfg.Own, Index: g.cfg.Index, Table: g.cfg.Table, Verdict: g.cfg.Verdict, Issuer: true})
	issuer := &indexing{Documents: issuing, sync: g.sync}
	for _, key := range []string{"openid/v1/jwks", ".well-known/openid-configuration"} {
		if w := issuer.get("/openapi/v3/" + key); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), `"type":"string"`) {
			t.Errorf("%s: %d %s", key, w.Code, w.Body)
		}
	}
}
