package gateway

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apireg "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico/apiservice"
	"portico/apiservice/backend"
	"portico/internal/testing/await"
	"portico/resource"
	"portico/resource/rest"
)

// stores creates or updates a Backend.
func (b *behind) stores(t *testing.T, name string, spec backend.Spec) {
	t.Helper()
	_, err := rest.Modify(t.Context(), b.backends, resource.Key{Name: name}, func(v *backend.Backend) error {
		v.Spec = spec
		return nil
	})
	if apierrors.IsNotFound(err) {
		_, err = rest.CreateObject(t.Context(), b.backends, &backend.Backend{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// holder returns the Backend that the group's v1 is registered with; "" is none.
func (b *behind) holder(t *testing.T, group string) string {
	t.Helper()
	o, err := b.apiservices.Store.Get(t.Context(), resource.Key{Name: apiservice.Name(group, "v1")}, resource.At{})
	if err != nil {
		return ""
	}
	obj, err := b.apiservices.Decode(o)
	if err != nil {
		t.Fatal(err)
	}
	return obj.(*apireg.APIService).Annotations[apiservice.BackendAnnotation]
}

// When the Backend of a group is deleted, another one with the group takes over, and no request
// fails.
func TestGroupMovesToAnotherBackend(t *testing.T) {
	const group = "shared.example.com"
	b := startBehind(t, newChanging(t)) // which does not listen
	for _, name := range []string{"a", "b"} {
		c := newChanging(t)
		c.shows(t, group)
		c.start(t)
		b.stores(t, name, backend.Spec{Endpoints: at(c), AutoRegister: &backend.AutoRegister{Groups: []string{group}}})
		await.Until(t, name+" is read, and a has the group", func() bool {
			if b.holder(t, group) != "a" {
				return false
			}
			st := b.sync.BackendStates().ByName[name]
			return st != nil && st.Condition.Available() && st.Server.Source.Fetched()
		})
	}
	await.Until(t, "the group is served", func() bool { return b.asks(group).Code == http.StatusOK })
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var asking sync.WaitGroup
	failed := make(chan string, 2)
	for range cap(failed) {
		asking.Go(func() {
			for ctx.Err() == nil {
				if w := b.asks(group); w.Code != http.StatusOK {
					failed <- w.Body.String()
					return
				}
			}
		})
	}
	if _, err := b.backends.Store.Delete(t.Context(), resource.Key{Name: "a"}, func(*resource.Object) error { return nil }); err != nil {
		t.Fatal(err)
	}
	await.Until(t, "the group is registered with b and routed there", func() bool {
		rt, st := b.sync.Table().Lookup(group, "v1"), b.sync.BackendStates().ByName["b"]
		return b.holder(t, group) == "b" && rt.Upstream == st.Server.Up
	})
	stop()
	asking.Wait()
	close(failed)
	for answer := range failed {
		t.Errorf("a request was answered %s", answer)
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

// The stream moves with the requests to another endpoint; events of the old one are ignored.
func TestStreamMovesWithItsEndpoint(t *testing.T) {
	for what, leave := range map[string]func(t *testing.T, b *behind, spec backend.Spec, old, new *changing){
		"replaced": func(t *testing.T, b *behind, spec backend.Spec, _, new *changing) {
			spec.Endpoints = at(new)
			b.stores(t, "b", spec)
		},
		"drained": func(t *testing.T, b *behind, spec backend.Spec, old, new *changing) {
			spec.Endpoints = weightless(at(old, new), 0)
			b.stores(t, "b", spec)
		},
		"stopped": func(t *testing.T, b *behind, spec backend.Spec, old, new *changing) {
			spec.Endpoints = at(old, new)
			b.stores(t, "b", spec)
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
			b.stores(t, "b", spec)
			b.settles(t, "old.example.com")
			await.Until(t, "the stream is open", func() bool { return old.streams.Load() > 0 })
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
