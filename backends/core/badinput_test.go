package core

import (
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	"portico/resource"
)

// Small bodies that would expand to hundreds of megabytes are rejected before they are
// expanded.
func TestExpandingBodiesAreRejected(t *testing.T) {
	c := running(t, Config{})
	const (
		megabytes = 64
		maps      = "/api/v1/namespaces/default/configmaps"
		aliased   = "the aliases of the YAML"
		head      = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"
	)
	echo := head + "data: {x: &a \"" + strings.Repeat("x", 64<<10) + "\"}\nz: [" + strings.Repeat("*a,", 3_000) + "]\n"
	c.must(t, "POST", maps, object("a"), nil)
	for name, request := range map[string]struct{ method, target, contentType, body, message string }{
		"create":      {"POST", maps, "application/yaml", echo, aliased},
		"strictly":    {"POST", maps + "?fieldValidation=Strict", "application/yaml", echo, aliased},
		"update":      {"PUT", maps + "/a", "application/yaml", echo, aliased},
		"apply":       {"PATCH", maps + "/a?fieldManager=x", "application/apply-patch+yaml", echo, aliased},
		"delete":      {"DELETE", maps + "/a", "application/yaml", echo, aliased},
		"many values": {"POST", maps, "application/json", `{"metadata":{"managedFields":[` + strings.Repeat("{},", 1<<20-50) + `{}]}}`, "the body has more than 200000 values"},
		"delete all":  {"DELETE", maps, "application/yaml", echo, aliased},
	} {
		t.Run(name, func(t *testing.T) {
			r := httptest.NewRequest(request.method, request.target, strings.NewReader(request.body))
			r.Header.Set("Content-Type", request.contentType)
			act := resource.ParseAction(r)
			act.User = &resource.User{Name: "admin", Groups: []string{resource.GroupMasters}}
			w := httptest.NewRecorder()
			var start, end runtime.MemStats
			runtime.ReadMemStats(&start)
			c.api.ServeHTTP(w, r.WithContext(resource.WithAction(r.Context(), act)))
			runtime.ReadMemStats(&end)
			if used := (end.TotalAlloc - start.TotalAlloc) >> 20; used > megabytes {
				t.Errorf("%d MB were allocated, the limit is %d", used, megabytes)
			}
			if w.Code != 413 || !strings.Contains(w.Body.String(), `"reason":"RequestEntityTooLarge"`) || !strings.Contains(w.Body.String(), request.message) {
				t.Errorf("got %d %.300s", w.Code, w.Body)
			}
		})
	}
}
