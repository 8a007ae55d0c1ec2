package access

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico/internal/testing/await"
	"portico/internal/testing/memstore"
	"portico/resource"
	"portico/resource/rest"
	"portico/resource/rest/handlers"
)

// bench serves the kinds of an Access from stores in memory.
type bench struct {
	t         *testing.T
	access    *Access
	resources map[schema.GroupResource]*rest.Resource
	storage   *memstore.Storage
	api       http.Handler
}

func newBench(t *testing.T, cfg Config) *bench {
	t.Helper()
	b := &bench{t: t, access: New(cfg), resources: map[schema.GroupResource]*rest.Resource{}, storage: memstore.New()}
	kinds, err := b.access.Kinds()
	if err != nil {
		t.Fatal(err)
	}
	var list []*rest.Resource
	for _, k := range kinds {
		r := &rest.Resource{Kind: k}
		if k.Review == nil {
			r.Store = b.storage.Store(&k.Info)
		}
		b.resources[k.GroupResource()] = r
		list = append(list, r)
	}
	b.api = handlers.New(handlers.Config{Resources: list})
	return b
}

func (b *bench) find(gr schema.GroupResource) *rest.Resource { return b.resources[gr] }

// run runs the Access until the test ends, and waits until it is ready.
func (b *bench) run() {
	b.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- b.access.Run(ctx, b.find) }()
	b.t.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			b.t.Errorf("Run ended with %v", err)
		}
	})
	await.Until(b.t, "ready", func() bool { return b.access.Ready() == nil })
}

// as sends a request of a user, with a JSON body or a merge patch. It decodes the
// answer into out, or returns it as an error.
func (b *bench) as(u *resource.User, method, path string, in, out any) error {
	b.t.Helper()
	contentType := runtime.ContentTypeJSON
	if method == http.MethodPatch {
		contentType = "application/merge-patch+json"
	}
	return b.send(u, method, path, contentType, in, out)
}

func (b *bench) send(u *resource.User, method, path, contentType string, in, out any) error {
	b.t.Helper()
	var body bytes.Buffer
	if in != nil {
		if err := json.NewEncoder(&body).Encode(in); err != nil {
			b.t.Fatal(err)
		}
	}
	r := httptest.NewRequest(method, path, &body)
	r.Header.Set("Content-Type", contentType)
	act := resource.ParseAction(r)
	act.User = u
	w := httptest.NewRecorder()
	b.api.ServeHTTP(w, r.WithContext(resource.WithAction(r.Context(), act)))
	if w.Code >= 400 {
		status := metav1.Status{}
		if err := json.Unmarshal(w.Body.Bytes(), &status); err != nil {
			b.t.Fatalf("%s %s: %d %s", method, path, w.Code, w.Body)
		}
		return &apierrors.StatusError{ErrStatus: status}
	}
	if out != nil {
		if err := json.Unmarshal(w.Body.Bytes(), out); err != nil {
			b.t.Fatalf("%s %s: %v in %s", method, path, err, w.Body)
		}
	}
	return nil
}
