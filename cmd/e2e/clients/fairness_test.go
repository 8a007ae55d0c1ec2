package clients

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"portico/cmd/e2e"
	"portico/cmd/internal/pki"
)

// fair is an installation in which eve and bob share one level.
type fair struct {
	*e2e.Installation
	bob     *http.Client
	eve     *http.Client
	eveFile string // the kubeconfig of eve
	object  string // the URL of an object
}

// fewSeats are flags with which the level has two seats.
var fewSeats = []string{"--max-requests-inflight=8", "--max-mutating-requests-inflight=4"}

func installFair(t *testing.T, flags ...string) *fair {
	t.Helper()
	up := e2e.Install(t, t.TempDir(), flags...)
	up.MustKubectl(t, "create", "clusterrolebinding", "fair", "--clusterrole=cluster-admin", "--user=eve", "--user=bob")
	up.MustKubectl(t, "create", "configmap", "a")
	up.Post(t, "/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations", `{"metadata":{"name":"fair"},"spec":{"type":"Limited","limited":{
		"nominalConcurrencyShares":40,"borrowingLimitPercent":0,"limitResponse":{"type":"Queue","queuing":{"queues":64,"handSize":2,"queueLengthLimit":50}}}}}`)
	up.Post(t, "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas", `{"metadata":{"name":"fair"},"spec":{"matchingPrecedence":10,
		"priorityLevelConfiguration":{"name":"fair"},"distinguisherMethod":{"type":"ByUser"},"rules":[{
		"subjects":[{"kind":"User","user":{"name":"eve"}},{"kind":"User","user":{"name":"bob"}}],
		"resourceRules":[{"verbs":["*"],"apiGroups":["*"],"resources":["*"],"namespaces":["*"],"clusterScope":true}]}]}}`)
	f := &fair{Installation: up, object: up.Endpoint + "/api/v1/namespaces/default/configmaps/a", eveFile: filepath.Join(t.TempDir(), "eve")}
	if _, err := pki.IssueKubeconfig(filepath.Join(up.Dir, "pki"), f.eveFile, up.Endpoint, pki.Request{User: "eve", ValidFor: time.Hour}); err != nil {
		t.Fatal(err)
	}
	f.eve, f.bob = e2e.HTTPClient(t, up.UserConfig(t, "eve")), e2e.HTTPClient(t, up.UserConfig(t, "bob"))
	_, level := up.Do(t, http.MethodGet, "/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations/fair", "")
	uid := regexp.MustCompile(`"uid":"([^"]+)"`).FindStringSubmatch(level)
	e2e.Eventually(t, "the level applies to bob", func() error {
		resp, text, err := e2e.Ask(t.Context(), f.bob, http.MethodGet, f.object, "")
		if err == nil && (resp.StatusCode != http.StatusOK || resp.Header.Get("X-Kubernetes-Pf-Prioritylevel-Uid") != uid[1]) {
			err = fmt.Errorf("%s %v %s", resp.Status, resp.Header, text)
		}
		return err
	})
	return f
}

// seats returns a gauge of the level.
func (f *fair) seats(t *testing.T, name string) int {
	t.Helper()
	_, text := f.Do(t, http.MethodGet, "/metrics", "")
	labels := `{flow_schema="fair",priority_level="fair"}`
	if strings.HasSuffix(name, "limit_seats") {
		labels = `{priority_level="fair"}`
	}
	return gauge(t, text, "apiserver_flowcontrol_"+name+labels)
}

// served has bob read the object n times and returns the median time. No answer but 200 is right.
func (f *fair) served(t *testing.T, n int) time.Duration {
	t.Helper()
	var took []time.Duration
	for range n {
		begin := time.Now()
		resp, text, err := e2e.Ask(t.Context(), f.bob, http.MethodGet, f.object, "")
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("bob: %v %s", err, text)
		}
		took = append(took, time.Since(begin))
	}
	slices.Sort(took)
	return took[n/2]
}

// clientsEnv is the kubeconfig of clients and the URL that they read, with a space between. It makes
// the test binary these clients.
const clientsEnv = "E2E_CLIENTS"

