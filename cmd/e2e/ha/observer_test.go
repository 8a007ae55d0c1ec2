package ha

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

const (
	// answerTime is the longest time of a request that is not a watch: above what etcd is waited
	// for when the outcome of a write is unknown.
	answerTime = 15 * time.Second
	// aftermath is how long after a fault requests may fail because of it.
	aftermath = 6 * time.Second
)

// observer counts the requests of all clients, and judges failures by what the contract allows
// (docs/operations.md, High availability). Safe for concurrent use.
type observer struct {
	mu    sync.Mutex
	fault *fault // the current or last one; nil before the first
	// sent counts requests, failed those that failed, each by the fault.
	sent   map[string]int
	failed map[string]map[string]int
	wrong  []string
	// restarts: faults are restarts in order. Of these only that of a member of etcd may leave the
	// outcome of a creation or an update unknown.
	restarts bool
	// refusals is how the names of faults begin in which a process of v0.1.0 ends: it may answer 429, as it closes no
	// connection and its gateways are slower to notice. "": none.
	refusals string
}

// fault is one fault of one process.
type fault struct {
	name, process string
	over          time.Time // zero while it lasts
}

func newObserver() *observer {
	return &observer{sent: map[string]int{}, failed: map[string]map[string]int{}}
}

// begin starts a fault, which the function that it returns ends.
func (o *observer) begin(name, process string) (end func()) {
	f := &fault{name: name, process: process}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.fault = f
	return func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		f.over = time.Now()
	}
}

// door returns a configuration of clients at an endpoint, the requests of which are observed.
// through is the gateway that they reach; "" for the load balancer.
func (o *observer) door(cfg *rest.Config, endpoint, through string) *rest.Config {
	cfg = rest.CopyConfig(cfg)
	cfg.Host = endpoint
	cfg.Wrap(func(rt http.RoundTripper) http.RoundTripper { return &observed{rt, o, through} })
	return cfg
}

// observed is the transport of a client.
type observed struct {
	http.RoundTripper
	observer *observer
	through  string
}

func (t *observed) RoundTrip(r *http.Request) (*http.Response, error) {
	caller, watch := r.Context(), r.URL.Query().Get("watch") != ""
	ctx, cancel := context.WithCancel(caller)
	if !watch {
		ctx, cancel = context.WithTimeout(caller, answerTime)
	}
	before := t.observer.current()
	resp, err := t.RoundTripper.RoundTrip(r.WithContext(ctx))
	what := r.Method
	if watch {
		what = "WATCH"
	}
	switch {
	case err != nil && caller.Err() != nil:
		cancel()
		return nil, err
	case err != nil:
		cancel()
		t.observer.note(before, what, t.through, "no answer", err.Error())
		return nil, err
	case resp.StatusCode >= 500 || resp.StatusCode == http.StatusTooManyRequests:
		defer cancel()
		data, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		resp.Body = io.NopCloser(bytes.NewReader(data))
		status := &metav1.Status{}
		if _, _, err := scheme.Codecs.UniversalDeserializer().Decode(data, nil, status); err != nil || int(status.Code) != resp.StatusCode || status.Reason == "" || status.Message == "" {
			t.observer.reject("%s: %d %.300q: no Status (%v)", what, resp.StatusCode, data, err)
		}
		t.observer.note(before, what, t.through, fmt.Sprint(resp.StatusCode), status.Message)
		return resp, err
	}
	t.observer.note(before, what, t.through, "", "")
	resp.Body = &body{resp.Body, cancel}
	return resp, nil
}

// body ends the request when it is closed.
type body struct {
	io.ReadCloser
	cancel context.CancelFunc
}

func (b *body) Close() error {
	defer b.cancel()
	return b.ReadCloser.Close()
}

// current returns the fault that may fail requests now; nil if there is none.
func (o *observer) current() *fault {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.currentLocked()
}

func (o *observer) currentLocked() *fault {
	if f := o.fault; f != nil && (f.over.IsZero() || time.Since(f.over) < aftermath) {
		return f
	}
	return nil
}

// note counts one request, which was sent during a fault or before one; class is "" if it
// succeeded. It is charged to that fault if that may fail it, else to the current one: etcd's
// request timeout may end in the next fault.
func (o *observer) note(before *fault, what, through, class, message string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	f, name := o.currentLocked(), "no fault"
	if class != "" && o.excuses(before, through, class, message) {
		f = before
	}
	if f != nil {
		name = f.name
	}
	o.sent[name]++
	if class == "" {
		return
	}
	if o.failed[name] == nil {
		o.failed[name] = map[string]int{}
	}
	o.failed[name][what+" "+class]++
	if !o.excuses(f, through, class, message) {
		o.rejectLocked("%s through %s during %s: %s %s", what, through, name, class, message)
	}
}

// excuses reports whether a request may fail because of a fault.
func (o *observer) excuses(f *fault, through, class, message string) bool {
	switch {
	case f == nil:
		return false
	case !o.restarts:
		// Only the gateway that a client is connected to may leave it without an answer.
		return class != "no answer" || f.process == through
	case strings.HasPrefix(f.process, "etcd") && strings.Contains(message, "it is not known whether etcd"):
		return true
	}
	return o.refusals != "" && strings.HasPrefix(f.name, o.refusals) && class == "429" && strings.Contains(message, "is shutting down")
}

func (o *observer) reject(format string, args ...any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.rejectLocked(format, args...)
}

// rejectLocked records a failure that the contract does not allow; the first 20 are kept.
func (o *observer) rejectLocked(format string, args ...any) {
	if len(o.wrong) < 20 {
		o.wrong = append(o.wrong, time.Now().Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
	}
}

// report logs the figures and fails the test for what the contract does not allow.
func (o *observer) report(t *testing.T) {
	t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(o.sent)) {
		var classes []string
		sum := 0
		for _, class := range slices.Sorted(maps.Keys(o.failed[name])) {
			sum += o.failed[name][class]
			classes = append(classes, fmt.Sprintf("%s × %d", class, o.failed[name][class]))
		}
		t.Logf("%-28s %6d requests, %4d failed (%.2f %%) %s", name, o.sent[name], sum, 100*float64(sum)/float64(o.sent[name]), strings.Join(classes, ", "))
	}
	if len(o.wrong) > 0 {
		t.Error(errors.New("not allowed:\n" + strings.Join(o.wrong, "\n")))
	}
}
