package gateway

import (
	"fmt"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico/apiservice/backend"
	"portico/resource"
	"portico/resource/rest"
)

// stores stores the Backend "b" with a spec.
func (b *behind) stores(t *testing.T, spec backend.Spec) {
	t.Helper()
	key := resource.Key{Name: "b"}
	_, err := rest.Modify(t.Context(), b.backends, key, func(v *backend.Backend) error {
		v.Spec = spec
		return nil
	})
	if err == nil {
		return
	}
	o, err := b.backends.Codec.EncodeStored(&backend.Backend{ObjectMeta: metav1.ObjectMeta{Name: "b", UID: "b"}, Spec: spec})
	if err == nil {
		_, err = b.backends.Store.Create(t.Context(), key, o, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func every(d time.Duration) *backend.HealthCheck {
	return &backend.HealthCheck{Interval: &metav1.Duration{Duration: d}, Timeout: &metav1.Duration{Duration: d}}
}

func at(servers ...*changing) (out []backend.Endpoint) {
	for _, c := range servers {
		out = append(out, backend.Endpoint{URL: "unix://" + c.socket})
	}
	return out
}

func weightless(e []backend.Endpoint, i int) []backend.Endpoint {
	e[i].Weight = new(int32)
	return e
}

// Changes show by the stream alone: the interval of checks is ten minutes.
func TestPushNeedsNoCheck(t *testing.T) {
	c := newChanging(t)
	c.shows(t, "a.example.com")
	c.start(t)
	b := startBehind(t, newChanging(t)) // it does not listen
	b.stores(t, backend.Spec{
		Endpoints: at(c), AutoRegister: &backend.AutoRegister{Groups: []string{"*"}}, HealthCheck: every(10 * time.Minute),
	})
	b.settles(t, "a.example.com")
	within(t, promptly, "the stream is open", func() bool { return c.streams.Load() > 0 })
	var checks int32
	for i := range 6 {
		group := fmt.Sprintf("new-%d.example.com", i)
		c.shows(t, "a.example.com", group)
		t.Logf("routed after %v", b.settles(t, "a.example.com", group))
		if i == 0 {
			checks = c.checks.Load() // those of the start have ended
		}
	}
	if now := c.checks.Load(); now != checks {
		t.Errorf("%d checks meanwhile, want none", now-checks)
	}
}

// The stream moves with the requests to another endpoint; events of the old one are ignored.
func TestStreamMovesWithItsEndpoint(t *testing.T) {
	for what, leave := range map[string]func(t *testing.T, b *behind, spec backend.Spec, old, new *changing){
		"replaced": func(t *testing.T, b *behind, spec backend.Spec, _, new *changing) {
			spec.Endpoints = at(new)
			b.stores(t, spec)
		},
		"drained": func(t *testing.T, b *behind, spec backend.Spec, old, new *changing) {
			spec.Endpoints = weightless(at(old, new), 0)
			b.stores(t, spec)
		},
		"stopped": func(t *testing.T, b *behind, spec backend.Spec, old, new *changing) {
			spec.Endpoints = at(old, new)
			b.stores(t, spec)
			old.silent.Store(true)
		},
	} {
		t.Run(what, func(t *testing.T) {
			old, new := newChanging(t), newChanging(t)
			old.shows(t, "old.example.com")
			old.start(t)
			new.shows(t, "new.example.com")
			new.start(t)
			b := startBehind(t, newChanging(t))
			spec := backend.Spec{
				Endpoints: at(old), AutoRegister: &backend.AutoRegister{Groups: []string{"*"}}, HealthCheck: every(200 * time.Millisecond),
			}
			b.stores(t, spec)
			b.settles(t, "old.example.com")
			within(t, promptly, "the stream is open", func() bool { return old.streams.Load() > 0 })
			leave(t, b, spec, old, new)
			b.settles(t, "new.example.com")
			old.shows(t, "old.example.com", "older.example.com")
			new.shows(t, "new.example.com", "newer.example.com")
			b.settles(t, "new.example.com", "newer.example.com")
			if slices.Contains(b.listed(), "older.example.com") {
				t.Error("the stream of the old endpoint is still read")
			}
		})
	}
}
