package faults

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"portico/cmd/e2e"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
)

const (
	// askedTimeout is what each request asks for, and hardTimeout when a client
	// gives up: an answer must have come long before.
	askedTimeout = 3 * time.Second
	hardTimeout  = 20 * time.Second
	// chaosGroup is that of the custom resources.
	chaosGroup = "chaos.example.com"
)

// chaosLoad is clients at work on two resources: for each a writer, a reader
// that lists, and an informer. It holds them to this:
//
//   - a write that was acknowledged is there for everybody who asks later;
//   - a delete that was acknowledged stays done;
//   - nobody who reads twice sees an older state the second time;
//   - a request that fails got a Status that gives a reason, or a connection
//     error, in time;
//   - an informer ends up with what is there.
type chaosLoad struct {
	targets []*chaosTarget
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu       sync.Mutex
	faults   []string       // what must not be
	failures map[string]int // texts of failed requests, and how often
}

// chaosTarget is one resource.
type chaosTarget struct {
	gvr    schema.GroupVersionResource
	kind   string
	path   string
	ledger ledger
	// writes and reads count what succeeded.
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

func startChaosLoad(t *testing.T, up *e2e.Installation) *chaosLoad {
	t.Helper()
	d := e2e.DynamicClient(t, up.Config(t))
	e2e.Define(t, d, chaosGroup)
	l := &chaosLoad{failures: map[string]int{}, targets: []*chaosTarget{
		{gvr: e2e.WidgetsOf(chaosGroup), kind: "Widget", path: "/apis/" + chaosGroup + "/v1/namespaces/default/widgets"},
		{gvr: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, kind: "ConfigMap", path: "/api/v1/namespaces/default/configmaps"},
	}}
	ctx, cancel := context.WithCancel(t.Context())
	l.cancel = cancel
	t.Cleanup(func() { cancel(); l.running.Wait() })
	for _, target := range l.targets {
		target.ledger.entries = map[string]entry{}
		l.inform(ctx, t, d, target)
		for _, work := range []func(*chaosClient, context.Context){(*chaosClient).write, (*chaosClient).read} {
			c := &chaosClient{target, l, up.Endpoint, e2e.HTTPClient(t, up.Config(t))}
			c.http.Timeout = hardTimeout
			l.running.Go(func() { work(c, ctx) })
		}
	}
	return l
}

// inform runs an informer, which must see no object go backwards.
func (l *chaosLoad) inform(ctx context.Context, t *testing.T, d dynamic.Interface, target *chaosTarget) {
	list := d.Resource(target.gvr).Namespace("default")
	target.informer = cache.NewSharedIndexInformer(&cache.ListWatch{
		ListWithContextFunc:  func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return list.List(ctx, o) },
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) { return list.Watch(ctx, o) },
	}, &unstructured.Unstructured{}, 0, nil)
	gone := map[string]bool{}
	_, err := target.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(o any) {
			if name := o.(*unstructured.Unstructured).GetName(); gone[name] {
				l.fault("the informer of %s sees %s come back", target.gvr.Resource, name)
			}
		},
		UpdateFunc: func(was, is any) {
			if a, b := was.(*unstructured.Unstructured), is.(*unstructured.Unstructured); number(b) < number(a) {
				l.fault("the informer of %s sees %s go from %d back to %d", target.gvr.Resource, a.GetName(), number(a), number(b))
			}
		},
		DeleteFunc: func(o any) {
			if last, ok := o.(cache.DeletedFinalStateUnknown); ok {
				o = last.Obj
			}
			gone[o.(*unstructured.Unstructured).GetName()] = true
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	l.running.Go(func() { target.informer.RunWithContext(ctx) })
}

// write creates objects, changes them and deletes every other one.
func (c *chaosClient) write(ctx context.Context) {
	for i := 0; ctx.Err() == nil; i++ {
		name := fmt.Sprintf("o-%d", i)
		if c.writeOne(ctx, name, i%2 == 0) {
			continue
		}
		// Not at full speed into a wall.
		time.Sleep(10 * time.Millisecond)
	}
}

