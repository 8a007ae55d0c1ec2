package faults

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"portico/cmd/e2e"
	"portico/internal/testing/await"
)

const (
	// requestTimeout is the timeout that each request asks for. A client gives up when the test has
	// no time left, which no response may reach.
	requestTimeout = 3 * time.Second
	chaosGroup     = "chaos.example.com" // of the custom resources
)

// chaosLoad is clients of some resources: for each a writer, a reader that lists, and an
// informer. It checks that
//
//   - an acknowledged write is in every later response;
//   - an acknowledged delete stays done;
//   - a client that reads twice does not see an older state the second time;
//   - a request that fails gets a Status with a reason, or a connection error, in time;
//   - an informer reaches the current state, and no object in it goes back.
type chaosLoad struct {
	targets          []*chaosTarget
	pause            time.Duration // of a reader between lists, of a writer between objects
	dynamic          dynamic.Interface
	defined          []string           // groups
	informersOff     atomic.Bool        // requests of informers fail
	cancel, stop     context.CancelFunc // of everything; of all but informers
	running, clients sync.WaitGroup

	mu       sync.Mutex
	faults   []string       // violations
	failures map[string]int // texts of failed requests, and how often
}

// chaosTarget is one resource.
type chaosTarget struct {
	gvr    schema.GroupVersionResource
	kind   string
	path   string
	fields string // of an object beyond its metadata, in JSON: `,"spec":{}`
	ledger ledger
	// writes and reads count successful requests.
	writes, reads atomic.Int64
	informer      cache.SharedIndexInformer
}

// chaosClient is one client of one target, on connections of its own.
type chaosClient struct {
	*chaosTarget
	load     *chaosLoad
	endpoint string
	http     *http.Client
}

// gate is the transport of informers: it fails while the load has switched them off.
type gate struct {
	http.RoundTripper
	off *atomic.Bool
}

func (g gate) RoundTrip(r *http.Request) (*http.Response, error) {
	if g.off.Load() {
		return nil, syscall.ECONNREFUSED
	}
	return g.RoundTripper.RoundTrip(r)
}

// startChaosLoad starts the clients. The informer of widgets is a dynamic one in JSON, that of
// ConfigMaps a typed one in protobuf.
func startChaosLoad(t *testing.T, up *e2e.Installation) *chaosLoad {
	t.Helper()
	d := e2e.DynamicClient(t, up.Config(t))
	e2e.Define(t, d, chaosGroup)
	l := &chaosLoad{failures: map[string]int{}, dynamic: d, pause: 50 * time.Millisecond}
	gated := up.Config(t)
	gated.Wrap(func(rt http.RoundTripper) http.RoundTripper { return gate{rt, &l.informersOff} })
	typed := rest.CopyConfig(gated)
	typed.ContentType = "application/vnd.kubernetes.protobuf"
	factory := informers.NewSharedInformerFactoryWithOptions(kubernetes.NewForConfigOrDie(typed), 0, informers.WithNamespace("default"))
	l.targets = []*chaosTarget{{
		gvr: e2e.WidgetsOf(chaosGroup), kind: "Widget", path: "/apis/" + chaosGroup + "/v1/namespaces/default/widgets",
		informer: dynamicinformer.NewDynamicSharedInformerFactory(e2e.DynamicClient(t, gated), 0).ForResource(e2e.WidgetsOf(chaosGroup)).Informer(),
	}, {
		gvr: corev1.SchemeGroupVersion.WithResource("configmaps"), kind: "ConfigMap", path: "/api/v1/namespaces/default/configmaps",
		informer: factory.Core().V1().ConfigMaps().Informer(),
	}}
	l.start(t, up)
	return l
}

// start starts the clients of all targets.
func (l *chaosLoad) start(t *testing.T, up *e2e.Installation) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	work, stop := context.WithCancel(ctx)
	l.cancel, l.stop = cancel, stop
	t.Cleanup(func() { cancel(); stop(); l.clients.Wait(); l.running.Wait() })
	for _, target := range l.targets {
		target.ledger.entries = map[string]entry{}
		l.inform(ctx, t, target)
		for _, run := range []func(*chaosClient, context.Context){(*chaosClient).write, (*chaosClient).read} {
			c := &chaosClient{target, l, up.Endpoint, e2e.HTTPClient(t, up.Config(t))}
			c.http.Timeout = await.Patience()
			l.clients.Go(func() { run(c, work) })
		}
	}
}