// beClients reads an object by 500 clients until standard input ends, and prints how many requests
// were served and refused. A client waits after 429, as Retry-After says.
func beClients() {
	file, url, ok := strings.Cut(os.Getenv(clientsEnv), " ")
	if !ok {
		return
	}
	cfg, err := clientcmd.BuildConfigFromFlags("", file)
	if err != nil {
		panic(err)
	}
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	var served, refused atomic.Int64
	for range 500 {
		all.Go(func() {
			for ctx.Err() == nil {
				resp, _, err := e2e.Ask(ctx, client, http.MethodGet, url, "")
				switch {
				case err != nil:
				case resp.StatusCode == http.StatusTooManyRequests:
					refused.Add(1)
					select {
					case <-ctx.Done():
					case <-time.After(time.Second):
					}
				case resp.StatusCode == http.StatusOK:
					served.Add(1)
				}
			}
		})
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
	cancel()
	all.Wait()
	fmt.Println(served.Load(), refused.Load())
	os.Exit(0)
}

// busy starts 500 clients of eve, in a process of their own so that bob waits for the gateway and not for
// them. They read the object until the function that it returns is called.
func (f *fair) busy(t *testing.T) (stop func() (served, refused int)) {
	t.Helper()
	clients := exec.CommandContext(t.Context(), os.Args[0])
	clients.Env = append(os.Environ(), clientsEnv+"="+f.eveFile+" "+f.object)
	clients.Stderr = os.Stderr
	var out bytes.Buffer
	clients.Stdout = &out
	stdin, err := clients.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := clients.Start(); err != nil {
		t.Fatal(err)
	}
	return func() (served, refused int) {
		stdin.Close()
		if err := clients.Wait(); err != nil {
			t.Errorf("the clients of eve: %v", err)
		}
		if _, err := fmt.Sscan(out.String(), &served, &refused); err != nil {
			t.Errorf("the clients of eve print %q: %v", out.String(), err)
		}
		return served, refused
	}
}

// Of TestFairnessBesideManyClients, in the environment: how many rounds it has, and how many times its quiet
// median bob's may be with few seats.
const fairnessRounds, fairnessBar = "PORTICO_TEST_FAIRNESS_ROUNDS", "PORTICO_TEST_FAIRNESS_BAR"

// 500 clients of one user do not keep another one of the same level from being served: no request is
// refused. Beside other tests the times say nothing; .ci/long fairness judges them.
func TestFairnessBesideManyClients(t *testing.T) {
	t.Parallel()
	if os.Getenv(fairnessRounds) == "" {
		installFair(t, fewSeats...).compare(t, 1, 100)
		return
	}
	rounds, err := strconv.Atoi(os.Getenv(fairnessRounds))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("with the seats of the defaults %.1f times the quiet median", installFair(t).compare(t, rounds, 1000))
	times := installFair(t, fewSeats...).compare(t, rounds, 1000)
	t.Logf("with few seats %.1f times the quiet median", times)
	if bar, err := strconv.ParseFloat(os.Getenv(fairnessBar), 64); err != nil || times > bar {
		t.Errorf("%v, %.1f times the quiet median, want %v at most", err, times, bar)
	}
}

// compare returns how many times its quiet median that of bob is beside the clients of eve: the median of some
// rounds with n requests.
func (f *fair) compare(t *testing.T, rounds, n int) float64 {
	t.Helper()
	var all []float64
	for range rounds {
		quiet := f.served(t, n)
		stop := f.busy(t)
		e2e.Eventually(t, "requests of eve wait", func() error {
			if f.seats(t, "current_inqueue_requests") == 0 {
				return errors.New("none waits")
			}
			return nil
		})
		busy := f.served(t, n)
		served, refused := stop()
		if served == 0 {
			t.Error("eve is not served")
		}
		all = append(all, float64(busy)/float64(quiet))
		t.Logf("median of bob: %v, and %v beside 500 clients of eve with %d requests served and %d refused", quiet, busy, served, refused)
	}
	slices.Sort(all)
	return all[len(all)/2]
}

// slowServer registers a server that answers no request for objects until release is called, and
// counts those that it has.
func (f *fair) slowServer(t *testing.T) (has *atomic.Int64, release func()) {
	t.Helper()
	has, released := new(atomic.Int64), make(chan struct{})
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.URL.Path == "/apis":
			const version = `{"groupVersion":"slow.example.com/v1","version":"v1"}`
			io.WriteString(w, `{"kind":"APIGroupList","apiVersion":"v1","groups":[{"name":"slow.example.com","versions":[`+version+`],"preferredVersion":`+version+`}]}`)
		case r.URL.Path == "/apis/slow.example.com/v1":
			io.WriteString(w, `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"slow.example.com/v1","resources":[]}`)
		case strings.HasPrefix(r.URL.Path, "/apis/slow.example.com/v1/"):
			has.Add(1)
			select {
			case <-released:
			case <-r.Context().Done():
			}
			io.WriteString(w, `{}`)
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(server.Close)
	release = sync.OnceFunc(func() { close(released) })
	t.Cleanup(release)
	f.Post(t, "/apis/gateway.portico.dev/v1alpha1/backends", `{"apiVersion":"gateway.portico.dev/v1alpha1","kind":"Backend","metadata":{"name":"slow"},
		"spec":{"endpoints":[{"url":"`+server.URL+`"}],"tls":{"insecureSkipVerify":true,"clientCertificate":"None"}}}`)
	f.Post(t, "/apis/apiregistration.k8s.io/v1/apiservices", `{"metadata":{"name":"v1.slow.example.com","annotations":{"gateway.portico.dev/backend":"slow"}},
		"spec":{"group":"slow.example.com","version":"v1","groupPriorityMinimum":1000,"versionPriority":15}}`)
	f.Shows(t, "/apis/slow.example.com/v1", "APIResourceList")
	return has, release
}

// Requests to a slow registered server hold no seats, those to a server that is killed give theirs
// back, and a request that waits for a seat at shutdown is answered.
func TestSeatsAreGivenBack(t *testing.T) {
	t.Parallel()
	f := installFair(t, fewSeats...)
	has, release := f.slowServer(t)
	const slow = 30 // more than all seats
	var all sync.WaitGroup
	for range slow {
		all.Go(func() {
			if resp, text, err := e2e.Ask(t.Context(), f.eve, http.MethodGet, f.Endpoint+"/apis/slow.example.com/v1/things", ""); err != nil || resp.StatusCode != http.StatusOK {
				t.Errorf("the slow server: %v %s", err, text)
			}
		})
	}
	e2e.Eventually(t, "the slow server has all requests", func() error {
		if n := has.Load(); n != slow {
			return fmt.Errorf("it has %d", n)
		}
		return nil
	})
	f.served(t, 5)
	release()
	all.Wait()

	stop := f.busy(t)
	f.Kill9(t, "core")
	stop()
	e2e.Eventually(t, "all seats are free", func() error {
		if held, waiting := f.seats(t, "current_executing_seats"), f.seats(t, "current_inqueue_requests"); held != 0 || waiting != 0 {
			return fmt.Errorf("%d are held, and %d requests wait", held, waiting)
		}
		return nil
	})
	f.Shows(t, "/api/v1/namespaces/default/configmaps/a", `"name":"a"`)
	f.served(t, 5)
	f.bodiesHoldNone(t)
	f.readersHoldNone(t)
	f.drain(t)
}

// bodiesHoldNone has eve send the beginning of more bodies than there are seats.
func (f *fair) bodiesHoldNone(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	begun := make(chan struct{})
	for range 8 {
		all.Go(func() {
			body, w := io.Pipe()
			defer body.Close()
			go func() {
				fmt.Fprint(w, `{"metadata":`) // returns when the client reads it
				begun <- struct{}{}
			}()
			if resp, _, err := askBody(ctx, f.eve, f.object, body); err == nil {
				t.Errorf("without the end of its body: %s", resp.Status)
			}
		})
	}
	for range 8 {
		<-begun
	}
	f.served(t, 20)
	if n := f.seats(t, "current_executing_seats"); n != 0 {
		t.Errorf("%d seats are held", n)
	}
}

// readersHoldNone has eve list more than is sent to a client that does not read, by more requests than there are seats.
func (f *fair) readersHoldNone(t *testing.T) {
	t.Helper()
	list := strings.TrimSuffix(f.object, "/a")
	for i := range 12 {
		f.Post(t, "/api/v1/namespaces/default/configmaps", fmt.Sprintf(`{"metadata":{"name":"large%d"},"data":{"a":%q}}`, i, strings.Repeat("x", 900_000)))
	}
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			req, _ := http.NewRequestWithContext(ctx, http.MethodGet, list, nil)
			req.Header.Set("Accept-Encoding", "identity")
			resp, err := f.eve.Do(req)
			if err != nil || resp.StatusCode != http.StatusOK {
				t.Errorf("list: %v %v", resp, err)
			}
		})
	}
	all.Wait()
	f.served(t, 20)
	cancel()
	for i := range 12 {
		f.Do(t, http.MethodDelete, fmt.Sprintf("/api/v1/namespaces/default/configmaps/large%d", i), "")
	}
}