// writeOne is the life of one object; false once a write has failed.
func (c *chaosClient) writeOne(ctx context.Context, name string, remove bool) bool {
	body := func(n int) string {
		return fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"name":%q,"annotations":{"n":"%d"}}}`, c.gvr.GroupVersion().String(), c.kind, name, n)
	}
	if !c.change(ctx, http.MethodPost, "", name, body(1), entry{n: 1, present: true}) {
		return false
	}
	for n := 2; n <= 3; n++ {
		if !c.change(ctx, http.MethodPatch, "/"+name, name, body(n), entry{n: n, present: true}) {
			return false
		}
		data, ok := c.do(ctx, http.MethodGet, "/"+name, "", "")
		if o := parseObject(data); ok && number(o) != n {
			c.load.fault("%s %s is %d just after the write of %d was acknowledged", c.gvr.Resource, name, number(o), n)
		}
	}
	return !remove || c.change(ctx, http.MethodDelete, "/"+name, name, "", entry{})
}

// change sends a write and notes what is known about it.
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

// read lists again and again: what is current, and what is at hand, which must
// not be older than what was seen before.
func (c *chaosClient) read(ctx context.Context) {
	last := 0
	for i := 0; ctx.Err() == nil; i++ {
		before := c.ledger.copy()
		query := ""
		if i%2 == 1 {
			query = "&resourceVersion=0"
		}
		data, ok := c.do(ctx, http.MethodGet, "", query, "")
		if !ok {
			time.Sleep(10 * time.Millisecond)
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

// do sends one request; false if it failed.
func (c *chaosClient) do(ctx context.Context, method, path, query, body string) ([]byte, bool) {
	began := time.Now()
	req, err := http.NewRequestWithContext(ctx, method, c.endpoint+c.path+path+"?timeout="+askedTimeout.String()+query, strings.NewReader(body))
	if err != nil {
		c.load.fault("%v", err)
		return nil, false
	}
	req.Header.Set("Content-Type", "application/json")
	if method == http.MethodPatch {
		req.Header.Set("Content-Type", "application/merge-patch+json")
	}
	res, err := c.http.Do(req)
	var data []byte
	if err == nil {
		data, err = io.ReadAll(res.Body)
		res.Body.Close()
	}
	what := fmt.Sprintf("%s of %s", method, c.gvr.Resource)
	switch took := time.Since(began); {
	case ctx.Err() != nil:
		return nil, false
	case err != nil && took >= hardTimeout:
		c.load.fault("%s: no answer within %v: %v", what, took, err)
		return nil, false
	case err != nil:
		c.load.failed(what + ": connection: " + innermost(err).Error())
		return nil, false
	case res.StatusCode < 300:
		return data, true
	}
	c.judge(what, res.StatusCode, data)
	return nil, false
}

// judge looks whether the answer to a failed request is worth something.
func (c *chaosClient) judge(what string, code int, data []byte) {
	var status metav1.Status
	_ = json.Unmarshal(data, &status) // what is no Status has no reason
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

// fault notes what must not be; the first ones are enough.
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

// awaitProgress waits until every client has succeeded some times more.
func (l *chaosLoad) awaitProgress(t *testing.T, when string) {
	t.Helper()
	const some = 10
	for _, target := range l.targets {
		writes, reads := target.writes.Load()+some, target.reads.Load()+some
		e2e.Eventually(t, "clients of "+target.gvr.Resource+" get on "+when, func() error {
			if w, r := writes-target.writes.Load(), reads-target.reads.Load(); w > 0 || r > 0 {
				return fmt.Errorf("%d writes and %d reads are missing", w, r)
			}
			return nil
		})
	}
}

// finish waits for informers to know all, ends the load and reports.
func (l *chaosLoad) finish(t *testing.T) {
	t.Helper()
	for _, target := range l.targets {
		e2e.Eventually(t, "the informer of "+target.gvr.Resource+" has what is there", func() error {
			before, listed := target.ledger.copy(), map[string]int{}
			for _, o := range target.informer.GetStore().List() {
				listed[o.(*unstructured.Unstructured).GetName()] = number(o.(*unstructured.Unstructured))
			}
			return differs(before, target.ledger.copy(), listed)
		})
		t.Logf("%s: %d writes and %d lists", target.gvr.Resource, target.writes.Load(), target.reads.Load())
	}
	l.cancel()
	l.running.Wait()
	for _, text := range slices.Sorted(maps.Keys(l.failures)) {
		t.Logf("%4d times: %s", l.failures[text], text)
	}
	for _, fault := range l.faults {
		t.Error(fault)
	}
}

// number is what the last write has put into an object.
func number(o *unstructured.Unstructured) int {
	n, _ := strconv.Atoi(o.GetAnnotations()["n"]) // 0, which nobody writes
	return n
}

func parseObject(data []byte) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{}}
	_ = o.UnmarshalJSON(data) // what is no object has no number
	return o
}

// parseList returns what is listed, and its revision.
func parseList(data []byte) (map[string]int, int) {
	var list unstructured.UnstructuredList
	_ = list.UnmarshalJSON(data) // what is no list has no revision
	listed := map[string]int{}
	for i := range list.Items {
		listed[list.Items[i].GetName()] = number(&list.Items[i])
	}
	revision, _ := strconv.Atoi(list.GetResourceVersion())
	return listed, revision
}
