package faults

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"portico/cmd/e2e"
	"portico/internal/testing/await"
)

// takeoverTime is the longest time until another process is elected (docs/operations.md).
const takeoverTime = 10 * time.Second

// elections are those among core servers.
var elections = []string{"controllers", "garbage-collector", "service-repair"}

// leads waits until a core server was elected in all elections.
func (n *node) leads(t *testing.T, limit time.Duration) {
	t.Helper()
	e2e.Within(t, limit, n.name+" leads", func() error {
		log, err := os.ReadFile(filepath.Join(n.cluster.up.Dir, "logs", n.name+".log"))
		if err != nil {
			return err
		}
		for _, name := range elections {
			if !strings.Contains(string(log), `msg="elected leader" election=`+name+" ") {
				return errors.New("not in " + name)
			}
		}
		return nil
	})
}

// startCores starts two core servers, of which the first leads, and the other servers.
func startCores(t *testing.T) *cluster {
	t.Helper()
	a := newCluster(t, "core", "core-2", "crd")
	// With so few of them, ports and addresses that become free are given again.
	a.extra["core"] = []string{"--service-node-port-range=30000-30099", "--service-cluster-ip-range=10.96.0.0/25"}
	a.start(t, "core", "crd", "gateway")
	a.reached(t, "/api/v1/namespaces/default")
	a.nodes["core"].leads(t, await.Patience())
	a.start(t, "core-2")
	a.healthyCores(t, 2)
	return a
}

// healthyCores waits until the gateway finds so many core servers healthy.
func (a *cluster) healthyCores(t *testing.T, want int) {
	t.Helper()
	e2e.Eventually(t, fmt.Sprintf("%d core servers are healthy", want), func() error {
		_, body := a.up.Do(t, http.MethodGet, "/apis/gateway.portico.dev/v1alpha1/backends/core", "")
		if n := strings.Count(body, `"state":"Healthy"`); n != want {
			return fmt.Errorf("%d are", n)
		}
		return nil
	})
}

// takeover is the objects of TestControllersWhileTheirLeaderDies.
type takeover struct {
	t      *testing.T
	client kubernetes.Interface
	number int // of the last pod
}

// The elected one of two core servers is killed while it deletes dependents and writes endpoints,
// and while a namespace is deleted. The other one is elected in time and finishes the work: the
// dependents of the absent owner are deleted, and those of another owner are not; the namespace
// is gone; slices have the pods that are there; the quota holds, and its usage is right; no port
// or address is given twice.
func TestControllersWhileTheirLeaderDies(t *testing.T) {
	t.Parallel()
	a := startCores(t)
	k := &takeover{t: t, client: a.up.Client(t)}
	ctx := t.Context()
	for _, name := range []string{"owners", "doomed", "limited"} {
		_, err := k.client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		must(t, err)
	}
	gone := ownedMaps(t, k.client, "owners", "gone", 1000)
	kept := ownedMaps(t, k.client, "owners", "kept", 24)
	k.fill("doomed")
	k.serve()
	k.ready(5)
	k.limit()

	must(t, k.client.CoreV1().Namespaces().Delete(ctx, "doomed", metav1.DeleteOptions{}))
	must(t, k.client.CoreV1().ConfigMaps("owners").Delete(ctx, gone.Name, metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationBackground)}))
	k.ready(5)
	e2e.Eventually(t, "some dependents are deleted", func() error {
		if n := k.dependents("gone"); n > 950 {
			return fmt.Errorf("%d are left", n)
		}
		return nil
	})
	stop := k.reuse()
	killed := time.Now()
	a.kill9(t, "core")
	left := k.dependents("gone")
	a.healthyCores(t, 1) // a write that was sent to the other one would have an unknown result
	k.writeAll(kept)
	a.nodes["core-2"].leads(t, takeoverTime-time.Since(killed))
	t.Logf("with %d dependents left, the other one leads after %v", left, time.Since(killed).Round(time.Millisecond))
	k.ready(5)
	stop()

	e2e.Eventually(t, "the dependents are deleted", func() error {
		if n := k.dependents("gone"); n > 0 {
			return fmt.Errorf("%d are left", n)
		}
		return nil
	})
	e2e.Eventually(t, "the namespace is gone", func() error {
		_, err := k.client.CoreV1().Namespaces().Get(ctx, "doomed", metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("%v", err)
		}
		return nil
	})
	k.slicesHaveReadyPods()
	k.uniqueClaims()
	k.quotaIsRight()
	t.Logf("all is done after %v", time.Since(killed).Round(time.Millisecond))
	if n := k.dependents("kept"); n != 49 {
		t.Errorf("%d objects of the owner that exists are left, want 49", n)
	}
}

