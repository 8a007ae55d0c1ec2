package faults

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"portico/cmd/e2e"
	"portico/internal/testing/await"
)

const (
	// silenceLasts is longer than each timeout of requests to etcd: of reads (5 s), leases
	// (6 s), writes (10 s), and of the connection (20 s).
	silenceLasts = 24 * time.Second
	// knownLasts is how long etcd stays stopped at least after every process has noticed.
	knownLasts = 8 * time.Second
	// silenceKnown is the bar of that, with or without requests.
	silenceKnown = 12 * time.Second
	// silenceBound is the bar of a request that began before that. A read may have waited for several
	// servers, one after the other.
	silenceBound = 20 * time.Second
	// memoryLimit is the bar of a response from memory, and of a refusal.
	memoryLimit = 4 * time.Second
	// backLimit is the bar of the time until everything is served after etcd continues.
	backLimit = 6 * time.Second
)

// While etcd is stopped, objects in memory are served; every other request ends in bounded time
// with a Status, of which a 503 means that nothing was written; and everything is served again
// when etcd continues.
func TestStoppedEtcd(t *testing.T) {
	t.Parallel()
	f := startFleet(t, 2)
	load := startFaultLoad(t, f)
	load.settle(t, "before etcd is stopped")
	client := e2e.HTTPClient(t, f.up.Config(t))
	seen := f.follow(t)
	if err := f.etcd.Cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	resume := sync.OnceFunc(func() { _ = f.etcd.Cmd.Process.Signal(syscall.SIGCONT) })
	defer resume()
	var asked sync.WaitGroup
	var tries tries
	var known time.Time
	for i := 0; known.IsZero() || time.Since(began) < silenceLasts || time.Since(known) < knownLasts; i++ {
		if known.IsZero() && f.knowsSilence(t) {
			known = time.Now()
		}
		f.remembered(t, client)
		for _, r := range f.needy(i) {
			asked.Go(func() { tries.add(r.send(t, client, f.up.Endpoint)) })
		}
		time.Sleep(500 * time.Millisecond)
	}
	await.Bar(t, "the notice that etcd does not answer", known.Sub(began), silenceKnown)
	f.expectSilenceReported(t, client)
	resume()
	back := time.Now()
	for _, r := range f.needy(-1) {
		e2e.Within(t, backLimit, "after etcd is back: "+r.method+" "+r.path, func() error {
			if got := r.send(t, client, f.up.Endpoint); got.code >= 300 && got.code != http.StatusConflict {
				return fmt.Errorf("%d %.300s", got.code, got.answer)
			}
			return nil
		})
	}
	t.Logf("everything is served %v after etcd continued", time.Since(back).Round(time.Millisecond))
	seen(t, "silence--1")
	asked.Wait()
	tries.judge(t, client, f, began, known)
	load.progress(t, "after etcd is back", 40, 10)
	count := load.present(t, f)
	for _, r := range load.failures() {
		judgeSilence(t, r, known, back)
		if _, id, _ := strings.Cut(r.write, " "); r.method == http.MethodPost && strings.Contains(r.how, "503") && count[id] > 0 {
			t.Errorf("was refused and executed: %v", r)
		}
	}
	load.quiet(t, "after etcd is back")
	load.judge(t, f)
}

// judgeSilence checks how a request of the load has failed.
func judgeSilence(t *testing.T, r failedRequest, known, back time.Time) {
	t.Helper()
	bar := silenceBound
	if r.began.After(known) {
		bar = memoryLimit
	}
	await.Bar(t, fmt.Sprint("the failure of ", r), r.ended.Sub(r.began), bar)
	await.Bar(t, fmt.Sprint("after etcd was back, the failure of ", r), r.ended.Sub(back), backLimit)
	switch {
	case !strings.Contains(r.how, `"kind":"Status"`):
		t.Errorf("failed without a Status: %v", r)
	case r.began.After(known) && r.began.Before(back) && !strings.HasPrefix(r.how, "503"):
		t.Errorf("failed without 503: %v", r)
	}
}

