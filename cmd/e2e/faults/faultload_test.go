package faults

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico/cmd/e2e"
	"portico/internal/testing/await"
)

const (
	faultGroup = "faults.example.com"
	faultPath  = "/apis/" + faultGroup + "/v1/namespaces/default/widgets"
	// faultReaders and faultWriters are clients that send one request after the other, with
	// a pause of faultPause between.
	faultReaders, faultWriters = 4, 2
	faultPause                 = 50 * time.Millisecond
	// faultLabel identifies a write, also if it is executed twice with generated names.
	faultLabel = "write"
)

// faultLoad is clients of widgets: readers that get and list, and writers that create, patch,
// update and delete objects of their own. It records every request that fails.
type faultLoad struct {
	endpoint string
	cancel   context.CancelFunc
	running  sync.WaitGroup
	reads    atomic.Int64
	writes   atomic.Int64
	next     atomic.Int64

	mu     sync.Mutex
	failed []failedRequest
	// acknowledged are the values of faultLabel of objects that exist.
	acknowledged map[string]bool
	// answered are the writes that succeeded, as writeOf names them.
	answered map[string]bool
}

// writeOf returns an identifier of a write of the load.
func writeOf(method, path, body string) string {
	if method == http.MethodPost {
		_, after, _ := strings.Cut(body, `"`+faultLabel+`":"`)
		path, _, _ = strings.Cut(after, `"`)
	}
	return method + " " + path
}

// done reports whether a write has succeeded.
func (l *faultLoad) done(write string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.answered[write]
}

// failedRequest is a request without a response, or with an error.
type failedRequest struct {
	method, path, how string
	write             string // as writeOf names it
	began, ended      time.Time
}

func (r failedRequest) safe() bool { return r.method == http.MethodGet }

func (r failedRequest) String() string {
	return fmt.Sprintf("%s %s at %s for %v: %s", r.method, r.path, r.began.Format("05.000"), r.ended.Sub(r.began).Round(time.Millisecond), r.how)
}