// dependents returns the number of the objects that ownedMaps made for an owner.
func (k *takeover) dependents(owner string) int {
	k.t.Helper()
	list, err := k.client.CoreV1().ConfigMaps("owners").List(k.t.Context(), metav1.ListOptions{LabelSelector: "owner=" + owner})
	must(k.t, err)
	return len(list.Items)
}

// fill creates objects in a namespace.
func (k *takeover) fill(ns string) {
	ownedMaps(k.t, k.client, ns, "any", 100)
	for i := range 10 {
		k.service(ns, fmt.Sprint("s", i))
	}
}

// service creates a Service with a node port, and reports whether it was created.
func (k *takeover) service(ns, name string) bool {
	_, err := k.client.CoreV1().Services(ns).Create(k.t.Context(), &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ServiceSpec{
		Type: corev1.ServiceTypeNodePort, Selector: map[string]string{"app": "web"}, Ports: []corev1.ServicePort{{Port: 80}},
	}}, metav1.CreateOptions{})
	return err == nil
}

// serve creates a node, and a Service for its pods.
func (k *takeover) serve() {
	_, err := k.client.CoreV1().Nodes().Create(k.t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}, metav1.CreateOptions{})
	must(k.t, err)
	if !k.service("default", "web") {
		k.t.Fatal("there is no Service")
	}
}

// ready creates pods of the Service that are ready.
func (k *takeover) ready(count int) {
	k.t.Helper()
	pods := k.client.CoreV1().Pods("default")
	for range count {
		k.number++
		pod, err := pods.Create(k.t.Context(), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("p", k.number), Labels: map[string]string{"app": "web"}},
			Spec:       corev1.PodSpec{NodeName: "n", Containers: []corev1.Container{{Name: "c", Image: "i"}}},
		}, metav1.CreateOptions{})
		must(k.t, err)
		ip := fmt.Sprint("10.1.0.", k.number)
		pod.Status.Phase, pod.Status.PodIP, pod.Status.PodIPs = corev1.PodRunning, ip, []corev1.PodIP{{IP: ip}}
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		_, err = pods.UpdateStatus(k.t.Context(), pod, metav1.UpdateOptions{})
		must(k.t, err)
	}
}

// limits are those of the quota.
var limits = map[corev1.ResourceName]int64{"configmaps": 30, "services": 20, "services.nodeports": 20}

// limit creates a quota and waits until it applies.
func (k *takeover) limit() {
	quotas := k.client.CoreV1().ResourceQuotas("limited")
	hard := corev1.ResourceList{}
	for name, most := range limits {
		hard[name] = *resource.NewQuantity(most, resource.DecimalSI)
	}
	_, err := quotas.Create(k.t.Context(), &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "q"}, Spec: corev1.ResourceQuotaSpec{Hard: hard}}, metav1.CreateOptions{})
	must(k.t, err)
	e2e.Eventually(k.t, "the quota applies", func() error {
		q, err := quotas.Get(k.t.Context(), "q", metav1.GetOptions{})
		if err == nil && len(q.Status.Used) < len(hard) {
			err = errors.New("no usage")
		}
		return err
	})
}

// writeAll writes while there is no leader: dependents of an owner that exists, and as many
// objects as the quota allows, from several clients at once.
func (k *takeover) writeAll(kept *corev1.ConfigMap) {
	var wg sync.WaitGroup
	wg.Go(func() { ownMaps(k.t, k.client, kept, 24) })
	for c := range 4 {
		wg.Go(func() {
			for i := range 10 {
				k.service("limited", fmt.Sprintf("s%d-%d", c, i))
				_, _ = k.client.CoreV1().ConfigMaps("limited").Create(k.t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
					Name: fmt.Sprintf("c%d-%d", c, i), Labels: map[string]string{"half": fmt.Sprint(i % 2)},
				}}, metav1.CreateOptions{}) // some are beyond the quota
			}
		})
	}
	wg.Wait()
	for i := 1; i <= k.number; i += 2 {
		must(k.t, k.client.CoreV1().Pods("default").Delete(k.t.Context(), fmt.Sprint("p", i), metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}))
	}
}

