package definitions

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"portico/cmd/e2e"
)

// flood writes objects as fast as it can until stop ends, whatever the answers are: to a namespace, and to the path of a
// cluster-wide resource. It reports answers that no state of a definition explains.
func flood(ctx, stop context.Context, c *client, group, kind string, writer int, created *atomic.Int64, wrong func(string)) {
	for n := 0; stop.Err() == nil; n++ {
		all := "/apis/" + group + "/v1/namespaces/default/gadgets"
		if n%4 == 3 {
			all = "/apis/" + group + "/v1/gadgets"
		}
		name := fmt.Sprint("w", writer, "-", n)
		body := gadget(group, "v1", kind, name, `{"size":1}`)
		for _, r := range []struct{ method, path, body, header string }{
			{"POST", all, body, ""},
			{"PATCH", all + "/" + name, `{"spec":{"size":2}}`, mergePatch},
			{"PATCH", all + "/" + name + "-applied?fieldManager=f", strings.Replace(body, name, name+"-applied", 1), "Content-Type: application/apply-patch+yaml"},
			{"GET", all, "", ""},
		} {
			code, answer := c.ask(ctx, r.method, r.path, r.body, r.header)
			switch code {
			case http.StatusCreated:
				created.Add(1)
			case http.StatusOK, http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusForbidden, http.StatusConflict, http.StatusTooManyRequests:
			case http.StatusBadRequest, http.StatusUnprocessableEntity:
				// Another scope or another kind.
			default:
				if ctx.Err() == nil {
					wrong(fmt.Sprintf("%s %s: %d %.300s", r.method, r.path, code, answer))
				}
			}
		}
	}
}

// Definitions are deleted while eight clients write their objects, and created again at once, with another scope or another
// kind. No request is answered with a server error, each watch is sent the deletion of each object that it was sent before it
// ends, nothing of a deleted definition is left in etcd, and the next one begins without objects.
func TestDefinitionsAreDeletedWhileWrittenTo(t *testing.T) {
	t.Parallel()
	const group = "deletions.example.com"
	up := e2e.SharedInstallation(t)
	c, path := newClient(t, up), definitionsPath+"/gadgets."+group
	for round := range 6 {
		scope, kind := []string{"Namespaced", "Cluster"}[round%2], []string{"Gadget", "Gadget", "Device"}[round%3]
		// The last definition of the name is gone, and so are its objects.
		if err := c.must(t.Context(), http.StatusCreated, "POST", definitionsPath, definition(group, scope, kind, churnSchema(0), "v1 served storage")); err != nil {
			t.Fatal(err)
		}
		all := "/apis/" + group + "/v1/gadgets"
		if err := c.served(t.Context(), all); err != nil {
			t.Fatal(err)
		}
		if _, answer := c.ask(t.Context(), "GET", all, ""); !strings.Contains(answer, `"items":[]`) || !strings.Contains(answer, kind+"List") {
			t.Errorf("round %d begins with %.300s", round, answer)
		}
		watched := make(chan error, 1)
		there := map[string]bool{}
		go func() {
			watched <- c.watch(t.Context(), all+"?watch=true", func(e event) error {
				switch there[e.Object.Metadata.Name] = true; e.Type {
				case "DELETED":
					delete(there, e.Object.Metadata.Name)
				case "ERROR":
					return fmt.Errorf("the watch has an error: %s", e.Object.Message)
				}
				return nil
			})
		}()
		stop, cancel := context.WithCancel(t.Context())
		var created atomic.Int64
		var running sync.WaitGroup
		for i := range 8 {
			running.Go(func() {
				flood(t.Context(), stop, c, group, kind, i, &created, func(text string) { t.Error(text); cancel() })
			})
		}
		e2e.Eventually(t, "objects are created", func() error {
			if n := created.Load(); n < 50 && stop.Err() == nil {
				return fmt.Errorf("%d", n)
			}
			return nil
		})
		if err := c.must(t.Context(), http.StatusOK, "DELETE", path, ""); err != nil {
			t.Error(err)
		}
		if err := c.gone(t.Context(), path); err != nil {
			t.Error(err)
		}
		left := keysWith(t, up, "/"+group+"/")
		if err := <-watched; err != nil || len(there) > 0 {
			t.Errorf("round %d: the watch ended with %v, and %d objects are there: %.5v", round, err, len(there), there)
		}
		cancel()
		running.Wait()
		if left = append(left, keysWith(t, up, "/"+group+"/")...); len(left) > 0 {
			t.Fatalf("round %d: %d keys are left: %.1000s", round, len(left), left)
		}
		t.Logf("round %d: %d objects", round, created.Load())
	}
}
