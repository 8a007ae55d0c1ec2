package manifests

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"portico/cmd/e2e"
	"portico/cmd/internal/testtools"
)

// Cluster runs the containers of manifests as processes of this machine: files of volumes are in a folder for each pod, and
// ports of pods are free ports of 127.0.0.1.
type Cluster struct {
	set       *Set
	dir       string
	addresses map[string]string // of POD:PORT
	pods      map[string]*exec.Cmd
}

// NewCluster reserves the ports of all pods.
func NewCluster(t *testing.T, set *Set) *Cluster {
	c := &Cluster{set: set, dir: t.TempDir(), addresses: map[string]string{}, pods: map[string]*exec.Cmd{}}
	for _, w := range set.Workloads {
		for i := range w.Replicas {
			for _, port := range w.Container.Ports {
				l, err := net.Listen("tcp", "127.0.0.1:0")
				if err != nil {
					t.Fatal(err)
				}
				defer l.Close()
				c.addresses[fmt.Sprintf("%s-%d:%d", w.Name, i, port.ContainerPort)] = l.Addr().String()
			}
		}
	}
	return c
}

// Address returns where a port of a pod is.
func (c *Cluster) Address(pod string, port int) string {
	return c.addresses[fmt.Sprintf("%s:%d", pod, port)]
}

// local returns arguments or a file of a pod as its process takes them here.
func (c *Cluster) local(w *Workload, pod, text string) string {
	text = strings.ReplaceAll(text, "$(POD_NAME)", pod)
	text = address.ReplaceAllStringFunc(text, func(url string) string {
		m := address.FindStringSubmatch(url)
		port, _ := strconv.Atoi(m[2])
		to, target := c.set.resolve(m[1], port)
		if to == nil {
			return url
		}
		name, _, isPod := strings.Cut(m[1], ".")
		if !isPod {
			name = to.Name + "-0"
		}
		return "https://" + c.Address(name, target)
	})
	for _, port := range w.Container.Ports {
		text = strings.ReplaceAll(text, fmt.Sprintf("0.0.0.0:%d", port.ContainerPort), c.Address(pod, int(port.ContainerPort)))
	}
	for _, mount := range w.Container.VolumeMounts {
		text = strings.ReplaceAll(text, mount.MountPath, filepath.Join(c.dir, pod, mount.MountPath))
	}
	return strings.ReplaceAll(text, "shutdown-delay-duration: 10s", "shutdown-delay-duration: 100ms")
}

