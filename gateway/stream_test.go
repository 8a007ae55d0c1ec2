package gateway

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"portico/apiservice"
	"portico/discovery"
	"portico/discovery/openapi"
	"portico/gateway/proxy"
	"portico/gateway/registration"
	"portico/gateway/routing"
	"portico/internal/testing/memstore"
	"portico/resource"
	"portico/resource/loop"
	"portico/resource/rest"
)

// changing is a backend on a unix socket with groups that tests change.
type changing struct {
	socket string
	// silent: it answers nothing; a stream that is open stays so.
	silent atomic.Bool
	// streams are those that are open, checks the requests for /apis that are none.
	streams, checks atomic.Int32
	current         discovery.Current
	built           map[string][]discovery.GroupVersion
	server          *http.Server
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
		case r.URL.Path == "/apis":
			c.checks.Add(1)
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
			c.built[group] = customGroup(group)
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
	log := slog.New(slog.DiscardHandler)
	b := &behind{Gateway: &Gateway{log: log}}
	own, start := discovery.FromKinds([]*rest.Kind{k}), []*routing.StaticBackend{onSocket(t, "crd", c.socket)}
	b.sync = routing.New(routing.Config{Own: own, StaticBackends: start, Changed: func() { b.registration.Wake() }, Logger: log})
	b.apiservices, b.backends = &rest.Resource{Kind: k, Store: &slowStore{memstore.New().Store(&k.Info)}}, backendsInMemory(t)
	b.registration = registration.New(registration.Config{
		Findings: b.sync, APIServices: b.apiservices, Backends: b.backends, Own: own, StaticBackends: start,
		Broken: func(*routing.Server) []openapi.Broken { return nil }, Registry: prometheus.NewRegistry(), Logger: log,
	})
	b.registration.Elect(t.Context())
	b.proxy = proxy.New(proxy.Config{Table: b.sync.Table})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = loop.Together(ctx, b.sync.Check, b.sync.Run, b.registration.Run, b.followAPIServices, b.followBackends)
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
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
		_, group := groupOfName(obj.GetName())
		groups = append(groups, group)
	}
	slices.Sort(groups)
	return groups
}

func groupOfName(name string) (version, group string) { return name[:2], name[3:] } // v1.group

// promptly is shorter than anything that asks a backend from time to time, and
// long enough for a busy machine.
const promptly = 20 * time.Second

func within(t *testing.T, limit time.Duration, what string, ok func() bool) time.Duration {
	t.Helper()
	began := time.Now()
	for !ok() {
		if time.Since(began) > limit {
			t.Fatalf("not within %v: %s", limit, what)
		}
		time.Sleep(2 * time.Millisecond)
	}
	return time.Since(began)
}

// settles waits until the gateway routes, lists and has registered exactly these
// groups, and returns how long the route took.
func (b *behind) settles(t *testing.T, groups ...string) time.Duration {
	t.Helper()
	slices.Sort(groups)
	took := within(t, promptly, fmt.Sprintf("%d groups are routed", len(groups)), func() bool { return slices.Equal(b.routed(), groups) })
	within(t, promptly, fmt.Sprintf("%d groups are listed", len(groups)), func() bool { return slices.Equal(b.listed(), groups) })
	within(t, promptly, fmt.Sprintf("%d groups are registered", len(groups)), func() bool { return slices.Equal(b.registered(t), groups) })
	return took
}

func manyGroups(from, to int) (groups []string) {
	for i := from; i < to; i++ {
		groups = append(groups, groupName(i))
	}
	return groups
}

// A group is registered, listed and routed as soon as its backend adds it, and removed as soon as the
// backend removes it, also beside many others.
func TestBackendChangesShowAtOnce(t *testing.T) {
	for _, n := range []int{3, 1000} {
		t.Run(fmt.Sprintf("beside %d", n), func(t *testing.T) {
			c := newChanging(t)
			others := manyGroups(0, n)
			c.shows(t, others...)
			c.start(t)
			b := startBehind(t, c)
			within(t, promptly, "the first state", func() bool { return len(b.routed()) == n })
			b.settles(t, others...)
			took := map[string][]time.Duration{}
			for i := range 10 {
				group := fmt.Sprintf("new-%d.example.com", i)
				c.shows(t, append([]string{group}, others...)...)
				took["comes"] = append(took["comes"], b.settles(t, append([]string{group}, others...)...))
				w := httptest.NewRecorder()
				r := httptest.NewRequest("GET", "/apis/"+group+"/v1/widgets", nil)
				b.serveResource(w, r.WithContext(resource.WithAction(r.Context(), resource.ParseAction(r))))
				if w.Body.String() != "served by "+group+"\n" {
					t.Errorf("%s: %d %s", group, w.Code, w.Body)
				}
				c.shows(t, others...)
				took["goes"] = append(took["goes"], b.settles(t, others...))
			}
			for _, what := range slices.Sorted(maps.Keys(took)) {
				slices.Sort(took[what])
				t.Logf("until a group that %s is so in the routes: median %v, max %v", what, took[what][5], took[what][9])
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
	within(t, promptly, "it is noticed", func() bool { return len(b.routed()) == 0 })
	if got := b.listed(); !slices.Equal(got, []string{"a.example.com", "b.example.com"}) {
		t.Errorf("listed while it is away: %q", got)
	}
	if got := b.registered(t); !slices.Equal(got, []string{"a.example.com", "b.example.com"}) {
		t.Errorf("registered while it is away: %q", got)
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
