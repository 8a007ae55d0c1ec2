package resource

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
)

// request returns the request that net/http makes of a request line; nil if it rejects it.
func request(method, target string) *http.Request {
	u, err := url.ParseRequestURI(target)
	if err != nil || !strings.HasPrefix(target, "/") {
		return nil
	}
	return &http.Request{Method: method, URL: u}
}

// path returns the path of an action's target, with the legacy prefix because resources may
// have its name.
func (a *Action) path() string {
	parts := []string{"api", a.Version, "watch"}
	if a.Group != "" {
		parts = []string{"apis", a.Group, a.Version, "watch"}
	}
	if a.Namespace != "" {
		parts = append(parts, "namespaces", a.Namespace)
	}
	parts = append(parts, a.Resource)
	if a.InPath {
		parts = append(parts, a.Name)
	}
	if a.Subresource != "" || len(a.Rest) > 0 {
		parts = append(parts, a.Subresource)
	}
	parts = append(parts, a.Rest...)
	for i, part := range parts {
		parts[i] = url.PathEscape(part)
	}
	return "/" + strings.Join(parts, "/")
}

// A path has one meaning: the path of its action parses to the same action.
func FuzzParseAction(f *testing.F) {
	for _, target := range []string{
		"/", "/api", "/apis", "/apis?watch=1", "/api/v1/pods", "/api/v1/namespaces/a/pods/b/log", "/api/v1/namespaces/a", "/api/v1/namespaces/a/status", "/api/v1/namespaces/a/finalize/x",
		"/api/v1/namespaces/a/namespaces/b", "/api/v1/watch/namespaces/a/pods", "/api/v1/watch", "/api/v1/proxy/nodes/x", "/apis/apps/v1/deployments?fieldSelector=metadata.name%3Dx&watch=false",
		"/api/v1/namespaces/a%2Fb/pods/..%2f..%2fx", "/api/v1/namespaces//pods", "/api//pods", "//api/v1/pods//", "/apis/%2e%2e/v1/x/y/z/w/v", "/api/v1/pods/a/proxy//b/", "/api/v1/namespaces/a/pods?fieldSelector=metadata.name=..",
		"/apis/g/v/watch/watch/proxy", "/api/v1/pods?labelSelector=%zz", "/healthz/../api/v1/pods", "/api/v1/pods/%00", "/version;x",
	} {
		f.Add("GET", target)
		f.Add("DELETE", target)
	}
	f.Fuzz(func(t *testing.T, method, target string) {
		r := request(method, target)
		if r == nil {
			return
		}
		a := ParseAction(r)
		if !a.IsResource {
			if a.Resource != "" || a.Name != "" || a.Namespace != "" || a.Group != "" {
				t.Fatalf("%s: no resource, yet %+v", target, a)
			}
			return
		}
		if !a.InPath && a.Name != "" && (strings.ContainsAny(a.Name, "/%") || a.Name == "." || a.Name == "..") {
			t.Fatalf("%s: a selector names %q", target, a.Name)
		}
		if a.Resource == "" || a.InPath && a.Name == "" || strings.HasSuffix(a.path(), "/") {
			return // an empty segment, which no resource has
		}
		again := ParseAction(request("GET", a.path()))
		if again.Group != a.Group || again.Version != a.Version || again.Namespace != a.Namespace || again.Resource != a.Resource || again.InPath != a.InPath ||
			a.InPath && again.Name != a.Name || again.Subresource != a.Subresource || !slices.Equal(again.Rest, a.Rest) {
			t.Fatalf("%s is\n%+v, written as %s it is\n%+v", target, a, a.path(), again)
		}
	})
}
