//go:build strangers

package strangers

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"portico/backends/core/controllers"
	"portico/cmd/e2e"
	"portico/cmd/internal/testtools"
)

// kube-controller-manager, started as docs/operations.md says, runs workloads on an
// installation; kwok plays the nodes and the test schedules. A second one takes over when the
// first has ended.
func TestControllerManager(t *testing.T) {
	const nodes = 5
	up := e2e.Install(t, t.TempDir())
	w := &workloads{t: t, up: up, client: up.Client(t), nodes: nodes}
	program := build(t, kubernetesModule(t), "k8s.io/kubernetes/cmd/kube-controller-manager")
	startKwok(t, up)
	createNodes(t, w.client, nodes)
	w.schedule()
	log, stop := w.startControllerManager(program)
	first := w.leader("")
	second, _ := w.startControllerManager(program)
	w.untainted()
	w.kubectl("create", "cronjob", "tick", "--image=example.com/app:1", "--schedule=* * * * *")
	w.deployment()
	w.job()
	w.daemonSet()
	w.statefulSet()
	w.cronJob()
	if now := w.leader(""); now != first {
		t.Errorf("the leader changed from %s to %s", first, now)
	}
	stop()
	w.takeOver(first)
	w.deleteInForeground()
	complaints(t, log)
	complaints(t, second)
}

// documented returns the arguments of the command in docs/operations.md that begins with text.
func documented(t *testing.T, text string) []string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(e2e.Repository(), "docs/operations.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, after, found := strings.Cut(strings.ReplaceAll(string(data), "\\\n", ""), "\n    "+text)
	if !found {
		t.Fatalf("docs/operations.md has no command %s", text)
	}
	line, _, _ := strings.Cut(after, "\n")
	return strings.Fields(line)
}

// workloads is an installation with kube-controller-manager.
type workloads struct {
	t      *testing.T
	up     *e2e.Installation
	client kubernetes.Interface
	nodes  int

	mu    sync.Mutex
	steps []string // what happened to the pods of the StatefulSet
}

// startControllerManager starts kube-controller-manager without a port, and returns its log.
func (w *workloads) startControllerManager(program string) (log string, stop func()) {
	t := w.t
	t.Helper()
	file := filepath.Join(t.TempDir(), "controller-manager.kubeconfig")
	replace := strings.NewReplacer("controller-manager.kubeconfig", file, "https://127.0.0.1:6443", w.up.Endpoint)
	var certs, args []string
	for _, arg := range documented(t, "portico certs kubeconfig --server=https://127.0.0.1:6443") {
		certs = append(certs, replace.Replace(arg))
	}
	certs = append([]string{"certs", "kubeconfig", "--server=" + w.up.Endpoint, "--data-dir=" + w.up.Dir}, certs...)
	run(t, "", nil, e2e.Program(t, testtools.Portico), certs...)
	for _, arg := range documented(t, "kube-controller-manager ") {
		args = append(args, replace.Replace(arg))
		if names, ok := strings.CutPrefix(arg, "--controllers="); ok {
			for name := range strings.SplitSeq(names, ",") {
				if slices.Contains(controllers.Names(), name) {
					t.Errorf("%s runs in the core server, too", name)
				}
			}
		}
	}
	return startUntil(t, nil, program, append(args, "--secure-port=0")...)
}

// schedule binds pods to nodes until the test ends: those of a DaemonSet to the node that
// they name, others to all in turn.
func (w *workloads) schedule() {
	w.t.Helper()
	factory := informers.NewSharedInformerFactory(w.client, 0)
	next := 0
	_, err := factory.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) {
			pod := obj.(*corev1.Pod)
			w.record("created", pod)
			if pod.Spec.NodeName != "" {
				return
			}
			node := nodeName(next % w.nodes)
			if a := pod.Spec.Affinity; a != nil {
				node = a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchFields[0].Values[0]
			} else {
				next++
			}
			if err := bind(w.t, w.client, pod, node); err != nil && w.t.Context().Err() == nil {
				w.t.Error(err)
			}
		},
		UpdateFunc: func(before, after any) {
			if is := after.(*corev1.Pod); !podReady(before.(*corev1.Pod)) && podReady(is) {
				w.record("ready", is)
			}
		},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	factory.Start(w.t.Context().Done())
	w.t.Cleanup(factory.Shutdown)
}

