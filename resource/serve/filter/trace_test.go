package filter

import (
	"testing"

	"portico/resource"
)

func TestRoute(t *testing.T) {
	for _, tc := range []struct {
		want   string
		action resource.Action
	}{
		{"", resource.Action{Path: "/nothing"}},
		{"", resource.Action{Path: "/"}},
		{"", resource.Action{Path: "/apis/a/v1/b/c"}},
		{"/healthz", resource.Action{Path: "/healthz"}},
		{"/readyz/{:check}", resource.Action{Path: "/readyz/etcd"}},
		{"/api", resource.Action{Path: "/api"}},
		{"/api/{:version}", resource.Action{Path: "/api/v1"}},
		{"/apis", resource.Action{Path: "/apis"}},
		{"/apis", resource.Action{Path: "/apis/"}},
		{"/apis/{:group}", resource.Action{Path: "/apis/a"}},
		{"/apis/{:group}/{:version}", resource.Action{Path: "/apis/a/v1"}},
		{"/openapi/v2", resource.Action{Path: "/openapi/v2"}},
		{"/openapi/v3/{:path}", resource.Action{Path: "/openapi/v3/apis/a/v1"}},
		{"/api/v1/nodes", resource.Action{IsResource: true, Version: "v1", Resource: "nodes"}},
		{"/apis/a/v1/b/c", resource.Action{IsResource: true, Group: "a", Version: "v1", Resource: "b", Subresource: "c"}},
		{"/apis/a/v1/namespaces/{:namespace}/b/{:name}/c", resource.Action{IsResource: true, Group: "a", Version: "v1", Namespace: "n", Resource: "b", Name: "x", Subresource: "c"}},
	} {
		if got := routeOf(&tc.action); got != tc.want {
			t.Errorf("%s: got %s, want %s", tc.action.Path, got, tc.want)
		}
	}
}