// askBody sends a PUT.
func askBody(ctx context.Context, client *http.Client, url string, body io.Reader) (*http.Response, string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, url, body)
	if err != nil {
		return nil, "", err
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return resp, string(text), err
}

// A list takes seats by the size of the objects that its server has, also after a restart of the gateway.
func TestListsTakeSeatsBySize(t *testing.T) {
	t.Parallel()
	f := installFair(t)
	for i := range 6 {
		f.Post(t, "/api/v1/namespaces/default/configmaps", fmt.Sprintf(`{"metadata":{"name":"large%d"},"data":{"a":%q}}`, i, strings.Repeat("x", 100_000)))
	}
	f.Kill9(t, "gateway") // a running one reads the sizes each minute
	f.Shows(t, "/api/v1/namespaces/default/configmaps/a", `"name":"a"`)
	estimated := func(of string) int {
		return f.seats(t, "work_estimated_seats_"+of)
	}
	e2e.Eventually(t, "a list takes several seats", func() error {
		seats, requests := estimated("sum"), estimated("count")
		resp, text, err := e2e.Ask(t.Context(), f.bob, http.MethodGet, strings.TrimSuffix(f.object, "/a"), "")
		if err == nil && resp.StatusCode != http.StatusOK {
			err = fmt.Errorf("%s %s", resp.Status, text)
		}
		if seats, requests = estimated("sum")-seats, estimated("count")-requests; err == nil && (requests != 1 || seats < 6) {
			err = fmt.Errorf("%d requests took %d seats", requests, seats)
		}
		return err
	})
}

