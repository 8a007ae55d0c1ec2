//go:build strangers

package strangers

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"portico/cmd/e2e"
)

// startKwok starts kwok as the kubelet of all nodes of an installation, and returns its log.
// Pods become Ready at once, those of Jobs then succeed, and deletion is confirmed at once;
// nodes become Ready and have Leases of 40 seconds, which are renewed every 10. more are further arguments.
func startKwok(t *testing.T, up *e2e.Installation, more ...string) (log string) {
	t.Helper()
	dir := source(t, "sigs.k8s.io/kwok@v0.8.0")
	args := []string{"--kubeconfig=" + up.Kubeconfig, "--manage-all-nodes", "--node-lease-duration-seconds=40", "--node-ip=192.0.2.1"}
	for _, stage := range []string{
		"node/fast/node-initialize", "node/heartbeat-with-lease/node-heartbeat-with-lease",
		"pod/fast/pod-ready", "pod/fast/pod-complete", "pod/fast/pod-delete",
	} {
		args = append(args, "--config="+filepath.Join(dir, "kustomize/stage", stage+".yaml"))
	}
	// kwok reads a file of settings in HOME if it is there.
	return start(t, []string{"HOME=" + t.TempDir()}, build(t, dir, "./cmd/kwok"), append(args, more...)...)
}

// createNodes creates nodes that wait for their kubelets. change may change them before.
func createNodes(t *testing.T, client kubernetes.Interface, n int, change ...func(*corev1.Node)) {
	t.Helper()
	forEach(t, n, func(i int) error {
		node := &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: nodeName(i)},
			Spec:       corev1.NodeSpec{PodCIDR: fmt.Sprintf("10.200.%d.0/24", i), PodCIDRs: []string{fmt.Sprintf("10.200.%d.0/24", i)}},
		}
		for _, f := range change {
			f(node)
		}
		_, err := client.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{})
		return err
	})
}

func nodeName(i int) string { return fmt.Sprintf("node-%03d", i) }

// forEach calls do with 0 to n-1, eight calls at once.
func forEach(t *testing.T, n int, do func(i int) error) {
	t.Helper()
	var group errgroup.Group
	group.SetLimit(8)
	for i := range n {
		group.Go(func() error { return do(i) })
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
}

// bind binds a pod to a node, as a scheduler does.
func bind(t *testing.T, client kubernetes.Interface, pod *corev1.Pod, node string) error {
	return client.CoreV1().Pods(pod.Namespace).Bind(t.Context(), &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Name: pod.Name, Namespace: pod.Namespace, UID: pod.UID},
		Target:     corev1.ObjectReference{Kind: "Node", Name: node},
	}, metav1.CreateOptions{})
}

func podReady(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

func nodeReady(node *corev1.Node) bool {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// kwok plays the kubelets of 100 nodes with 2,000 pods, of which half are created on their
// nodes, and half bound to them.
func TestKwok(t *testing.T) {
	const nodes, pods, deleted = 100, 2000, 500
	up := e2e.Install(t, t.TempDir())
	k := &kubelets{t: t, up: up, client: up.Client(t)}
	k.informers = informers.NewSharedInformerFactory(k.client, 0)
	k.countDeletions()
	ctx := t.Context()
	log := startKwok(t, up)
	k.informers.Core().V1().Nodes().Lister()
	k.informers.Coordination().V1().Leases().Lister()
	k.informers.Start(ctx.Done())
	k.informers.WaitForCacheSync(ctx.Done())

	k.measure("100 nodes become Ready", func() {
		createNodes(t, k.client, nodes)
		k.wait("nodes are Ready", nodes, k.readyNodes)
	})
	k.measure("2,000 pods become Ready", func() {
		k.createPods(nodes, pods)
		k.wait("pods are Ready", pods, k.readyPods)
	})
	k.tables(nodes, pods)
	k.measure("500 pods are deleted with grace", func() {
		forEach(t, deleted, func(i int) error {
			return k.client.CoreV1().Pods("default").Delete(ctx, podName(i), metav1.DeleteOptions{})
		})
		k.wait("pods are gone", deleted, func() int { return int(k.gone.Load()) })
	})
	if terminating := k.terminating.Load(); terminating != deleted {
		t.Errorf("%d of %d pods were seen terminating, with 30 s", terminating, deleted)
	}
	k.wait("pods remain Ready", pods-deleted, k.readyPods)
	k.wait("Leases are renewed", nodes, func() int { return k.renewedLeases(time.Now().Add(-20 * time.Second)) })
	k.wait("nodes are Ready", nodes, k.readyNodes)
	noErrors(t, log)
}

func podName(i int) string { return fmt.Sprintf("pod-%04d", i) }

// kubelets is an installation with nodes that kwok plays.
type kubelets struct {
	t         *testing.T
	up        *e2e.Installation
	client    kubernetes.Interface
	informers informers.SharedInformerFactory

	// terminating counts the pods that got a deletionTimestamp with a grace period of 30
	// seconds, gone those that went.
	terminating, gone atomic.Int64
}

func (k *kubelets) countDeletions() {
	_, err := k.informers.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		UpdateFunc: func(before, after any) {
			was, is := before.(*corev1.Pod), after.(*corev1.Pod)
			if grace := is.DeletionGracePeriodSeconds; was.DeletionTimestamp == nil && is.DeletionTimestamp != nil && *grace == 30 {
				k.terminating.Add(1)
			}
		},
		DeleteFunc: func(any) { k.gone.Add(1) },
	})
	if err != nil {
		k.t.Fatal(err)
	}
}