// knowsSilence reports whether the log of every process says that etcd does not answer.
func (f *fleet) knowsSilence(t *testing.T) bool {
	t.Helper()
	for name := range f.nodes {
		if f.silences(t, name) == 0 {
			return false
		}
	}
	return true
}

// silences returns how often the log of a process says that etcd does not answer.
func (f *fleet) silences(t *testing.T, name string) int {
	t.Helper()
	log, err := os.ReadFile(filepath.Join(f.up.Dir, "logs", name+".log"))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(log), "etcd does not answer: ")
}

// remembered checks the responses from memory.
func (f *fleet) remembered(t *testing.T, client *http.Client) {
	t.Helper()
	for path, want := range map[string]string{
		"/apis":                                                   faultGroup,
		"/apis/" + faultGroup + "/v1":                             "widgets",
		"/openapi/v3":                                             faultGroup,
		faultPath + "/read?resourceVersion=0":                     `"0123456789`,
		faultPath + "?resourceVersion=0":                          `"0123456789`,
		"/api/v1/namespaces?resourceVersion=0":                    "kube-system",
		"/apis/apiregistration.k8s.io/v1?timeout=2s":              "apiservices",
		faultPath + "?watch=1&timeoutSeconds=1&resourceVersion=0": `"ADDED"`,
	} {
		asked := time.Now()
		code, body := e2e.Get(t, client, f.up.Endpoint+path, "")
		if code != http.StatusOK || !strings.Contains(body, want) {
			t.Errorf("%s: %d %.300s", path, code, body)
		}
		await.Bar(t, path, time.Since(asked), memoryLimit)
	}
}

// expectSilenceReported checks the readiness check, the metrics and the logs.
func (f *fleet) expectSilenceReported(t *testing.T, client *http.Client) {
	t.Helper()
	asked := time.Now()
	if code, body := e2e.Get(t, client, f.up.Endpoint+"/readyz", ""); code != http.StatusInternalServerError || !strings.Contains(body, "[-]etcd failed") {
		t.Errorf("/readyz: %d %s", code, body)
	}
	await.Bar(t, "/readyz", time.Since(asked), memoryLimit)
	if _, body := e2e.Get(t, client, f.up.Endpoint+"/metrics", ""); !strings.Contains(body, "portico_etcd_silent 1\n") {
		t.Error("the metrics do not say that etcd is silent")
	}
	for name := range f.nodes {
		if n := f.silences(t, name); n != 1 {
			t.Errorf("the log of %s has %d lines that etcd does not answer", name, n)
		}
	}
}

// try is a request that needs etcd, and its response.
type try struct {
	method, path, body string
	name               string // of the object that it creates; "" for a read

	code         int
	answer       string
	retryAfter   string
	began, ended time.Time
}

// needy returns a read and a write for each process; i makes their names unique.
func (f *fleet) needy(i int) []try {
	name := fmt.Sprint("silence-", i)
	const maps = "/api/v1/namespaces/default/configmaps"
	const events = "/api/v1/namespaces/default/events"
	const roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
	meta := `,"metadata":{"name":"` + name + `"}`
	return []try{
		{method: http.MethodGet, path: faultPath + "/read"},
		{method: http.MethodGet, path: maps},
		{method: http.MethodGet, path: roles + "?limit=2"},
		{method: http.MethodPost, path: faultPath, name: name, body: `{"apiVersion":"` + faultGroup + `/v1","kind":"Widget"` + meta + `}`},
		{method: http.MethodPost, path: maps, name: name, body: `{"apiVersion":"v1","kind":"ConfigMap"` + meta + `}`},
		{method: http.MethodPost, path: events, name: name, body: `{"apiVersion":"v1","kind":"Event","involvedObject":{"namespace":"default"}` + meta + `}`},
		{method: http.MethodPost, path: roles, name: name, body: role(name)},
	}
}