// drain stops the installation while requests hold all seats of the level, because a webhook is slow, and one waits.
func (f *fair) drain(t *testing.T) {
	t.Helper()
	limit, released := f.seats(t, "current_limit_seats"), make(chan struct{})
	hook := e2e.StartWebhook(t, func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		<-released
		return &admissionv1.AdmissionResponse{Allowed: true}
	})
	e2e.CallWebhook(t, f.Installation, "slow", hook, `[""]`, `["configmaps"]`, `{"matchLabels":{"kubernetes.io/metadata.name":"default"}}`)
	var all sync.WaitGroup
	answer := func(client *http.Client, method, url, body string, want int) {
		all.Go(func() {
			resp, text, err := e2e.Ask(t.Context(), client, method, url, body)
			if err != nil || resp.StatusCode != want {
				t.Errorf("%s at shutdown: %v %s", method, err, text)
			}
		})
	}
	reached := func(name string, want int) {
		e2e.Eventually(t, fmt.Sprintf("%s is %d", name, want), func() error {
			if n := f.seats(t, name); n != want {
				return fmt.Errorf("it is %d", n)
			}
			return nil
		})
	}
	for i := range limit {
		answer(f.eve, http.MethodPost, strings.TrimSuffix(f.object, "/a"), fmt.Sprintf(`{"metadata":{"name":"drained%d"}}`, i), http.StatusCreated)
	}
	reached("current_executing_seats", limit)
	answer(f.bob, http.MethodGet, f.object, "", http.StatusOK)
	reached("current_inqueue_requests", 1)
	all.Go(func() {
		if err := f.Stop(); err != nil {
			t.Error(err)
		}
	})
	e2e.Eventually(t, "the gateway stops", func() error {
		text, err := os.ReadFile(filepath.Join(f.Dir, "logs", "gateway.log"))
		if err == nil && !strings.Contains(string(text), "shutting down") {
			err = errors.New("it does not")
		}
		return err
	})
	close(released)
	all.Wait()
}
