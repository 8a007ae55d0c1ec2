package gateway

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"portico/apiservice"
	"portico/apiservice/backend"
	"portico/discovery"
	"portico/discovery/openapi"
	"portico/gateway/proxy"
	"portico/gateway/registration"
	"portico/gateway/routing"
	"portico/gateway/upstream"
	"portico/internal/testing/await"
	"portico/internal/testing/memstore"
	"portico/resource"
	"portico/resource/loop"
	"portico/resource/rest"
)

// changing is a backend on a unix socket with groups that tests change.
type changing struct {
	socket string
	// silent: it answers nothing; a stream that is open stays so.
	silent  atomic.Bool
	streams atomic.Int32 // that are open
	current discovery.Current
	built   map[string][]discovery.GroupVersion
	server  *http.Server
}

func newChanging(t *testing.T) *changing {
	t.Helper()
	c := &changing{socket: filepath.Join(t.TempDir(), "crd.sock"), built: map[string][]discovery.GroupVersion{}}
	t.Cleanup(func() { c.stop() })
	return c
}

// start serves at the socket, as a new process would.
func (c *changing) start(t *testing.T) {
	t.Helper()
	listener, err := net.Listen("unix", c.socket)
	if err != nil {
		t.Fatal(err)
	}
	documents := discovery.NewHandler(&c.current)
	c.server = &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		act := resource.ParseAction(r)
		switch {
		case r.URL.Query().Get("watch") != "":
			c.streams.Add(1)
			defer c.streams.Add(-1)
		case c.silent.Load():
			<-r.Context().Done()
		}
		switch {
		case act.IsResource:
			fmt.Fprintln(w, "served by", act.Group)
		case act.Path == "/openapi/v3":
			http.NotFound(w, r)
		default:
			documents.ServeHTTP(w, r.WithContext(resource.WithAction(r.Context(), act)))
		}
	})}
	go c.server.Serve(listener)
}

// stop cuts everything off, as the end of a process does.
func (c *changing) stop() {
	if c.server != nil {
		c.server.Close()
		c.server = nil
	}
}

// shows has the backend serve exactly these groups from now on.
func (c *changing) shows(t *testing.T, groups ...string) {
	t.Helper()
	var gvs []discovery.GroupVersion
	for _, group := range groups {
		if c.built[group] == nil {
			c.built[group] = discovery.FromKinds([]*rest.Kind{{
				Info:         resource.Info{Group: group, Versions: []string{"v1"}, Resource: "widgets", Kind: "Widget", Namespaced: true},
				Subresources: []rest.Subresource{{Name: "status"}},
			}})
		}
		gvs = append(gvs, c.built[group]...)
	}
	documents, err := discovery.BuildAfter(c.current.Load(), gvs, "")
	if err != nil {
		t.Fatal(err)
	}
	c.current.Store(documents)
}

// slowStore writes as slowly as etcd.
type slowStore struct{ resource.Store }

func (s *slowStore) Create(ctx context.Context, key resource.Key, o *resource.Object, ttl time.Duration) (*resource.Object, error) {
	time.Sleep(2 * time.Millisecond)
	return s.Store.Create(ctx, key, o, ttl)
}

// behind is the part of a gateway that makes routes from the discovery of one backend.
type behind struct {
	*Gateway
}

func startBehind(t *testing.T, c *changing) *behind {
	t.Helper()
	k, err := apiservice.Kind()
	if err != nil {
		t.Fatal(err)
	}
	backends, err := backend.Kind()
	if err != nil {
		t.Fatal(err)
	}
	configured, err := routing.NewStaticBackend(routing.Backend{Name: "crd", URLs: []string{"unix://" + c.socket}}, upstream.Trust{})
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	b := &behind{Gateway: &Gateway{log: log}}
	own, start := discovery.FromKinds([]*rest.Kind{k}), []*routing.StaticBackend{configured}
	b.sync = routing.New(routing.Config{Own: own, StaticBackends: start, Changed: func() { b.registration.Wake() }, Logger: log})
	b.apiservices, b.backends = &rest.Resource{Kind: k, Store: &slowStore{memstore.New().Store(&k.Info)}}, &rest.Resource{Kind: backends, Store: memstore.New().Store(&backends.Info)}
	b.registration = registration.New(registration.Config{
		Findings: b.sync, APIServices: b.apiservices, Backends: b.backends, Own: own, StaticBackends: start,
		Broken: func(*routing.Server) []openapi.Broken { return nil }, Registry: prometheus.NewRegistry(), Logger: log,
	})
	b.registration.Elect(t.Context())
	b.proxy = proxy.New(proxy.Config{Table: b.sync.Table})
	running(t, func(ctx context.Context) error {
		return loop.Together(ctx, b.sync.Check, b.sync.Run, b.registration.Run, func(ctx context.Context) error {
			return b.sync.Follow(ctx, b.apiservices, b.backends, func(context.Context) bool { return true })
		})
	})
	return b
}