// measure logs how long do takes, and what the core server needs for it.
func (k *kubelets) measure(what string, do func()) {
	k.t.Helper()
	processor := func() float64 {
		return k.number("process_cpu_seconds_total", k.up.Metrics(k.t, "core"))
	}
	before, began := processor(), time.Now()
	do()
	took := time.Since(began)
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", k.up.Child(k.t, "core")))
	if err != nil {
		k.t.Fatal(err)
	}
	k.t.Logf("%s: %.1f s; core server: %.1f s of processor time, %.0f MB of anonymous memory", what, took.Seconds(),
		processor()-before, k.number("RssAnon:", string(status))/1024)
}

// number returns the number after a name at the beginning of a line.
func (k *kubelets) number(name, text string) (value float64) {
	k.t.Helper()
	_, after, _ := strings.Cut("\n"+text, "\n"+name)
	if _, err := fmt.Sscan(after, &value); err != nil {
		k.t.Fatalf("no number after %s: %v", name, err)
	}
	return value
}

// wait waits until count returns want.
func (k *kubelets) wait(what string, want int, count func() int) {
	k.t.Helper()
	e2e.Within(k.t, 5*time.Minute, what, func() error {
		if n := count(); n != want {
			return fmt.Errorf("%d of %d", n, want)
		}
		return nil
	})
}

func (k *kubelets) readyNodes() (n int) {
	nodes, _ := k.informers.Core().V1().Nodes().Lister().List(labels.Everything()) // of a cache: no error
	for _, node := range nodes {
		if nodeReady(node) {
			n++
		}
	}
	return n
}

func (k *kubelets) readyPods() (n int) {
	pods, _ := k.informers.Core().V1().Pods().Lister().List(labels.Everything()) // of a cache: no error
	for _, pod := range pods {
		if podReady(pod) {
			n++
		}
	}
	return n
}

// renewedLeases counts the Leases of nodes that have an owner and were renewed after a time.
func (k *kubelets) renewedLeases(after time.Time) (n int) {
	leases, _ := k.informers.Coordination().V1().Leases().Lister().Leases(corev1.NamespaceNodeLease).List(labels.Everything()) // of a cache: no error
	for _, lease := range leases {
		if len(lease.OwnerReferences) == 1 && lease.Spec.RenewTime.After(after) {
			n++
		}
	}
	return n
}

// createPods creates pods on all nodes in turn; each second one of a node gets there by the
// binding subresource.
func (k *kubelets) createPods(nodes, pods int) {
	k.t.Helper()
	e2e.Eventually(k.t, "pods may be created in default", func() error {
		_, err := k.client.CoreV1().ServiceAccounts("default").Get(k.t.Context(), "default", metav1.GetOptions{})
		return err
	})
	forEach(k.t, pods, func(i int) error {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: podName(i), Labels: map[string]string{"app": "load"}},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "example.com/app:1"}}},
		}
		node := nodeName(i % nodes)
		bound := i/nodes%2 == 1
		if !bound {
			pod.Spec.NodeName = node
		}
		pod, err := k.client.CoreV1().Pods("default").Create(k.t.Context(), pod, metav1.CreateOptions{})
		if err == nil && bound {
			err = bind(k.t, k.client, pod, node)
		}
		return err
	})
}

// tables checks what kubectl prints of the nodes and pods.
func (k *kubelets) tables(nodes, pods int) {
	k.t.Helper()
	out := k.up.MustKubectl(k.t, "get", "nodes,pods", "-o", "wide")
	for what, row := range map[string]struct {
		pattern string
		want    int
	}{
		"header of nodes": {`NAME +STATUS +ROLES +AGE +VERSION +INTERNAL-IP +EXTERNAL-IP +OS-IMAGE +KERNEL-VERSION +CONTAINER-RUNTIME`, 1},
		"nodes":           {`node/node-\d{3} +Ready +<none> +\d+\w* +kwok-\S+ +192\.0\.2\.1 +<none> +<unknown> +kwok-\S+ \(amd64\) +kwok-\S+`, nodes},
		"header of pods":  {`NAME +READY +STATUS +RESTARTS +AGE +IP +NODE +NOMINATED NODE +READINESS GATES`, 1},
		"pods":            {`pod/pod-\d{4} +1/1 +Running +0 +\d+\w* +10\.200\.\d+\.\d+ +node-\d{3} +<none> +<none>`, pods},
	} {
		if got := len(regexp.MustCompile(`(?m)^`+row.pattern+` *$`).FindAllString(out, -1)); got != row.want {
			k.t.Errorf("%s: %d rows, want %d:\n%.800s", what, got, row.want, out)
		}
	}
}

// noErrors fails for errors in the log of kwok.
func noErrors(t *testing.T, log string) {
	t.Helper()
	data, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		if strings.Contains(line, "ERROR") {
			t.Error(line)
		}
	}
}
