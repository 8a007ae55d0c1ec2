package ha

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"

	"portico/cmd/e2e"
	"portico/cmd/internal/testtools"
	"portico/internal/testing/history"
)

// replicas are clients of an installation, each with a connection of its own through the load balancer.
type replicas struct {
	t  *testing.T
	in *installation
	// followed are an object of the core server and one of the CRD server, by the kind of the server.
	followed map[string]*followed
	watching sync.WaitGroup
}

// followed is an object that is changed and watched; its annotation n counts the changes.
type followed struct {
	resource        schema.GroupVersionResource
	namespace, name string
	changes         int
	watches         []*atomic.Int64 // the last change that each was sent
}

// Servers and a gateway that are added as docs/scaling.md says get their share of reads and watches. When the first
// ones are stopped their watches go on at the others, and miss nothing.
func TestReplicas(t *testing.T) {
	t.Parallel()
	var b *balancer
	in := prepare(t, shutdownDelay, func(in *installation, address string) { b = balance(t, in, address) })
	for _, name := range gateways {
		file := filepath.Join(in.Dir, name+".yaml")
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		e2e.WriteFile(t, file, regexp.MustCompile(`(?m)^(  - [a-z]+=[^,]*),.*$`).ReplaceAllString(string(data), "$1"))
	}
	in.start(t, "core-0", "crd-0", "gateway-0")
	in.serves(t, in.Endpoint)
	admin := in.Config(t)
	define(t, admin)
	in.Post(t, "/api/v1/namespaces/default/configmaps", `{"metadata":{"name":"followed"}}`)
	r := &replicas{t: t, in: in, followed: map[string]*followed{
		"core": {resource: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, namespace: "default", name: "followed"},
		"crd":  {resource: e2e.Definitions, name: history.Info().Resource + "." + history.Info().Group},
	}}
	t.Cleanup(r.watching.Wait)
	r.watch(5)
	r.change()

	page := sectionOf(t, "docs/scaling.md", "Replicas")
	for _, m := range regexp.MustCompile(`(?m)^    portico (core|crd|gateway) --config=/etc/portico/portico.yaml$`).FindAllStringSubmatch(page, -1) {
		in.start(t, m[1]+"-1")
	}
	env := append(in.env, "KUBECONFIG="+in.Kubeconfig, "PATH="+filepath.Dir(e2e.Program(t, testtools.Kubectl))+":"+os.Getenv("PATH"))
	for _, line := range commands(page, "kubectl") {
		shell(t, in.Dir, env, line)
	}
	in.register(t)
	e2e.Eventually(t, "the balancer uses the second gateway", func() error {
		if !b.ready[1].Load() {
			return errors.New("not yet")
		}
		return nil
	})
	e2e.Eventually(t, "all replicas have a share of the reads", r.shareReads)
	e2e.Eventually(t, "all replicas have a share of the watches when there are more of them", func() error {
		r.watch(5)
		for kind, f := range r.followed {
			for _, name := range []string{kind + "-0", kind + "-1", "gateway-0", "gateway-1"} {
				if n := in.count(t, name, "WATCH", kind, f); n < len(f.watches)/4 {
					return fmt.Errorf("%s has %d of %d watches of %s", name, n, len(f.watches), f.resource.Resource)
				}
			}
		}
		return nil
	})
	r.change()
	r.awaitChanges() // each watch goes on from a state that the second servers have
	r.log("with the second ones")
	for _, name := range []string{"core-0", "crd-0", "gateway-0"} {
		r.changeWhile(func() error { return in.processes[name].terminate(t.Context()) })
	}
	r.awaitChanges()
	r.log("without the first ones")
}

// door returns the configuration of a client with a connection of its own.
func (r *replicas) door() *rest.Config {
	cfg := r.in.Config(r.t)
	cfg.Dial = new(net.Dialer).DialContext
	return cfg
}

func (f *followed) at(client dynamic.Interface) dynamic.ResourceInterface {
	if f.namespace == "" {
		return client.Resource(f.resource)
	}
	return client.Resource(f.resource).Namespace(f.namespace)
}

// watch opens n watches of each object, which go on where they were when they end.
func (r *replicas) watch(n int) {
	r.t.Helper()
	for _, f := range r.followed {
		for range n {
			client := f.at(e2e.DynamicClient(r.t, r.door()))
			// The state that a list has is newer than the start of any server.
			now, err := client.List(r.t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=" + f.name})
			if err != nil {
				r.t.Fatal(err)
			}
			w, err := watchtools.NewRetryWatcherWithContext(r.t.Context(), now.GetResourceVersion(), &cache.ListWatch{
				WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
					options.FieldSelector = "metadata.name=" + f.name
					return client.Watch(ctx, options)
				},
			})
			if err != nil {
				r.t.Fatal(err)
			}
			last := new(atomic.Int64)
			last.Store(int64(f.changes))
			f.watches = append(f.watches, last)
			r.watching.Go(func() { r.follow(w, last, now.GetResourceVersion()) })
		}
	}
}