// start writes the files of a pod's volumes and starts its process.
func (c *Cluster) start(t *testing.T, w *Workload, pod string) {
	t.Helper()
	for _, mount := range w.Container.VolumeMounts {
		dir := filepath.Join(c.dir, pod, mount.MountPath)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		volume, _ := w.volumeAt(mount.MountPath)
		for name, data := range c.set.files(volume) {
			text := string(data)
			if volume.ConfigMap != nil {
				text = c.local(w, pod, text)
			}
			e2e.WriteFile(t, filepath.Join(dir, name), text)
		}
	}
	program := testtools.Portico
	if w.Component == "etcd" {
		program = testtools.Etcd
	}
	var args []string
	for _, arg := range w.Container.Args {
		args = append(args, c.local(w, pod, arg))
	}
	log, err := os.OpenFile(filepath.Join(c.dir, pod+".log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(e2e.Program(t, program), args...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c.pods[pod] = cmd
	t.Cleanup(func() {
		cmd.Process.Kill()
		_ = cmd.Wait() // it was killed, or has ended before
		log.Close()
		if text, err := os.ReadFile(log.Name()); err == nil && t.Failed() {
			t.Logf("%s:\n%s", pod, text[max(0, len(text)-4096):])
		}
	})
}

// Start starts all pods with the files of Secrets, and returns when their probes succeed.
func (c *Cluster) Start(t *testing.T, secrets Secrets) {
	t.Helper()
	c.set.secrets = secrets
	for _, do := range []func(*testing.T, *Workload, string){c.start, c.ready} {
		for _, w := range c.set.Workloads {
			for i := range w.Replicas {
				do(t, w, fmt.Sprintf("%s-%d", w.Name, i))
			}
		}
	}
}

// Serve checks that the processes serve an administrator, tokens and custom resources through one gateway, which must not be
// the first, do without the first pod of each kind, and end in order.
func (c *Cluster) Serve(t *testing.T, kubeconfig string) {
	t.Helper()
	admin := &e2e.Installation{Installation: &testtools.Installation{Dir: c.dir, Kubeconfig: kubeconfig}}
	e2e.Eventually(t, "all APIs are available", func() error {
		out, err := admin.Kubectl(t, "get", "apiservices")
		if err == nil && (strings.Contains(out, "False") || !strings.Contains(out, "v1.apps")) {
			err = fmt.Errorf("there are\n%s", out)
		}
		return err
	})
	admin.MustKubectl(t, "create", "namespace", "demo")
	admin.MustKubectl(t, "-n", "demo", "create", "serviceaccount", "robot")
	token := strings.TrimSpace(admin.MustKubectl(t, "-n", "demo", "create", "token", "robot"))
	// A client certificate of the kubeconfig would come before the token.
	who := admin.MustKubectl(t, "create", "-o", "jsonpath={.status.user.username}", "-f", reviewFile(t, token))
	if who != "system:serviceaccount:demo:robot" {
		t.Errorf("the token is of %q", who)
	}
	samples := filepath.Join(e2e.Repository(), "deploy/samples/crontabs")
	admin.MustKubectl(t, "apply", "-f", filepath.Join(samples, "definition.yaml"))
	var last []string
	for _, w := range c.set.Workloads {
		c.stop(t, w.Name+"-0", syscall.SIGKILL)
		if w.Component != "etcd" {
			last = append(last, fmt.Sprintf("%s-%d", w.Name, w.Replicas-1))
		}
	}
	e2e.Eventually(t, "the other pods serve", func() error {
		_, err := admin.Kubectl(t, "apply", "-f", filepath.Join(samples, "backup.yaml"))
		return err
	})
	admin.MustKubectl(t, "-n", "demo", "get", "serviceaccount", "robot")
	for _, pod := range last {
		c.stop(t, pod, syscall.SIGTERM)
	}
}

// reviewFile writes a TokenReview.
func reviewFile(t *testing.T, token string) string {
	file := filepath.Join(t.TempDir(), "review.yaml")
	e2e.WriteFile(t, file, "apiVersion: authentication.k8s.io/v1\nkind: TokenReview\nspec: {token: "+token+"}\n")
	return file
}

// stop sends a signal and waits until the process has ended.
func (c *Cluster) stop(t *testing.T, pod string, signal syscall.Signal) {
	t.Helper()
	if err := c.pods[pod].Process.Signal(signal); err != nil {
		t.Fatalf("stop %s: %v", pod, err)
	}
	if err := c.pods[pod].Wait(); err != nil && signal != syscall.SIGKILL {
		t.Errorf("%s ends with %v", pod, err)
	}
}

// ready waits until the probes of a pod succeed, as a kubelet asks.
func (c *Cluster) ready(t *testing.T, w *Workload, pod string) {
	t.Helper()
	for _, probe := range []*corev1.Probe{w.Container.StartupProbe, w.Container.LivenessProbe, w.Container.ReadinessProbe} {
		url := fmt.Sprintf("http://%s%s", c.Address(pod, portOf(w, probe.HTTPGet.Port)), probe.HTTPGet.Path)
		e2e.Eventually(t, pod+": "+probe.HTTPGet.Path, func() error {
			resp, err := http.Get(url)
			if err != nil {
				return err
			}
			defer resp.Body.Close()
			body, err := io.ReadAll(resp.Body)
			if err == nil && resp.StatusCode != http.StatusOK {
				err = fmt.Errorf("%s: %s", resp.Status, body)
			}
			return err
		})
	}
}
