//go:build upgrade

package upgrade

import (
	"flag"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"portico/cmd/e2e"
	"portico/cmd/internal/testtools"
)

var update = flag.Bool("update", false, "write the fixture of the oldest release")

// installation is a data folder, which portico up of different versions serves at the same address.
type installation struct {
	dir, address string
}

// run serves the folder with a version until use returns.
func (in *installation) run(t *testing.T, program string, use func(up *e2e.Installation)) {
	t.Helper()
	launched, err := testtools.LaunchProgram(program, in.dir, "--listen="+in.address)
	if err != nil {
		t.Fatal(err)
	}
	up := &e2e.Installation{Installation: launched}
	defer func() {
		if err := up.Stop(); err != nil {
			t.Error(err)
		}
	}()
	use(up)
}

// freeAddress returns an address on which nothing listens.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// The data of the oldest release is taken over by each later one and by this version, which a release then takes back and
// this version takes over again. Every object is as before each time, tokens of service accounts are valid, and an
// informer that runs all the time follows.
func TestChain(t *testing.T) {
	t.Parallel()
	type version struct{ name, program string }
	var versions []version
	source := ""
	for i, r := range e2e.Releases {
		program, from := r.Build(t)
		versions = append(versions, version{r.Version, program})
		if i == 0 {
			source = from
		}
	}
	versions = append(versions, version{"HEAD", e2e.Program(t, testtools.Portico)})
	last := len(versions) - 1
	versions = append(versions, versions[last-1], versions[last])

	in := &installation{filepath.Join(t.TempDir(), "data"), freeAddress(t)}
	var before state
	in.run(t, versions[0].program, func(up *e2e.Installation) {
		cfg := up.Config(t)
		seed(t, cfg, filepath.Join(source, "backends/core/kinds/testdata/objects"))
		before = settled(t, cfg)
	})
	if *update {
		pack(t, in.dir, before, fixture)
	}
	var follower *follower
	for i, v := range versions[1:] {
		step := fmt.Sprintf("%d: %s after %s", i+1, v.name, versions[i].name)
		in.run(t, v.program, func(up *e2e.Installation) {
			cfg := up.Config(t)
			after := settled(t, cfg)
			compare(t, step, before, after)
			authenticated(t, cfg, tokenStored, tokenRequested)
			if follower == nil {
				follower = follow(t, up)
			}
			follower.sees(t, up, fmt.Sprint("step-", i+1))
			before = settled(t, cfg)
		})
	}
}

// follower is an informer that is never started again.
type follower struct {
	mu    sync.Mutex
	seen  map[string]bool
	store cache.Store
}

func follow(t *testing.T, up *e2e.Installation) *follower {
	t.Helper()
	f := &follower{seen: map[string]bool{}}
	factory := informers.NewSharedInformerFactoryWithOptions(up.Client(t), 0, informers.WithNamespace(namespace))
	informer := factory.Core().V1().ConfigMaps().Informer()
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(o any) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.seen[o.(*corev1.ConfigMap).Name] = true
	}})
	if err != nil {
		t.Fatal(err)
	}
	f.store = informer.GetStore()
	stop := make(chan struct{})
	factory.Start(stop)
	t.Cleanup(func() { close(stop); factory.Shutdown() })
	return f
}

// sees makes an object and waits until the informer has it, and all others.
func (f *follower) sees(t *testing.T, up *e2e.Installation, name string) {
	t.Helper()
	client := up.Client(t).CoreV1().ConfigMaps(namespace)
	if _, err := client.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	e2e.Eventually(t, "the informer has all ConfigMaps", func() error {
		f.mu.Lock()
		seen := f.seen[name]
		f.mu.Unlock()
		list, err := client.List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		if !seen || len(f.store.ListKeys()) != len(list.Items) {
			return fmt.Errorf("it has %v of %d", f.store.ListKeys(), len(list.Items))
		}
		return nil
	})
}

// Every tag of the repository that is a version is in the table of releases, with its commit.
func TestTags(t *testing.T) {
	t.Parallel()
	out, err := exec.CommandContext(t.Context(), "git", "-C", e2e.Repository(), "tag", "--list", "v*").Output()
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]string{}
	for _, r := range e2e.Releases {
		known[r.Version] = r.Commit
	}
	for tag := range strings.FieldsSeq(string(out)) {
		commit, err := exec.CommandContext(t.Context(), "git", "-C", e2e.Repository(), "rev-list", "-n1", tag).Output()
		if err != nil || known[tag] != strings.TrimSpace(string(commit)) {
			t.Errorf("the table of releases has commit %q for %s, which is %s (%v)", known[tag], tag, commit, err)
		}
	}
}