// inform runs the informer and checks that no object goes back to an earlier revision or
// returns after its deletion.
func (l *chaosLoad) inform(ctx context.Context, t *testing.T, target *chaosTarget) {
	newest, gone := map[string]int{}, map[string]bool{}
	note := func(obj any, deleted bool) {
		if last, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			gone[last.Obj.(metav1.Object).GetName()] = true
			return
		}
		o := obj.(metav1.Object)
		name := o.GetName()
		revision, err := strconv.Atoi(o.GetResourceVersion())
		if err != nil || revision < newest[name] || gone[name] {
			l.fault("the informer of %s has %s at %s after %d; deleted before: %t", target.gvr.Resource, name, o.GetResourceVersion(), newest[name], gone[name])
		}
		newest[name], gone[name] = revision, deleted
	}
	_, err := target.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { note(obj, false) },
		UpdateFunc: func(_, obj any) { note(obj, false) },
		DeleteFunc: func(obj any) { note(obj, true) },
	})
	if err != nil {
		t.Fatal(err)
	}
	l.running.Go(func() { target.informer.RunWithContext(ctx) })
}

// define creates a definition and waits until its resource is served.
func (l *chaosLoad) define(t *testing.T, group string) {
	t.Helper()
	e2e.Eventually(t, "create the definition of "+group, func() error {
		_, err := l.dynamic.Resource(e2e.Definitions).Create(t.Context(), e2e.Widgets(t, group), metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) { // created by an attempt without a response
			return nil
		}
		return err
	})
	e2e.Eventually(t, group+" is served", func() error {
		_, err := l.dynamic.Resource(e2e.WidgetsOf(group)).List(t.Context(), metav1.ListOptions{})
		return err
	})
	l.defined = append(l.defined, group)
}

// write creates objects, updates them and deletes three of four.
func (c *chaosClient) write(ctx context.Context) {
	for i := 0; ctx.Err() == nil; i++ {
		name := fmt.Sprintf("o-%d", i)
		c.writeOne(ctx, name, i%4 > 0)
		time.Sleep(c.load.pause)
	}
}

