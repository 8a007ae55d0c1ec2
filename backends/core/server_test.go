package core

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico/internal/testing/await"
	"portico/internal/testing/memstore"
	"portico/resource"
	"portico/resource/serve"
)

// inMemory is a storage with one feed of all objects.
type inMemory struct{ *memstore.Storage }

func (m inMemory) Feed(...string) resource.Feed { return m.Storage.Feed() }

// newCore assembles a core server over memory without a listener.
func newCore(t *testing.T, cfg Config) *Core {
	t.Helper()
	return newCoreOver(t, inMemory{memstore.New()}, cfg)
}

func newCoreOver(t *testing.T, kept storage, cfg Config) *Core {
	t.Helper()
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	cfg.completeServices()
	c := &Core{cfg: cfg, log: cfg.Logger, storage: kept, health: serve.NewHealth()}
	for _, step := range []func() error{c.assembleKinds, c.assembleControllers} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// start runs parts of the server until the test ends.
func start(t *testing.T, parts ...func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, len(parts))
	for _, run := range parts {
		go func() { done <- run(ctx) }()
	}
	t.Cleanup(func() {
		cancel()
		for range parts {
			if err := <-done; !errors.Is(err, context.Canceled) {
				t.Errorf("a part ended with %v", err)
			}
		}
	})
}

// running returns a core server with its cache and all controllers running.
func running(t *testing.T, cfg Config) *Core {
	t.Helper()
	return runningOver(t, inMemory{memstore.New()}, cfg)
}

func runningOver(t *testing.T, kept storage, cfg Config) *Core {
	t.Helper()
	c := newCoreOver(t, kept, cfg)
	start(t, c.runParts)
	await.Until(t, "the system namespaces are there", func() bool { return c.started.namespaces.Load() && c.cache.Ready() })
	return c
}

// do sends a request as an administrator. The response is decoded into out; a Status of failure
// is the error.
func (c *Core) do(t *testing.T, method, path string, in, out any) error {
	t.Helper()
	var body bytes.Buffer
	if in != nil {
		if err := json.NewEncoder(&body).Encode(in); err != nil {
			t.Fatal(err)
		}
	}
	r := httptest.NewRequestWithContext(t.Context(), method, path, &body)
	r.Header.Set("Content-Type", "application/json")
	if method == http.MethodPatch {
		r.Header.Set("Content-Type", "application/merge-patch+json")
	}
	act := resource.ParseAction(r)
	act.User = &resource.User{Name: "admin", Groups: []string{resource.GroupMasters}}
	w := httptest.NewRecorder()
	c.api.ServeHTTP(w, r.WithContext(resource.WithAction(r.Context(), act)))
	if w.Code >= 400 {
		status := metav1.Status{}
		if err := json.Unmarshal(w.Body.Bytes(), &status); err != nil {
			t.Fatalf("%s %s: %d %s", method, path, w.Code, w.Body)
		}
		return &apierrors.StatusError{ErrStatus: status}
	}
	if out != nil {
		if err := json.Unmarshal(w.Body.Bytes(), out); err != nil {
			t.Fatalf("%s %s: %v in %s", method, path, err, w.Body)
		}
	}
	return nil
}

// must is do for a request that must succeed.
func (c *Core) must(t *testing.T, method, path string, in, out any) {
	t.Helper()
	if err := c.do(t, method, path, in, out); err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
}

// get reads an object; nil if there is none.
func get[T any](t *testing.T, c *Core, path string) *T {
	t.Helper()
	out := new(T)
	err := c.do(t, "GET", path, nil, out)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		t.Fatalf("GET %s: %v", path, err)
	}
	return out
}

func createNamespace(t *testing.T, c *Core, name string) *corev1.Namespace {
	t.Helper()
	out := &corev1.Namespace{}
	c.must(t, "POST", "/api/v1/namespaces", object(name), out)
	return out
}

func object(name string) map[string]any {
	return map[string]any{"metadata": map[string]any{"name": name}}
}

func writeFile(t *testing.T, name string, data []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func signingKey(t *testing.T) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return writeFile(t, "sa.key", pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}))
}
