package clients

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"portico/cmd/e2e"
	"portico/cmd/internal/testtools"
)

// manager is the controller of cmd/tools/manager, as a process with the rights
// of its service account and no more.
type manager struct {
	cmd *exec.Cmd
	log string // its log file
}

// startManager starts a manager with the kubeconfig.
func startManager(t *testing.T, kubeconfig, namespace, name string) *manager {
	t.Helper()
	m := &manager{log: filepath.Join(t.TempDir(), name+".log")}
	log, err := os.Create(m.log)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	m.cmd = exec.Command(e2e.Program(t, testtools.Manager), "--kubeconfig="+kubeconfig, "--namespace="+namespace)
	m.cmd.Stdout, m.cmd.Stderr = log, log
	if err := m.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		m.cmd.Process.Kill()
		_ = m.cmd.Wait() // it may have been waited for by the test
		if t.Failed() {
			said, _ := os.ReadFile(m.log)
			t.Logf("%s.log:\n%s", name, said)
		}
	})
	return m
}

// managerKubeconfig returns a kubeconfig of the manager's service account.
func managerKubeconfig(t *testing.T, up *e2e.Installation, namespace string) string {
	t.Helper()
	cfg, err := clientcmd.LoadFromFile(up.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	token := strings.TrimSpace(up.MustKubectl(t, "-n", namespace, "create", "token", "greeter", "--duration=1h"))
	for name := range cfg.AuthInfos {
		cfg.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: token}
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*cfg, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// A controller made with controller-runtime watches its custom resources, applies objects that
// they own, writes status and events, and elects a leader. It continues after the CRD server is
// killed.
func TestManager(t *testing.T) {
	t.Parallel()
	up := e2e.Install(t, t.TempDir())
	const ns = "greetings"
	up.MustKubectl(t, "create", "namespace", ns)
	up.MustKubectl(t, "apply", "-n", ns, "-f", filepath.Join("testdata", "manager"))
	up.MustKubectl(t, "wait", "--for=condition=established", "--timeout=60s", "crd/greetings.demo.example.com")
	kubeconfig := managerKubeconfig(t, up, ns)
	first := startManager(t, kubeconfig, ns, "first")
	e2e.Eventually(t, "the first manager leads", func() error { return leads(t, up, ns) })
	startManager(t, kubeconfig, ns, "second")

	file := filepath.Join(t.TempDir(), "greeting.yaml")
	greet := func(name, text string) {
		t.Helper()
		e2e.WriteFile(t, file, fmt.Sprintf("apiVersion: demo.example.com/v1\nkind: Greeting\nmetadata: {name: %s, namespace: %s}\nspec: {text: %q}\n", name, ns, text))
		e2e.Eventually(t, "apply "+name, func() error {
			_, err := up.Kubectl(t, "apply", "-f", file)
			return err
		})
	}
	greet("hello", "Hello")
	up.MustKubectl(t, "-n", ns, "wait", "--for=condition=Ready", "--timeout=60s", "greeting/hello")
	expectText(t, up, ns, "hello", "Hello")
	owners := up.MustKubectl(t, "-n", ns, "get", "configmap", "hello", "-o", "jsonpath={.metadata.ownerReferences[*].kind}/{.metadata.ownerReferences[*].name}")
	if owners != "Greeting/hello" {
		t.Errorf("the ConfigMap belongs to %q", owners)
	}
	e2e.Eventually(t, "there is an event", func() error {
		out, err := up.Kubectl(t, "-n", ns, "events", "--for", "greeting/hello")
		if err == nil && !strings.Contains(out, "generation 1 is in ConfigMap hello") {
			err = fmt.Errorf("%s", out)
		}
		return err
	})

	// A changed field and a deleted object are restored, the latter by an informer of
	// metadata.
	up.MustKubectl(t, "-n", ns, "patch", "configmap", "hello", "--type=merge", "-p", `{"data":{"text":"Goodbye"}}`)
	expectText(t, up, ns, "hello", "Hello")
	up.MustKubectl(t, "-n", ns, "delete", "configmap", "hello")
	expectText(t, up, ns, "hello", "Hello")

	up.Kill9(t, "crd")
	greet("again", "Hello again")
	expectText(t, up, ns, "again", "Hello again")

	// When the first one ends, the second one leads.
	if err := first.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := first.cmd.Wait(); err != nil {
		t.Errorf("the first manager ended with %v", err)
	}
	greet("hello", "Hello from the second")
	expectText(t, up, ns, "hello", "Hello from the second")
}

func leads(t *testing.T, up *e2e.Installation, ns string) error {
	t.Helper()
	lease, err := up.Client(t).CoordinationV1().Leases(ns).Get(t.Context(), "greeter", metav1.GetOptions{})
	if err == nil && (lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity == "") {
		err = fmt.Errorf("the lease has no holder")
	}
	return err
}

// expectText waits until the ConfigMap and the status agree on the text.
func expectText(t *testing.T, up *e2e.Installation, ns, name, text string) {
	t.Helper()
	e2e.Eventually(t, fmt.Sprintf("%s says %q", name, text), func() error {
		cm, err := up.Client(t).CoreV1().ConfigMaps(ns).Get(context.Background(), name, metav1.GetOptions{})
		if err == nil && cm.Data["text"] != text {
			err = fmt.Errorf("it says %q", cm.Data["text"])
		}
		if err != nil {
			return err
		}
		out, err := up.Kubectl(t, "-n", ns, "get", "greeting", name, "-o", "jsonpath={.metadata.generation} {.status.observedGeneration} {.status.configMap}")
		if err != nil {
			return err
		}
		var generation, observed int64
		var configMap string
		if n, _ := fmt.Sscan(out, &generation, &observed, &configMap); n != 3 || generation != observed || configMap != name {
			return fmt.Errorf("generation, observed generation and ConfigMap are %q", out)
		}
		return nil
	})
}
