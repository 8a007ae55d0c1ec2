package gateway

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apireg "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico/apiservice"
	"portico/apiservice/backend"
	"portico/resource"
	"portico/resource/rest"
)

// registers stores a Backend with a server on a socket.
func (b *behind) registers(t *testing.T, name string, c *changing, group string) {
	t.Helper()
	_, err := rest.CreateObject(t.Context(), b.backends, &backend.Backend{
		TypeMeta:   metav1.TypeMeta{APIVersion: backend.GroupVersion().String(), Kind: "Backend"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       backend.Spec{Endpoints: []backend.Endpoint{{URL: "unix://" + c.socket}}, AutoRegister: &backend.AutoRegister{Groups: []string{group}}},
	})
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
	configured := newChanging(t)
	configured.shows(t)
	configured.start(t)
	servers := map[string]*changing{"a": newChanging(t), "b": newChanging(t)}
	for _, c := range servers {
		c.shows(t, group)
		c.start(t)
	}
	b := startBehind(t, configured)
	b.registers(t, "a", servers["a"], group)
	within(t, promptly, "the first has the group", func() bool { return b.holder(t, group) == "a" })
	b.registers(t, "b", servers["b"], group)

	holds, other := "a", "b"
	for range 20 {
		within(t, promptly, "both are good", func() bool {
			all := b.sync.BackendStates()
			for name := range servers {
				if st := all.ByName[name]; st == nil || !st.Condition.Available() || !st.Server.Source.Fetched() {
					return false
				}
			}
			rt := b.sync.Table().Lookup(group, "v1")
			return rt != nil && rt.Unavailable() == nil
		})
		ctx, stop := context.WithCancel(t.Context())
		var asking sync.WaitGroup
		failed := make(chan string, 1)
		for range 2 {
			asking.Go(func() {
				for ctx.Err() == nil {
					w := httptest.NewRecorder()
					r := httptest.NewRequest("GET", "/apis/"+group+"/v1/widgets", nil)
					b.serveResource(w, r.WithContext(resource.WithAction(r.Context(), resource.ParseAction(r))))
					if w.Code != http.StatusOK {
						select {
						case failed <- w.Body.String():
						default:
						}
					}
				}
			})
		}
		if _, err := b.backends.Store.Delete(t.Context(), resource.Key{Name: holds}, func(*resource.Object) error { return nil }); err != nil {
			t.Fatal(err)
		}
		within(t, promptly, "the other has the group", func() bool { return b.holder(t, group) == other })
		gv := schema.GroupVersion{Group: group, Version: "v1"}
		within(t, promptly, "the other is routed", func() bool {
			st := b.sync.BackendStates().ByName[other]
			return b.sync.Table().Routes[gv].Upstream == st.Server.Up
		})
		stop()
		asking.Wait()
		select {
		case answer := <-failed:
			t.Fatalf("from %s to %s, a request was answered %s", holds, other, answer)
		default:
		}
		b.registers(t, holds, servers[holds], group)
		holds, other = other, holds
	}
}
