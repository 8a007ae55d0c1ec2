package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/types"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// patience bounds each wait; it is far above what any takes.
const patience = 90 * time.Second

// composition runs the services of a compose file as processes: the programs of the unpacked
// images with the commands, environments, health checks and dependencies of the file. Each
// service has a loopback address in place of its name, and folders in place of its volumes.
type composition struct {
	t       *testing.T
	project *types.Project
	images  map[string]v1.Image
	// rootfs has the folder of each image, address that of each host.
	rootfs, address map[string]string
	dir             string
	running         map[string]*process
}

type process struct {
	*exec.Cmd
	ended chan struct{} // closed when it has
	log   log
}

// log is the end of what a service prints. It is safe for concurrent use.
type log struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.b.Bytes()[max(0, l.b.Len()-4096):])
}

// newComposition unpacks the images. The processes end with the test.
func newComposition(t *testing.T, project *types.Project, images map[string]v1.Image) *composition {
	t.Helper()
	c := &composition{
		t: t, project: project, images: images, dir: t.TempDir(),
		rootfs: map[string]string{}, address: map[string]string{}, running: map[string]*process{},
	}
	if err := os.Mkdir(filepath.Join(c.dir, "nothing"), 0o500); err != nil {
		t.Fatal(err)
	}
	for name, image := range images {
		c.rootfs[name] = t.TempDir()
		unpack(t, image, c.rootfs[name])
	}
	network := fmt.Sprintf("127.%d.%d.", 1+rand.IntN(250), rand.IntN(256))
	for i, name := range project.ServiceNames() {
		address := fmt.Sprint(network, i+1)
		c.address[name] = address
		for _, n := range project.Services[name].Networks {
			if n == nil {
				continue
			}
			for _, alias := range n.Aliases {
				c.address[alias] = address // of several, any
			}
		}
	}
	// The kubeconfig names the port of a gateway on the machine.
	c.address["localhost"] = c.address["gateway-0"]
	t.Cleanup(func() {
		for _, p := range c.running {
			_ = p.Process.Kill()
			<-p.ended
		}
	})
	return c
}

// ownVolume returns the folder of the volume that a service has by its image.
func (c *composition) ownVolume(service string) string {
	return filepath.Join(c.dir, "volumes", "of-"+service)
}

// folder returns the folder of a volume.
func (c *composition) folder(service string, v types.ServiceVolumeConfig) string {
	if v.Volume != nil {
		return filepath.Join(c.dir, "volumes", v.Source, v.Volume.Subpath)
	}
	return filepath.Join(c.dir, "volumes", v.Source)
}

var (
	ownAddress = regexp.MustCompile(`(://|=)(0\.0\.0\.0|127\.0\.0\.1):`)
	namedHost  = regexp.MustCompile(`(://)([a-z0-9-]+):`)
	hostFlag   = regexp.MustCompile(`^(--[a-z]+-host=)(.+)$`)
)

// local replaces addresses, names and paths of containers in a string of a service.
func (c *composition) local(service, s string) string {
	s = ownAddress.ReplaceAllString(s, "${1}"+c.address[service]+":")
	s = namedHost.ReplaceAllStringFunc(s, func(host string) string {
		name := strings.Trim(host, ":/")
		if c.address[name] == "" {
			c.t.Errorf("%s: %s is no host", service, s)
		}
		return "://" + c.address[name] + ":"
	})
	if m := hostFlag.FindStringSubmatch(s); m != nil {
		hosts := strings.Split(m[2], ",")
		for i, host := range hosts {
			hosts[i] = c.address[host]
		}
		s = m[1] + strings.Join(hosts, ",")
	}
	for _, v := range c.project.Services[service].Volumes {
		s = strings.ReplaceAll(s, v.Target, c.folder(service, v))
	}
	return strings.ReplaceAll(s, "/var/lib/portico", c.ownVolume(service))
}

// command returns a program of a service's image with arguments and the environment.
func (c *composition) command(ctx context.Context, s *types.ServiceConfig, program string, args []string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(c.rootfs[s.Image], program))
	for _, arg := range args {
		cmd.Args = append(cmd.Args, c.local(s.Name, arg))
	}
	for name, value := range s.Environment {
		cmd.Env = append(cmd.Env, name+"="+c.local(s.Name, *value))
	}
	// A container cannot write here: its root is read-only.
	cmd.Dir = filepath.Join(c.dir, "nothing")
	cmd.Env = append(cmd.Env, "HOME="+cmd.Dir)
	return cmd
}