// send sends the request, and checks that the response is complete.
func (r try) send(t *testing.T, client *http.Client, endpoint string) try {
	r.began = time.Now()
	resp, answer, err := e2e.Ask(t.Context(), client, r.method, endpoint+r.path, r.body)
	if err != nil {
		t.Errorf("%s %s: %s: %v", r.method, r.path, answer, err)
		return r
	}
	r.code, r.answer, r.retryAfter, r.ended = resp.StatusCode, answer, resp.Header.Get("Retry-After"), time.Now()
	return r
}

// tries are the requests that were sent while etcd was stopped.
type tries struct {
	mu  sync.Mutex
	all []try
}

func (ts *tries) add(r try) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	ts.all = append(ts.all, r)
}

// judge checks the responses, and that no refused write was executed.
func (ts *tries) judge(t *testing.T, client *http.Client, f *fleet, began, noticed time.Time) {
	t.Helper()
	codes, slowest := map[int]int{}, map[bool]time.Duration{}
	for _, r := range ts.all {
		if r.code == 0 {
			continue // reported
		}
		codes[r.code]++
		known := r.began.After(noticed)
		slowest[known] = max(slowest[known], r.ended.Sub(r.began))
		var status metav1.Status
		failed := r.code >= 400
		switch err := json.Unmarshal([]byte(r.answer), &status); {
		case !failed:
		case err != nil || status.Kind != "Status" || int(status.Code) != r.code:
			t.Errorf("%s %s: %d %s is no Status (%v)", r.method, r.path, r.code, r.answer, err)
		case r.code == http.StatusServiceUnavailable && r.retryAfter == "":
			t.Errorf("%s %s: 503 without Retry-After: %s", r.method, r.path, r.answer)
		case r.code == http.StatusGatewayTimeout && r.method != http.MethodGet && r.retryAfter != "":
			t.Errorf("%s %s: clients would repeat a write that may have been executed: %s", r.method, r.path, r.answer)
		case r.code != http.StatusServiceUnavailable && (known || r.code != http.StatusGatewayTimeout):
			t.Errorf("%s %s %v after etcd was stopped: %d %s", r.method, r.path, r.began.Sub(began), r.code, r.answer)
		}
		if r.name != "" && r.code != http.StatusGatewayTimeout {
			if code, body := e2e.Get(t, client, f.up.Endpoint+r.path+"/"+r.name, ""); (code == http.StatusOK) == failed {
				t.Errorf("%s %s: the response was %d, and a later GET is %d %.300s", r.path, r.name, r.code, code, body)
			}
		}
	}
	t.Logf("while etcd was stopped: responses %v, the slowest after %v, later ones after %v",
		codes, slowest[false].Round(time.Millisecond), slowest[true].Round(time.Millisecond))
	await.Bar(t, "the slowest response", slowest[false], silenceBound)
	await.Bar(t, "the slowest response after the notice", slowest[true], memoryLimit)
}

// follow opens a watch of ConfigMaps that starts now. seen waits until it has the creation of an
// object; the watch must not have ended or failed.
func (f *fleet) follow(t *testing.T) (seen func(t *testing.T, name string)) {
	t.Helper()
	maps := f.up.Client(t).CoreV1().ConfigMaps("default")
	list, err := maps.List(t.Context(), metav1.ListOptions{Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	stream, err := maps.Watch(t.Context(), metav1.ListOptions{ResourceVersion: list.ResourceVersion, TimeoutSeconds: new(int64(600))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stream.Stop)
	return func(t *testing.T, name string) {
		t.Helper()
		for e := range stream.ResultChan() {
			switch o, ok := e.Object.(*corev1.ConfigMap); {
			case !ok, e.Type != watch.Added && e.Type != watch.Modified:
				t.Fatalf("the open watch has %s %v", e.Type, e.Object)
			case o.Name == name:
				return
			}
		}
		t.Fatal("the open watch ended")
	}
}