func startFaultLoad(t *testing.T, f *fleet) *faultLoad {
	t.Helper()
	widgets := e2e.Define(t, e2e.DynamicClient(t, f.up.Config(t)), faultGroup).Namespace("default")
	// Large enough for a response to break off.
	read := e2e.Widget(faultGroup, "read")
	read.Object["spec"] = map[string]any{"text": strings.Repeat("0123456789", 400)}
	if _, err := widgets.Create(t.Context(), read, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	l := &faultLoad{endpoint: f.up.Endpoint, cancel: cancel, acknowledged: map[string]bool{}, answered: map[string]bool{}}
	t.Cleanup(l.stop)
	for i := range faultReaders + faultWriters + 1 {
		client := e2e.HTTPClient(t, f.up.Config(t))
		client.Timeout = await.Patience()
		work := l.read
		switch {
		case i == 0:
			work = l.watch
		case i > faultReaders:
			work = l.write
		}
		l.running.Go(func() { work(ctx, client) })
	}
	l.progress(t, "at first", 40, 10)
	return l
}

// stop stops the clients.
func (l *faultLoad) stop() {
	l.cancel()
	l.running.Wait()
}

// progress waits until so many more reads and writes have succeeded.
func (l *faultLoad) progress(t *testing.T, when string, moreReads, moreWrites int64) {
	t.Helper()
	reads, writes := l.reads.Load()+moreReads, l.writes.Load()+moreWrites
	e2e.Eventually(t, "requests succeed "+when, func() error {
		if r, w := l.reads.Load(), l.writes.Load(); r < reads || w < writes {
			return fmt.Errorf("%d reads and %d writes are missing", reads-r, writes-w)
		}
		return nil
	})
}

func (l *faultLoad) read(ctx context.Context, client *http.Client) {
	for i := 0; ctx.Err() == nil; i++ {
		path := faultPath + "/read"
		if i%4 == 3 {
			path = faultPath + "?limit=3"
		}
		if _, ok := l.ask(ctx, client, http.MethodGet, path, "", ""); ok {
			l.reads.Add(1)
		}
		time.Sleep(faultPause)
	}
}

// watch opens one watch after the other. Each must begin with 200; it may end at any time, as a
// client opens another one.
func (l *faultLoad) watch(ctx context.Context, client *http.Client) {
	for ctx.Err() == nil {
		l.ask(ctx, client, http.MethodGet, faultPath+watchQuery, "", "")
		time.Sleep(faultPause)
	}
}

const watchQuery = "?watch=1&timeoutSeconds=1"

// write creates, patches, updates and deletes one object after the other, as its only writer:
// an update that is executed twice is a conflict, and a delete a 404. After a request with an
// unknown result it continues with another object.
func (l *faultLoad) write(ctx context.Context, client *http.Client) {
	for ; ctx.Err() == nil; time.Sleep(faultPause) {
		id := fmt.Sprint("w", l.next.Add(1))
		answer, ok := l.ask(ctx, client, http.MethodPost, faultPath, `{"apiVersion":"`+faultGroup+`/v1","kind":"Widget",
			"metadata":{"generateName":"written-","labels":{"`+faultLabel+`":"`+id+`"}},"spec":{"n":1}}`, "application/json")
		if !ok {
			continue
		}
		l.acknowledge(id, 1)
		var made metav1.PartialObjectMetadata
		if err := json.Unmarshal([]byte(answer), &made); err != nil {
			l.fail(failedRequest{method: http.MethodPost, path: faultPath, how: err.Error(), began: time.Now(), ended: time.Now()})
			continue
		}
		at := faultPath + "/" + made.Name
		for _, step := range []struct{ method, kind string }{
			{http.MethodPatch, "application/merge-patch+json"}, {http.MethodPut, "application/json"}, {http.MethodDelete, ""},
		} {
			time.Sleep(faultPause)
			body := ""
			switch step.method {
			case http.MethodPatch:
				body = `{"spec":{"n":2}}`
			case http.MethodPut:
				body = strings.Replace(answer, `"n":2`, `"n":3`, 1)
			case http.MethodDelete:
				l.acknowledge(id, -1) // deleted, or unknown
			}
			if answer, ok = l.ask(ctx, client, step.method, at, body, step.kind); !ok {
				break
			}
			l.writes.Add(1)
			// Every other one is kept for judge.
			if step.method == http.MethodPut && l.next.Load()%2 == 0 {
				break
			}
		}
	}
}

// acknowledge records that an object exists, or with n < 0 that it may not.
func (l *faultLoad) acknowledge(id string, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n < 0 {
		delete(l.acknowledged, id)
		return
	}
	l.acknowledged[id] = true
	l.writes.Add(1)
}

// ask sends one request and records its failure, unless the load has ended.
func (l *faultLoad) ask(ctx context.Context, client *http.Client, method, path, body, kind string) (answer string, ok bool) {
	began, write := time.Now(), writeOf(method, path, body)
	resp, answer, err := e2e.Ask(ctx, client, method, l.endpoint+path, body, "Content-Type: "+kind)
	switch {
	case resp != nil && resp.StatusCode >= 400:
		err = fmt.Errorf("%s: %.300s", resp.Status, answer)
	case resp != nil && strings.HasSuffix(path, watchQuery):
		err = nil // it began with 200
	}
	if err != nil {
		if ctx.Err() == nil {
			l.fail(failedRequest{method: method, path: path, write: write, how: err.Error(), began: began, ended: time.Now()})
		}
		return answer, false
	}
	if method != http.MethodGet {
		l.mu.Lock()
		l.answered[write] = true
		l.mu.Unlock()
	}
	return answer, true
}

func (l *faultLoad) fail(r failedRequest) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failed = append(l.failed, r)
}

// failures returns the requests that have failed since the last call.
func (l *faultLoad) failures() []failedRequest {
	l.mu.Lock()
	defer l.mu.Unlock()
	failed := l.failed
	l.failed = nil
	return failed
}

// quiet checks that reads and writes succeed, and that none has failed since the last call of
// failures.
func (l *faultLoad) quiet(t *testing.T, when string) {
	t.Helper()
	l.progress(t, when, 40, 10)
	for _, r := range l.failures() {
		t.Errorf("failed %s: %v", when, r)
	}
}

// settle waits until requests succeed, drops earlier failures, and checks that there are no new
// ones.
func (l *faultLoad) settle(t *testing.T, when string) {
	t.Helper()
	l.progress(t, when, 40, 10)
	l.failures()
	l.quiet(t, when)
}

// present returns how many objects exist of each create.
func (l *faultLoad) present(t *testing.T, f *fleet) map[string]int {
	t.Helper()
	list, err := e2e.DynamicClient(t, f.up.Config(t)).Resource(e2e.WidgetsOf(faultGroup)).Namespace("default").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	count := map[string]int{}
	for _, o := range list.Items {
		if id := o.GetLabels()[faultLabel]; id != "" {
			count[id]++
		}
	}
	return count
}

// judge checks that every acknowledged object exists, and that no create was executed twice.
func (l *faultLoad) judge(t *testing.T, f *fleet) {
	t.Helper()
	l.stop()
	count := l.present(t, f)
	for id, n := range count {
		if n > 1 {
			t.Errorf("create %s was executed %d times", id, n)
		}
	}
	for id := range l.acknowledged {
		if count[id] == 0 {
			t.Errorf("create %s was acknowledged, and the object does not exist", id)
		}
	}
	t.Logf("%d reads and %d writes succeeded; %d objects exist", l.reads.Load(), l.writes.Load(), len(count))
}