// start starts a service once what it depends on is as it asks for.
func (c *composition) start(name string, s *types.ServiceConfig) error {
	for dependency, is := range s.DependsOn {
		if err := c.await(dependency, is.Condition); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	folders := []string{c.ownVolume(name)}
	for _, v := range s.Volumes {
		folders = append(folders, c.folder(name, v))
	}
	for _, dir := range folders {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	config, err := c.images[s.Image].ConfigFile()
	if err != nil {
		return err
	}
	p := &process{ended: make(chan struct{})}
	p.Cmd = c.command(c.t.Context(), s, config.Config.Entrypoint[0], s.Command)
	p.Stdout, p.Stderr = &p.log, &p.log
	if err := p.Start(); err != nil {
		return err
	}
	go func() {
		_ = p.Wait() // the state has its result
		close(p.ended)
	}()
	c.running[name] = p
	return nil
}

// await waits until a service fulfils a condition of another.
func (c *composition) await(name, condition string) error {
	p, s := c.running[name], c.project.Services[name]
	if condition == types.ServiceConditionCompletedSuccessfully {
		select {
		case <-p.ended:
		case <-time.After(patience):
		}
		if p.ProcessState == nil || !p.ProcessState.Success() {
			return fmt.Errorf("%s has not succeeded: %s", name, &p.log)
		}
		return nil
	}
	test, deadline := s.HealthCheck.Test, time.Now().Add(patience)
	for {
		out, err := c.command(c.t.Context(), &s, test[1], test[2:]).CombinedOutput()
		if err == nil {
			return nil
		}
		select {
		case <-p.ended:
			return fmt.Errorf("%s ended: %s", name, &p.log)
		case <-time.After(100 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s is not healthy: %s\n%s", name, out, &p.log)
		}
	}
}

// composeImages returns the images that the compose file runs, made from programs of the
// working copy.
func composeImages(t *testing.T) map[string]v1.Image {
	t.Helper()
	set := imageSet{release: testRelease(t)}
	for _, s := range samples {
		set.samples = append(set.samples, program{s.name, builtProgram(t, s.name, filepath.Join("cmd", "tools"), s.pkg), s.title})
	}
	all, err := set.images()
	if err != nil {
		t.Fatal(err)
	}
	images := map[string]v1.Image{}
	for _, i := range all {
		images[i.name+":"+set.version] = i.image
	}
	return images
}

// The services of the compose file start in its order and become healthy, serve what is
// written through one gateway to readers of the other, and the sample server behind both, and
// stop in order when they are asked to.
func TestComposeRuns(t *testing.T) {
	t.Parallel()
	testComposition(t, composeImages(t))
}

func testComposition(t *testing.T, images map[string]v1.Image) {
	t.Helper()
	c := newComposition(t, composeProject(t), images)
	start := time.Now()
	if err := c.project.ForEachService(nil, c.start); err != nil {
		t.Fatal(err)
	}
	for name, s := range c.project.Services {
		condition := types.ServiceConditionHealthy
		if once(s) {
			condition = types.ServiceConditionCompletedSuccessfully
		}
		if err := c.await(name, condition); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("all is healthy after %v", time.Since(start))
	one, other := c.client("gateway-0"), c.client("gateway-1")
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "demo"}}
	err := untilAvailable(t, func(ctx context.Context) error {
		_, err := one.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	err = untilAvailable(t, func(ctx context.Context) error {
		_, err := other.CoreV1().Namespaces().Get(ctx, "demo", metav1.GetOptions{})
		return err
	})
	if err != nil {
		t.Error(err)
	}
	for name, client := range map[string]*kubernetes.Clientset{"gateway-0": one, "gateway-1": other} {
		for _, path := range []string{"/apis/pets.example.com/v1/pets", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", "/api/v1/namespaces/default/serviceaccounts"} {
			err := untilAvailable(t, func(ctx context.Context) error { return client.RESTClient().Get().AbsPath(path).Do(ctx).Error() })
			if err != nil {
				t.Errorf("%s: %s: %v", name, path, err)
			}
		}
	}
	if log := c.running["backup"].log.String(); !strings.Contains(log, "revision") {
		t.Errorf("backup: %q", log)
	}
	c.stop()
}

// untilAvailable repeats a request until its answer is not 503, and returns its error. A gateway
// is healthy without its backends: it may answer 503 until it probes them again.
func untilAvailable(t *testing.T, request func(context.Context) error) error {
	t.Helper()
	var answer error
	err := wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		answer = request(ctx)
		return !apierrors.IsServiceUnavailable(answer), nil
	})
	return errors.Join(err, answer)
}

// client returns a client of a gateway with the kubeconfig of the installation.
func (c *composition) client(gateway string) *kubernetes.Clientset {
	c.t.Helper()
	cfg, err := clientcmd.BuildConfigFromFlags("", filepath.Join(c.dir, "volumes", "pki", "admin", "kubeconfig"))
	if err != nil {
		c.t.Fatal(err)
	}
	cfg.Host = "https://" + c.address[gateway] + ":6443"
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		c.t.Fatal(err)
	}
	return client
}

// stop ends all services by SIGTERM, etcd last. Only etcd and the sample report that it was a
// signal.
func (c *composition) stop() {
	c.t.Helper()
	for _, names := range []*regexp.Regexp{regexp.MustCompile("^(gateway-|core|crd)"), regexp.MustCompile("^(etcd-|pets)")} {
		start := time.Now()
		for name, p := range c.running {
			if names.MatchString(name) {
				if err := p.Process.Signal(syscall.SIGTERM); err != nil {
					c.t.Errorf("%s: %v", name, err)
				}
			}
		}
		for name, p := range c.running {
			if !names.MatchString(name) {
				continue
			}
			select {
			case <-p.ended:
				c.t.Logf("%s ended within %v", name, time.Since(start))
			case <-time.After(patience):
				c.t.Fatalf("%s does not stop:\n%s", name, &p.log)
			}
			if status := p.ProcessState.Sys().(syscall.WaitStatus); !p.ProcessState.Success() && status.Signal() != syscall.SIGTERM {
				c.t.Errorf("%s ended with %v:\n%s", name, p.ProcessState, &p.log)
			}
		}
	}
}