// routed returns the groups of the backend that requests are sent to.
func (b *behind) routed() (groups []string) {
	if t := b.sync.Table(); t != nil {
		for gv, rt := range t.Routes {
			if !rt.Local && rt.Unavailable() == nil {
				groups = append(groups, gv.Group)
			}
		}
	}
	slices.Sort(groups)
	return groups
}

// listed returns the groups of the backend in the gateway's own /apis.
func (b *behind) listed() (groups []string) {
	if d := b.sync.Discovery().Load(); d != nil {
		for i := range d.GroupVersions {
			if gv := &d.GroupVersions[i]; gv.Group != apiservice.Group && !gv.Stale && !gv.Unknown {
				groups = append(groups, gv.Group)
			}
		}
	}
	slices.Sort(groups)
	return groups
}

// registered returns the groups of the stored APIServices.
func (b *behind) registered(t *testing.T) (groups []string) {
	t.Helper()
	list, err := b.apiservices.Store.List(t.Context(), resource.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range list.Items {
		obj, err := b.apiservices.Decode(o)
		if err != nil {
			t.Fatal(err)
		}
		groups = append(groups, strings.TrimPrefix(obj.GetName(), "v1."))
	}
	slices.Sort(groups)
	return groups
}

// settles waits until the gateway routes, lists and has registered exactly these groups.
func (b *behind) settles(t *testing.T, groups ...string) {
	t.Helper()
	slices.Sort(groups)
	await.Until(t, fmt.Sprintf("%d groups are routed", len(groups)), func() bool { return slices.Equal(b.routed(), groups) })
	await.Until(t, fmt.Sprintf("%d groups are listed", len(groups)), func() bool { return slices.Equal(b.listed(), groups) })
	await.Until(t, fmt.Sprintf("%d groups are registered", len(groups)), func() bool { return slices.Equal(b.registered(t), groups) })
}

// asks requests the group's widgets, and returns the answer.
func (b *behind) asks(group string) *httptest.ResponseRecorder {
	w, r := httptest.NewRecorder(), httptest.NewRequest("GET", "/apis/"+group+"/v1/widgets", nil)
	b.serveResource(w, r.WithContext(resource.WithAction(r.Context(), resource.ParseAction(r))))
	return w
}

// A group is registered, listed and routed as soon as its backend adds it, and removed as soon
// as the backend removes it, also beside many others. Its stream alone shows that: the
// interval of checks is ten minutes.
func TestBackendChangesShowAtOnce(t *testing.T) {
	for _, n := range []int{3, 1000} {
		t.Run(fmt.Sprintf("beside %d", n), func(t *testing.T) {
			c := newChanging(t)
			var others []string
			for i := range n {
				others = append(others, fmt.Sprintf("group-%04d.example.com", i))
			}
			c.shows(t, others...)
			c.start(t)
			b := startBehind(t, newChanging(t)) // which does not listen
			b.stores(t, "b", backend.Spec{Endpoints: at(c), AutoRegister: &backend.AutoRegister{Groups: []string{"*"}}, HealthCheck: every(10 * time.Minute)})
			b.settles(t, others...)
			await.Until(t, "the stream is open", func() bool { return c.streams.Load() > 0 })
			for i := range 3 {
				group := fmt.Sprintf("new-%d.example.com", i)
				c.shows(t, append([]string{group}, others...)...)
				b.settles(t, append([]string{group}, others...)...)
				if w := b.asks(group); w.Body.String() != "served by "+group+"\n" {
					t.Errorf("%s: %d %s", group, w.Code, w.Body)
				}
				c.shows(t, others...)
				b.settles(t, others...)
			}
		})
	}
}

// The groups of a backend that stops remain, and its changes show as soon as it is back.
func TestBackendRestarts(t *testing.T) {
	c := newChanging(t)
	b := startBehind(t, c)             // before it listens
	time.Sleep(200 * time.Millisecond) // for failed attempts to connect
	c.shows(t, "a.example.com", "b.example.com")
	c.start(t)
	b.settles(t, "a.example.com", "b.example.com")
	c.stop()
	await.Until(t, "it is noticed", func() bool { return len(b.routed()) == 0 })
	for what, got := range map[string][]string{"listed": b.listed(), "registered": b.registered(t)} {
		if !slices.Equal(got, []string{"a.example.com", "b.example.com"}) {
			t.Errorf("%s while it is away: %q", what, got)
		}
	}
	before := b.sync.Discovery().Load()
	c.start(t) // with the same groups
	b.settles(t, "a.example.com", "b.example.com")
	if b.sync.Discovery().Load() != before {
		t.Error("documents were put together anew although they say the same")
	}
	c.shows(t, "a.example.com", "c.example.com")
	b.settles(t, "a.example.com", "c.example.com")
	if after := b.sync.Discovery().Load(); after.Equal(before) {
		t.Error("the documents did not change")
	}
	c.stop()
	c.shows(t, "a.example.com", "d.example.com")
	c.start(t)
	b.settles(t, "a.example.com", "d.example.com")
}