func (w *workloads) record(what string, pod *corev1.Pod) {
	if pod.Labels["app"] != "ordered" {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.steps = append(w.steps, pod.Name+" "+what)
}

func (w *workloads) kubectl(args ...string) string {
	w.t.Helper()
	return w.up.MustKubectl(w.t, args...)
}

// leader returns the holder of the Lease of kube-controller-manager, which is not before.
func (w *workloads) leader(before string) (holder string) {
	w.t.Helper()
	e2e.Eventually(w.t, "kube-controller-manager leads", func() error {
		lease, err := w.client.CoordinationV1().Leases("kube-system").Get(w.t.Context(), "kube-controller-manager", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if holder = holderOf(lease); holder == before {
			return errors.New("the Lease is not taken")
		}
		return nil
	})
	return holder
}

func holderOf(lease *coordinationv1.Lease) string {
	if lease.Spec.HolderIdentity == nil {
		return ""
	}
	return *lease.Spec.HolderIdentity
}

// untainted waits until node-lifecycle-controller has taken the taints off nodes that are Ready.
func (w *workloads) untainted() {
	w.t.Helper()
	e2e.Eventually(w.t, "nodes have no taints", func() error {
		nodes, err := w.client.CoreV1().Nodes().List(w.t.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, node := range nodes.Items {
			if !nodeReady(&node) || len(node.Spec.Taints) != 0 {
				return fmt.Errorf("%s: %v %v", node.Name, node.Spec.Taints, node.Status.Conditions)
			}
		}
		return nil
	})
}

// deployment rolls out a Deployment, scales it, and rolls out another image, and the first again.
func (w *workloads) deployment() {
	w.kubectl("create", "deployment", "web", "--image=example.com/app:1", "--replicas=3")
	w.rolledOut("deployment/web", `{"replicas":3,"updatedReplicas":3,"readyReplicas":3,"availableReplicas":3}`)
	w.kubectl("scale", "deployment/web", "--replicas=8")
	w.rolledOut("deployment/web", `{"replicas":8,"updatedReplicas":8,"readyReplicas":8,"availableReplicas":8}`)
	w.kubectl("set", "image", "deployment/web", "app=example.com/app:2")
	w.rolledOut("deployment/web", `{"replicas":8,"updatedReplicas":8,"readyReplicas":8,"availableReplicas":8}`)
	w.kubectl("rollout", "undo", "deployment/web")
	w.rolledOut("deployment/web", `{"replicas":8,"updatedReplicas":8,"readyReplicas":8,"availableReplicas":8}`)
	if out := w.kubectl("get", "deployment", "web", "-o", "wide"); !regexp.MustCompile(`web +8/8 +8 +8 +\S+ +app +example.com/app:1 +app=web`).MatchString(out) {
		w.t.Error(out)
	}
	if out := w.kubectl("rollout", "history", "deployment/web"); !strings.Contains(out, "\n2 ") || !strings.Contains(out, "\n3 ") {
		w.t.Error(out)
	}
}

// rolledOut waits until `kubectl rollout status` ends, and compares the status with want.
func (w *workloads) rolledOut(what, want string) {
	w.t.Helper()
	w.kubectl("rollout", "status", what)
	var status, wanted map[string]any
	if err := json.Unmarshal([]byte(want), &wanted); err != nil {
		w.t.Fatal(err)
	}
	e2e.Eventually(w.t, what+" has its status", func() error {
		out := w.kubectl("get", what, "-o", "jsonpath={.status}")
		if err := json.Unmarshal([]byte(out), &status); err != nil {
			return err
		}
		for field, value := range wanted {
			if status[field] != value {
				return fmt.Errorf("%s is %v, not %v", field, status[field], value)
			}
		}
		return nil
	})
}

// job runs a Job of six pods, three at once.
func (w *workloads) job() {
	w.t.Helper()
	w.apply(`{"apiVersion":"batch/v1","kind":"Job","metadata":{"name":"work"},"spec":{"completions":6,"parallelism":3,
		"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"app","image":"example.com/app:1"}]}}}}`)
	w.kubectl("wait", "--for=condition=complete", "job/work", "--timeout=60s")
	if out := w.kubectl("get", "job", "work"); !regexp.MustCompile(`work +Complete +6/6`).MatchString(out) {
		w.t.Error(out)
	}
}

// daemonSet runs a DaemonSet, which gets a pod for each node.
func (w *workloads) daemonSet() {
	w.t.Helper()
	w.apply(`{"apiVersion":"apps/v1","kind":"DaemonSet","metadata":{"name":"agent"},"spec":{"selector":{"matchLabels":{"app":"agent"}},
		"template":{"metadata":{"labels":{"app":"agent"}},"spec":{"containers":[{"name":"app","image":"example.com/app:1"}]}}}}`)
	w.rolledOut("daemonset/agent", fmt.Sprintf(`{"desiredNumberScheduled":%d,"numberReady":%[1]d,"numberAvailable":%[1]d}`, w.nodes))
	out := w.kubectl("get", "pods", "-l", "app=agent", "-o", `jsonpath={range .items[*]}{.spec.nodeName}{"\n"}{end}`)
	on := strings.Fields(out)
	slices.Sort(on)
	if on = slices.Compact(on); len(on) != w.nodes {
		w.t.Errorf("the pods of the DaemonSet are on %v", on)
	}
}

// statefulSet creates three pods, each when the one before is ready.
func (w *workloads) statefulSet() {
	w.t.Helper()
	w.apply(`{"apiVersion":"apps/v1","kind":"StatefulSet","metadata":{"name":"ordered"},"spec":{"serviceName":"ordered","replicas":3,
		"selector":{"matchLabels":{"app":"ordered"}},
		"template":{"metadata":{"labels":{"app":"ordered"}},"spec":{"containers":[{"name":"app","image":"example.com/app:1"}]}}}}`)
	w.rolledOut("statefulset/ordered", `{"replicas":3,"readyReplicas":3,"currentReplicas":3}`)
	w.mu.Lock()
	defer w.mu.Unlock()
	if got := strings.Join(w.steps, ", "); got != "ordered-0 created, ordered-0 ready, ordered-1 created, ordered-1 ready, ordered-2 created, ordered-2 ready" {
		w.t.Errorf("order of the StatefulSet's pods: %s", got)
	}
}

// cronJob waits for a Job of the CronJob that is due each minute.
func (w *workloads) cronJob() {
	w.t.Helper()
	e2e.Within(w.t, 2*time.Minute, "a Job of the CronJob is complete", func() error {
		jobs, err := w.client.BatchV1().Jobs("default").List(w.t.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, job := range jobs.Items {
			if strings.HasPrefix(job.Name, "tick-") && job.Status.Succeeded == 1 {
				return nil
			}
		}
		return fmt.Errorf("%d Jobs", len(jobs.Items))
	})
}

// apply applies an object.
func (w *workloads) apply(object string) {
	w.t.Helper()
	file := filepath.Join(w.t.TempDir(), "object.json")
	e2e.WriteFile(w.t, file, object)
	w.kubectl("apply", "-f", file)
}

// takeOver scales the Deployment, which the second kube-controller-manager has to do, and is
// called when the first has ended.
func (w *workloads) takeOver(first string) {
	w.t.Helper()
	began := time.Now()
	w.leader(first)
	w.kubectl("scale", "deployment/web", "--replicas=4")
	w.rolledOut("deployment/web", `{"replicas":4,"readyReplicas":4}`)
	w.t.Logf("the second kube-controller-manager took over and scaled after %.0f s", time.Since(began).Seconds())
}

// deleteInForeground deletes the Deployment, which goes after its ReplicaSets and pods.
func (w *workloads) deleteInForeground() {
	w.t.Helper()
	w.kubectl("delete", "deployment", "web", "--cascade=foreground", "--timeout=60s")
	if out := w.kubectl("get", "deployments,replicasets,pods", "-l", "app=web", "-o", "name"); out != "" {
		w.t.Errorf("after the Deployment was deleted, there are\n%s", out)
	}
}

// complaints logs the errors and warnings in a log of klog by the line of the program that
// wrote them, with the last of each. It fails if one repeats unchanged.
func complaints(t *testing.T, log string) {
	t.Helper()
	data, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	lines, last, same := map[string]int{}, map[string]string{}, map[string]int{}
	for _, m := range regexp.MustCompile(`(?m)^([EFW])\d{4} \S+ +\d+ (\S+\.go:\d+)\] (.*)$`).FindAllStringSubmatch(string(data), -1) {
		line := m[1] + " " + m[2]
		lines[line]++
		last[line] = m[3]
		if same[m[3]]++; same[m[3]] == 10 {
			t.Errorf("repeats: %s: %s", line, m[3])
		}
	}
	for line, n := range lines {
		t.Logf("%d × %s: %s", n, line, last[line])
	}
}