// writeOne creates, updates and perhaps deletes one object, until a write fails.
func (c *chaosClient) writeOne(ctx context.Context, name string, remove bool) {
	body := func(n int, fields string) string {
		return fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"name":%q,"annotations":{"n":"%d"}}%s}`, c.gvr.GroupVersion().String(), c.kind, name, n, fields)
	}
	if !c.change(ctx, http.MethodPost, "", name, body(1, c.fields), entry{n: 1, present: true}) {
		return
	}
	for n := 2; n <= 3; n++ {
		if !c.change(ctx, http.MethodPatch, "/"+name, name, body(n, ""), entry{n: n, present: true}) {
			return
		}
		data, ok := c.do(ctx, http.MethodGet, "/"+name, "", "")
		var o metav1.PartialObjectMetadata
		_ = json.Unmarshal(data, &o) // anything else has no number
		if ok && number(&o) != n {
			c.load.fault("%s %s is %d just after the write of %d was acknowledged", c.gvr.Resource, name, number(&o), n)
		}
	}
	if remove {
		c.change(ctx, http.MethodDelete, "/"+name, name, "", entry{})
	}
}

// change sends a write and records its result in the ledger.
func (c *chaosClient) change(ctx context.Context, method, path, name, body string, after entry) bool {
	under := after
	under.unknown = true
	c.ledger.note(name, under)
	if _, ok := c.do(ctx, method, path, "", body); !ok {
		return false
	}
	c.ledger.note(name, after)
	c.writes.Add(1)
	return true
}

// read lists in a loop, alternately the current state and any state (resourceVersion=0); the
// latter must not be older than an earlier response.
func (c *chaosClient) read(ctx context.Context) {
	last := 0
	for i := 0; ctx.Err() == nil; i++ {
		before := c.ledger.copy()
		query := ""
		if i%2 == 1 {
			query = "&resourceVersion=0"
		}
		data, ok := c.do(ctx, http.MethodGet, "", query, "")
		time.Sleep(c.load.pause)
		if !ok {
			continue
		}
		listed, revision := parseList(data)
		if revision < last {
			c.load.fault("a list of %s (%q) is at %d, and the client has seen %d", c.gvr.Resource, query, revision, last)
		}
		last = max(last, revision)
		if query == "" {
			if err := differs(before, c.ledger.copy(), listed); err != nil {
				c.load.fault("list of %s at %d: %v", c.gvr.Resource, revision, err)
			}
		}
		c.reads.Add(1)
	}
}

// do sends one request and reports whether it succeeded.
func (c *chaosClient) do(ctx context.Context, method, path, query, body string) ([]byte, bool) {
	contentType := "application/json"
	if method == http.MethodPatch {
		contentType = "application/merge-patch+json"
	}
	res, answer, err := e2e.Ask(ctx, c.http, method, c.endpoint+c.path+path+"?timeout="+requestTimeout.String()+query, body, "Content-Type: "+contentType)
	what := fmt.Sprintf("%s of %s", method, c.gvr.Resource)
	switch {
	case ctx.Err() != nil:
	case os.IsTimeout(err):
		c.load.fault("%s: no answer before the time of the test is over: %v", what, err)
	case err != nil:
		c.load.failed(what + ": connection: " + innermost(err).Error())
	case res.StatusCode < 300:
		return []byte(answer), true
	default:
		c.judge(what, res.StatusCode, []byte(answer))
	}
	return nil, false
}

// judge checks that the response to a failed request is a Status with a reason.
func (c *chaosClient) judge(what string, code int, data []byte) {
	var status metav1.Status
	_ = json.Unmarshal(data, &status) // anything else has no reason
	switch code {
	case http.StatusServiceUnavailable, http.StatusGatewayTimeout, http.StatusInternalServerError, http.StatusTooManyRequests:
		if status.Kind == "Status" && status.Reason != "" && status.Message != "" && int(status.Code) == code {
			c.load.failed(fmt.Sprintf("%s: %d %s: %s", what, code, status.Reason, status.Message))
			return
		}
	}
	c.load.fault("%s: %d %.500s", what, code, data)
}

func innermost(err error) error {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err
		}
		err = inner
	}
}

// fault records a violation; the first 20 are kept.
func (l *chaosLoad) fault(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.faults) < 20 {
		l.faults = append(l.faults, fmt.Sprintf(format, args...))
	}
}

var digits = regexp.MustCompile(`[0-9]{3,}`)

func (l *chaosLoad) failed(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failures[digits.ReplaceAllString(text, "N")]++
}

// awaitProgress waits until every client has ten more successful requests.
func (l *chaosLoad) awaitProgress(t *testing.T, when string) {
	t.Helper()
	writes, reads := map[*chaosTarget]int64{}, map[*chaosTarget]int64{}
	for _, target := range l.targets {
		writes[target], reads[target] = target.writes.Load()+10, target.reads.Load()+10
	}
	for _, target := range l.targets {
		e2e.Eventually(t, "clients of "+target.gvr.Resource+" make progress "+when, func() error {
			if w, r := writes[target]-target.writes.Load(), reads[target]-target.reads.Load(); w > 0 || r > 0 {
				return fmt.Errorf("%d writes and %d reads are missing", w, r)
			}
			return nil
		})
	}
}

// awaitInformers waits until each informer has every write that is acknowledged by now.
func (l *chaosLoad) awaitInformers(t *testing.T) {
	t.Helper()
	for _, target := range l.targets {
		before := target.ledger.copy()
		e2e.Eventually(t, "the informer of "+target.gvr.Resource+" is current", func() error {
			listed := map[string]int{}
			for _, o := range target.informer.GetStore().List() {
				if o := o.(metav1.Object); o.GetDeletionTimestamp() == nil {
					listed[o.GetName()] = number(o)
				}
			}
			return differs(before, target.ledger.copy(), listed)
		})
	}
}

// finish checks the informers and the definitions, stops the load and reports.
func (l *chaosLoad) finish(t *testing.T) {
	t.Helper()
	l.awaitInformers(t)
	for _, group := range l.defined {
		if _, err := l.dynamic.Resource(e2e.WidgetsOf(group)).List(t.Context(), metav1.ListOptions{}); err != nil {
			t.Errorf("the definition of %s was acknowledged: %v", group, err)
		}
	}
	for _, target := range l.targets {
		t.Logf("%s: %d writes and %d lists", target.gvr.Resource, target.writes.Load(), target.reads.Load())
	}
	l.cancel()
	l.clients.Wait()
	l.running.Wait()
	for _, text := range slices.Sorted(maps.Keys(l.failures)) {
		t.Logf("%4d times: %s", l.failures[text], text)
	}
	for _, fault := range l.faults {
		t.Error(fault)
	}
}

// number returns the annotation that the last write has set; 0 without one.
func number(o metav1.Object) int {
	n, _ := strconv.Atoi(o.GetAnnotations()["n"])
	return n
}

// parseList returns the numbers of objects that are not being deleted, by name, and the revision.
func parseList(data []byte) (map[string]int, int) {
	var list metav1.PartialObjectMetadataList
	_ = json.Unmarshal(data, &list) // anything else has no revision
	listed := map[string]int{}
	for i := range list.Items {
		if o := &list.Items[i]; o.DeletionTimestamp == nil {
			listed[o.Name] = number(o)
		}
	}
	revision, _ := strconv.Atoi(list.GetResourceVersion())
	return listed, revision
}
