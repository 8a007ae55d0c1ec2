package proxy

import (
	"net/http"
	"testing"
)

// A REST server gets no header in which proxies name users, clients or certificates, in
// any spelling, but the gateway's own.
func TestRESTHeaders(t *testing.T) {
	t.Parallel()
	var got http.Header
	front := restFront(t, "", func(_ http.ResponseWriter, r *http.Request) { got = r.Header.Clone() })
	var header []string
	for _, name := range []string{
		"X-Remote-User", "X.Remote.User", "X_Remote_Group", "X'Remote-Uid", "Remote-User", "Remote_Groups", "REMOTE.USER",
		"X-Forwarded-User", "X-Forwarded-For", "X_Forwarded_For", "X-Forwarded-Host", "X-Forwarded-Client-Cert", "X-Forwarded-Prefix", "X-Forwarded-Server",
		"X-Forwarded-Preferred-Username", "Forwarded", "X-Real-Ip", "X_REAL_IP", "True-Client-Ip", "X-Ssl-Client-Cn", "Ssl-Client-S-Dn", "X-Client-Cert",
		"Client-Cert", "X-Webauth-User", "X-Auth-Request-Email", "X-Authenticated-User", "X-User", "X-Consumer-Username", "Proxy", "Content_Type",
		"X-Goog-Authenticated-User-Email", "X-Ms-Client-Principal-Name",
	} {
		header = append(header, name, "evil")
	}
	kept := []string{"X-Request-Id", "X-Auth-Token", "Cookie", "If-Match", "X-Custom", "Accept-Language", "Content-Type"}
	for _, name := range kept {
		header = append(header, name, "kept")
	}
	if res, body := askREST(t, front, "GET", shopRoot+"/pets", header...); res.StatusCode != 200 {
		t.Fatalf("%d %s", res.StatusCode, body)
	}
	for name, values := range got {
		for _, v := range values {
			if v != "" && (v == "evil" || len(v) > 4 && v[:4] == "evil") {
				t.Errorf("%s came through: %q", name, values)
			}
		}
	}
	for _, name := range kept {
		if got.Get(name) != "kept" {
			t.Errorf("%s is %q", name, got[name])
		}
	}
	if got.Get("X-Forwarded-For") != "127.0.0.1" || got.Get("X-Forwarded-Proto") != "http" || got.Get("X-Forwarded-Prefix") != shopRoot || got.Get("X-Remote-User") != "alice" {
		t.Errorf("the gateway's own: %v", got)
	}
}

// Selectors are refused: authorization may read a name from one, and a REST server
// would list or delete everything.
func TestRESTSelectors(t *testing.T) {
	t.Parallel()
	front := restFront(t, "", func(_ http.ResponseWriter, r *http.Request) { t.Errorf("%s %s arrived", r.Method, r.RequestURI) })
	for _, query := range []string{
		"fieldSelector=metadata.name%3Dmine", "labelSelector=a%3Db", "field%53elector=metadata.name=mine", "a=1&fieldSelector=", "labelSelector", "fieldSelector=%20&fieldSelector=metadata.name=mine",
	} {
		for _, method := range []string{"GET", "HEAD", "DELETE", "POST"} {
			if res, body := askREST(t, front, method, shopRoot+"/pets?"+query); res.StatusCode != http.StatusBadRequest {
				t.Errorf("%s %s: %d %s", method, query, res.StatusCode, body)
			}
		}
	}
}
