package faults

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"maps"
	"net/http"
	"path"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"portico/cmd/e2e"
)

// counting is the transport of informers. It counts what they ask for, by resource.
type counting struct {
	http.RoundTripper
	mu sync.Mutex
	// lists are lists and watch-lists, and watches those from a revision, that were answered;
	// refused are all that were not.
	lists, watches, refused map[string]int
}

func (c *counting) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := c.RoundTripper.RoundTrip(r)
	q, to := r.URL.Query(), c.watches
	switch {
	case err != nil || res.StatusCode != http.StatusOK:
		to = c.refused
	case q.Get("watch") == "" || q.Get("sendInitialEvents") == "true":
		to = c.lists
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	to[path.Base(r.URL.Path)]++
	return res, err
}

// certificateRequest returns the fields of a CertificateSigningRequest.
func certificateRequest(t *testing.T) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		t.Fatal(err)
	}
	request := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
	return fmt.Sprintf(`,"spec":{"signerName":"example.com/any","usages":["client auth"],"request":%q}`, base64.StdEncoding.EncodeToString(request))
}

// informedTargets returns ten kinds, with informers of one factory.
func informedTargets(t *testing.T, cfg *rest.Config) (out []*chaosTarget) {
	t.Helper()
	const pod = `{"containers":[{"name":"c","image":"i"}]`
	const workload = `,"spec":{"selector":{"matchLabels":{"app":"a"}},"template":{"metadata":{"labels":{"app":"a"}},"spec":` + pod + `}}}`
	factory := informers.NewSharedInformerFactory(kubernetes.NewForConfigOrDie(cfg), 0)
	for _, k := range []struct{ group, version, resource, kind, fields string }{
		{"", "v1", "pods", "Pod", `,"spec":` + pod + `}`},
		{"", "v1", "nodes", "Node", ""},
		{"", "v1", "services", "Service", `,"spec":{"type":"NodePort","ports":[{"port":80}]}`},
		{"", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", `,"spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}}}`},
		{"apps", "v1", "deployments", "Deployment", workload},
		{"apps", "v1", "replicasets", "ReplicaSet", workload},
		{"batch", "v1", "jobs", "Job", `,"spec":{"template":{"spec":` + pod + `,"restartPolicy":"Never"}}}`},
		{"discovery.k8s.io", "v1", "endpointslices", "EndpointSlice", `,"addressType":"IPv4","endpoints":[]`},
		{"networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy", `,"spec":{"podSelector":{}}`},
		{"certificates.k8s.io", "v1", "certificatesigningrequests", "CertificateSigningRequest", certificateRequest(t)},
	} {
		gvr := schema.GroupVersionResource{Group: k.group, Version: k.version, Resource: k.resource}
		informer, err := factory.ForResource(gvr)
		if err != nil {
			t.Fatal(err)
		}
		at := "/apis/" + k.group + "/" + k.version
		if k.group == "" {
			at = "/api/" + k.version
		}
		if k.kind != "Node" && k.kind != "CertificateSigningRequest" {
			at += "/namespaces/default"
		}
		out = append(out, &chaosTarget{gvr: gvr, kind: k.kind, path: at + "/" + k.resource, fields: k.fields, informer: informer.Informer()})
	}
	return out
}

// While the gateway is killed once and the core server three times, informers of ten kinds end
// up with what is stored; chaosLoad says what else holds. They list at most once for each
// restart: client-go resumes a watch after its connection ended, and lists again after a broken
// frame or a refused request. Of two candidates for a Lease at most one leads at any time, and
// the other one takes over from a leader that ends while the core server is away.
func TestInformersAndLeadersWhileServersDie(t *testing.T) {
	t.Parallel()
	up := e2e.Install(t, t.TempDir())
	cfg := up.Config(t)
	count := &counting{lists: map[string]int{}, watches: map[string]int{}, refused: map[string]int{}}
	cfg.Wrap(func(rt http.RoundTripper) http.RoundTripper { count.RoundTripper = rt; return count })
	cfg.ContentType = "application/vnd.kubernetes.protobuf"
	l := &chaosLoad{failures: map[string]int{}, pause: 100 * time.Millisecond, targets: informedTargets(t, cfg)}
	l.start(t, up)
	race := l.elect(t, up)
	l.awaitProgress(t, "at first")
	l.awaitInformers(t)
	first := race.awaitLeader(t, nil)

	up.Kill9(t, "gateway")
	l.awaitProgress(t, "after the restart of the gateway")
	l.awaitInformers(t)
	l.listedAtMost(t, count, 2)
	const restarts = 3
	for i := range restarts {
		if i == restarts-1 {
			first.end()
		}
		up.Kill9(t, "core")
		l.awaitProgress(t, "after the restart of the core server")
	}
	race.awaitLeader(t, first)
	l.stop()
	l.clients.Wait()
	l.compare(t, up)
	l.listedAtMost(t, count, 2+restarts)
	l.finish(t)
}

// listedAtMost checks how many lists each informer has made since it was started.
func (l *chaosLoad) listedAtMost(t *testing.T, c *counting, most int) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	t.Logf("lists: %v, watches resumed: %v, refused: %v", c.lists, c.watches, c.refused)
	for _, target := range l.targets {
		if n := c.lists[target.gvr.Resource]; n < 1 || n > most {
			t.Errorf("the informer of %s has made %d lists, want at most %d", target.gvr.Resource, n, most)
		}
	}
}

// compare waits until each informer has exactly the objects of a list, with their revisions.
func (l *chaosLoad) compare(t *testing.T, up *e2e.Installation) {
	t.Helper()
	client := e2e.DynamicClient(t, up.Config(t))
	for _, target := range l.targets {
		e2e.Eventually(t, "the informer of "+target.gvr.Resource+" has what is listed", func() error {
			list, err := client.Resource(target.gvr).List(t.Context(), metav1.ListOptions{})
			if err != nil {
				return err
			}
			stored, known := map[string]string{}, map[string]string{}
			for i := range list.Items {
				stored[list.Items[i].GetNamespace()+"/"+list.Items[i].GetName()] = list.Items[i].GetResourceVersion()
			}
			for _, o := range target.informer.GetStore().List() {
				o := o.(metav1.Object)
				known[o.GetNamespace()+"/"+o.GetName()] = o.GetResourceVersion()
			}
			if !maps.Equal(stored, known) {
				return fmt.Errorf("%d objects are stored, and it has %d: %v and %v", len(stored), len(known), stored, known)
			}
			return nil
		})
	}
}

// race is an election by a Lease.
type race struct {
	load    *chaosLoad
	leaders atomic.Int32 // at the same time
	leader  atomic.Pointer[candidate]
}

// candidate leads until end is called, and then keeps the Lease.
type candidate struct {
	name string
	end  context.CancelFunc
}

// elect starts two candidates, with clients of their own.
func (l *chaosLoad) elect(t *testing.T, up *e2e.Installation) *race {
	t.Helper()
	r := &race{load: l}
	var running sync.WaitGroup
	t.Cleanup(running.Wait)
	for _, name := range []string{"a", "b"} {
		ctx, cancel := context.WithCancel(t.Context())
		c := &candidate{name, cancel}
		cfg := up.Config(t)
		cfg.Timeout = 2 * time.Second
		elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
			Lock: &resourcelock.LeaseLock{
				LeaseMeta: metav1.ObjectMeta{Namespace: "default", Name: "race"}, Client: kubernetes.NewForConfigOrDie(cfg).CoordinationV1(),
				LockConfig: resourcelock.ResourceLockConfig{Identity: name},
			},
			LeaseDuration: 5 * time.Second, RenewDeadline: 3 * time.Second, RetryPeriod: 500 * time.Millisecond,
			Callbacks: leaderelection.LeaderCallbacks{OnStartedLeading: func(ctx context.Context) { r.lead(ctx, c) }, OnStoppedLeading: func() {}},
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(cancel)
		running.Go(func() {
			for ctx.Err() == nil {
				elector.Run(ctx)
			}
		})
	}
	return r
}

// lead is the work of a leader.
func (r *race) lead(ctx context.Context, c *candidate) {
	if n := r.leaders.Add(1); n > 1 {
		r.load.fault("%d candidates lead", n)
	}
	defer r.leaders.Add(-1)
	r.leader.Store(c)
	<-ctx.Done()
}

// awaitLeader waits until another candidate than last leads.
func (r *race) awaitLeader(t *testing.T, last *candidate) *candidate {
	t.Helper()
	var now *candidate
	e2e.Eventually(t, "there is another leader", func() error {
		if now = r.leader.Load(); now == last || r.leaders.Load() == 0 {
			return fmt.Errorf("%d lead", r.leaders.Load())
		}
		return nil
	})
	return now
}
