package history_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"portico/internal/testing/history"
	"portico/internal/testing/httpstore"
	"portico/internal/testing/storetest"
	"portico/resource"
	"portico/resource/client"
	"portico/resource/rest"
	"portico/resource/rest/handlers"
)

// records is the kind of history.Info.
func records() *rest.Kind {
	return &rest.Kind{
		Info: *history.Info(), Codec: storetest.Codec{}, ReturnDeleted: true,
		FieldLabels: []string{history.TierField},
		Fields: func(obj runtime.Object) map[string]string {
			tier, _, _ := unstructured.NestedString(obj.(*unstructured.Unstructured).Object, "data", "tier")
			return map[string]string{history.TierField: tier}
		},
	}
}

// served is a process that serves a cache over HTTP.
type served struct {
	process
	server *httptest.Server
	// address is where the server listens.
	address atomic.Pointer[string]
}

// watchLife is the shortest duration of a watch; the last bookmark, two seconds before its
// end, comes in longer ones.
const watchLife = 1500 * time.Millisecond

func newServed(t *testing.T, s *etcdServer) *served {
	p := &served{process: newProcess(t, s)}
	p.listen()
	t.Cleanup(p.hangUp)
	return p
}

func (p *served) listen() {
	api := handlers.New(handlers.Config{
		Resources: []*rest.Resource{{Kind: records(), Store: *p.store.Load()}},
		MinWatch:  watchLife,
		Logger:    quiet,
	})
	p.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		act := resource.ParseAction(r)
		act.User = &resource.User{Name: "tester"}
		api.ServeHTTP(w, r.WithContext(resource.WithAction(r.Context(), act)))
	}))
	address := p.server.Listener.Addr().String()
	p.address.Store(&address)
}

func (p *served) hangUp() {
	p.server.CloseClientConnections()
	p.server.Close()
}

// restart stops the server and the cache and starts new ones at another address.
func (p *served) restart(ctx context.Context) error {
	p.hangUp()
	if err := p.process.restart(ctx); err != nil {
		return err
	}
	p.listen()
	return nil
}

// door returns a client of the server. change, if not nil, changes its requests.
func (p *served) door(t *testing.T, name string, change func(*http.Request)) history.Door {
	transport := &http.Transport{DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, *p.address.Load())
	}}
	t.Cleanup(transport.CloseIdleConnections)
	store := httpstore.New(client.New(client.Config{
		BaseURL: "http://records", Transport: changing{transport, change},
	}), history.Info())
	return history.Door{
		Name: name, Store: func() resource.Store { return store },
		Holds: true, EndsWatches: true,
	}
}

// changing is a transport that changes requests.
type changing struct {
	http.RoundTripper
	change func(*http.Request)
}

func (c changing) RoundTrip(r *http.Request) (*http.Response, error) {
	if c.change != nil {
		r = r.Clone(r.Context())
		c.change(r)
	}
	return c.RoundTripper.RoundTrip(r)
}

// asBefore changes a watch-list to a watch with resourceVersion unset or 0, as of older
// clients.
func asBefore(r *http.Request) {
	q := r.URL.Query()
	if q.Get("sendInitialEvents") != "true" || q.Get("resourceVersion") != "" && q.Get("resourceVersion") != "0" {
		return
	}
	q.Del("sendInitialEvents")
	q.Del("resourceVersionMatch")
	r.URL.RawQuery = q.Encode()
}

// overHTTP has two servers on one etcd, one of which is used by both kinds of watch.
func overHTTP(t *testing.T) history.System {
	s := newEtcd(t)
	a, b := newServed(t, s), newServed(t, s)
	sys := s.system()
	sys.Doors = []history.Door{
		a.door(t, "server a", nil), a.door(t, "server a, as before", asBefore), b.door(t, "server b", nil),
	}
	sys.Restarts = append(sys.Restarts, a.restart, b.restart, a.isolate, b.isolate)
	return sys
}