// follow reads the events of a watch, each of which must be newer than the one before and leave no change out.
func (r *replicas) follow(w *watchtools.RetryWatcher, last *atomic.Int64, version string) {
	for e := range w.ResultChan() {
		o, ok := e.Object.(*unstructured.Unstructured)
		if !ok || e.Type != watch.Modified {
			r.t.Errorf("a watch was sent %s %v", e.Type, e.Object)
			return
		}
		n, _ := strconv.ParseInt(o.GetAnnotations()["n"], 10, 64) // 0 before the first change
		if before := last.Load(); o.GetResourceVersion() == version || n != before && n != before+1 {
			r.t.Errorf("a watch of %s was sent change %d after %d", o.GetName(), n, before)
			return
		}
		version = o.GetResourceVersion()
		last.Store(n)
	}
	if r.t.Context().Err() == nil {
		r.t.Error("a watch cannot go on")
	}
}

// change changes each object once.
func (r *replicas) change() {
	r.t.Helper()
	client := e2e.DynamicClient(r.t, r.in.Config(r.t))
	for _, f := range r.followed {
		f.changes++
		body := fmt.Sprintf(`{"metadata":{"annotations":{"n":"%d"}}}`, f.changes)
		if _, err := f.at(client).Patch(r.t.Context(), f.name, types.MergePatchType, []byte(body), metav1.PatchOptions{}); err != nil {
			r.t.Fatalf("change %d of %s: %v", f.changes, f.name, err)
		}
	}
}

// changeWhile changes the objects until work is done.
func (r *replicas) changeWhile(work func() error) {
	r.t.Helper()
	done := make(chan error, 1)
	go func() { done <- work() }()
	for {
		r.change()
		select {
		case err := <-done:
			if err != nil {
				r.t.Fatal(err)
			}
			r.change()
			return
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// awaitChanges returns when all watches have all changes.
func (r *replicas) awaitChanges() {
	r.t.Helper()
	e2e.Eventually(r.t, "all watches have all changes", func() error {
		if r.t.Failed() { // a watch that has ended gets none
			r.t.FailNow()
		}
		for kind, f := range r.followed {
			for i, last := range f.watches {
				if n := last.Load(); n != int64(f.changes) {
					return fmt.Errorf("%s, watch %d: change %d of %d", kind, i, n, f.changes)
				}
			}
		}
		return nil
	})
}

// readsOfRound is how often shareReads reads each object.
const readsOfRound = 40

// shareReads reads the objects with new connections, and returns an error if less than a quarter of the reads
// passed a gateway or a server.
func (r *replicas) shareReads() error {
	counts := func() map[string]int {
		all := map[string]int{}
		for kind, f := range r.followed {
			for _, name := range []string{kind + "-0", kind + "-1", "gateway-0", "gateway-1"} {
				all[f.resource.Resource+" of "+name] = r.in.count(r.t, name, "GET", kind, f)
			}
		}
		return all
	}
	before := counts()
	for range 4 {
		client := e2e.DynamicClient(r.t, r.door())
		for range readsOfRound / 4 {
			for _, f := range r.followed {
				if _, err := f.at(client).Get(r.t.Context(), f.name, metav1.GetOptions{}); err != nil {
					r.t.Fatal(err)
				}
			}
		}
	}
	for what, n := range counts() {
		if n -= before[what]; n < readsOfRound/4 {
			return fmt.Errorf("%d of %d reads: %s", n, readsOfRound, what)
		}
	}
	return nil
}

// log logs the watches of each process that runs.
func (r *replicas) log(when string) {
	r.t.Helper()
	for kind, f := range r.followed {
		for _, name := range []string{kind + "-0", kind + "-1", "gateway-0", "gateway-1"} {
			select {
			case <-r.in.processes[name].done:
			default:
				r.t.Logf("%s: %s has %d of %d watches of %s", when, name, r.in.count(r.t, name, "WATCH", kind, f), len(f.watches), f.resource.Resource)
			}
		}
	}
}

// count returns, by the metrics of a process, the GETs that a server answered or a gateway sent to servers of a kind, or
// the watches that are open there.
func (in *installation) count(t *testing.T, name, verb, kind string, f *followed) int {
	t.Helper()
	metric, label := "apiserver_request_total", fmt.Sprintf("resource=%q", f.resource.Resource)
	if verb == "WATCH" {
		metric = "apiserver_longrunning_requests"
	}
	if strings.HasPrefix(name, "gateway") {
		metric, label = "portico_upstream_requests_total", fmt.Sprintf("backend=%q", kind)
		if verb == "WATCH" {
			metric, verb = "portico_upstream_longrunning_requests", ""
		}
	}
	_, body := e2e.Get(t, http.DefaultClient, "http://"+in.probe(name)+"/metrics", "")
	sum := 0.0
	for line := range strings.Lines(body) {
		if !strings.HasPrefix(line, metric+"{") || !strings.Contains(line, label) || verb != "" && !strings.Contains(line, fmt.Sprintf("verb=%q", verb)) {
			continue
		}
		n, err := strconv.ParseFloat(strings.TrimSpace(line[strings.LastIndex(line, " "):]), 64)
		if err != nil {
			t.Fatal(err)
		}
		sum += n
	}
	return int(sum)
}