// reuse deletes and creates Services, until the function that it returns is called. Some requests
// fail while a server dies.
func (k *takeover) reuse() (stop func()) {
	var wg sync.WaitGroup
	end := make(chan struct{})
	for c := range 4 {
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-end:
					return
				case <-time.After(20 * time.Millisecond):
				}
				name := fmt.Sprintf("r%d-%d", c, i%10)
				_ = k.client.CoreV1().Services("default").Delete(k.t.Context(), name, metav1.DeleteOptions{})
				k.service("default", name)
			}
		})
	}
	stop = sync.OnceFunc(func() { close(end); wg.Wait() })
	k.t.Cleanup(stop)
	return stop
}

// slicesHaveReadyPods waits until the slices of the Service have the addresses of all its pods.
func (k *takeover) slicesHaveReadyPods() {
	e2e.Eventually(k.t, "slices have the pods", func() error {
		pods, err := k.client.CoreV1().Pods("default").List(k.t.Context(), metav1.ListOptions{LabelSelector: "app=web"})
		if err != nil {
			return err
		}
		var want, got []string
		for _, p := range pods.Items {
			want = append(want, p.Status.PodIP)
		}
		list, err := k.client.DiscoveryV1().EndpointSlices("default").List(k.t.Context(), metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=web"})
		if err != nil {
			return err
		}
		for _, s := range list.Items {
			for _, e := range s.Endpoints {
				got = append(got, e.Addresses...)
			}
		}
		slices.Sort(want)
		slices.Sort(got)
		if !slices.Equal(got, want) {
			return fmt.Errorf("%v, want %v", got, want)
		}
		return nil
	})
}

// uniqueClaims checks that no Services share a port or an address, and that each address is
// claimed by the Service that has it.
func (k *takeover) uniqueClaims() {
	k.t.Helper()
	list, err := k.client.CoreV1().Services("").List(k.t.Context(), metav1.ListOptions{})
	must(k.t, err)
	users := map[string]string{}
	for _, svc := range list.Items {
		name, has := svc.Namespace+"/"+svc.Name, slices.Clone(svc.Spec.ClusterIPs)
		for _, p := range svc.Spec.Ports {
			if p.NodePort != 0 {
				has = append(has, fmt.Sprint("port ", p.NodePort))
			}
		}
		for _, x := range has {
			if other := users[x]; other != "" {
				k.t.Errorf("%s and %s have %s", other, name, x)
			}
			users[x] = name
		}
		for _, ip := range svc.Spec.ClusterIPs {
			claim, err := k.client.NetworkingV1().IPAddresses().Get(k.t.Context(), ip, metav1.GetOptions{})
			if err != nil || claim.Spec.ParentRef.Namespace+"/"+claim.Spec.ParentRef.Name != name {
				k.t.Errorf("%s of %s is claimed by %v, %v", ip, name, claim.Spec.ParentRef, err)
			}
		}
	}
	k.t.Logf("%d Services have %d ports and addresses", len(list.Items), len(users))
}

// quotaIsRight deletes some objects, and waits until the usage of the quota is what is stored,
// which is within its limits.
func (k *takeover) quotaIsRight() {
	k.t.Helper()
	ctx := k.t.Context()
	count := func() map[corev1.ResourceName]int64 {
		svcs, err := k.client.CoreV1().Services("limited").List(ctx, metav1.ListOptions{})
		must(k.t, err)
		maps, err := k.client.CoreV1().ConfigMaps("limited").List(ctx, metav1.ListOptions{})
		must(k.t, err)
		return map[corev1.ResourceName]int64{"configmaps": int64(len(maps.Items)), "services": int64(len(svcs.Items)), "services.nodeports": int64(len(svcs.Items))}
	}
	stored := count()
	for name, most := range limits {
		if n := stored[name]; n == 0 || n > most {
			k.t.Errorf("%d %s are stored, and the limit is %d", n, name, most)
		}
	}
	must(k.t, k.client.CoreV1().ConfigMaps("limited").DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "half=0"}))
	e2e.Eventually(k.t, "the usage is what is stored", func() error {
		q, err := k.client.CoreV1().ResourceQuotas("limited").Get(ctx, "q", metav1.GetOptions{})
		if err != nil {
			return err
		}
		for name, n := range count() {
			if used := q.Status.Used[name]; used.Value() != n {
				return fmt.Errorf("%d %s are stored, and %d used", n, name, used.Value())
			}
		}
		return nil
	})
}
