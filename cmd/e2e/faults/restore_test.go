package faults

import (
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"filippo.io/age"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"portico/cmd/e2e"
	"portico/cmd/internal/testtools"
)

// sequence creates ConfigMaps in the order of their numbers until its installation is gone.
type sequence struct {
	name  string
	mu    sync.Mutex
	acked int
}

func (s *sequence) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.acked
}

func (s *sequence) run(t *testing.T, client *http.Client, endpoint string) {
	for i := 0; ; i++ {
		body := fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"%s-%d"}}`, s.name, i)
		resp, answer, err := e2e.Ask(t.Context(), client, http.MethodPost, endpoint+configMaps, body)
		if err != nil {
			return
		}
		if resp.StatusCode != http.StatusCreated {
			if resp.StatusCode < 500 {
				t.Errorf("create %s-%d: %d %s", s.name, i, resp.StatusCode, answer)
			}
			return
		}
		s.mu.Lock()
		s.acked = i + 1
		s.mu.Unlock()
	}
}

// portico runs a command of portico and returns its output.
func portico(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), e2e.Program(t, testtools.Portico), args...).CombinedOutput()
	if err != nil {
		t.Fatalf("portico %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// An installation is backed up while it is written to, destroyed, and restored at its address.
// Writes that were acknowledged before the backup are there, and of each writer no later one
// without the ones before. Informers of before end up with what is stored, tokens and kubeconfigs
// of before are good, and no resource version is seen twice.
func TestRestoreDrill(t *testing.T) {
	t.Parallel()
	work, listen := t.TempDir(), "--listen=127.0.0.1:"+e2e.FreePort(t, "127.0.0.1")
	identity, file, dir := filepath.Join(work, "key"), filepath.Join(work, "portico.backup"), filepath.Join(work, "first")
	key, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	e2e.WriteFile(t, identity, "# of the drill\n"+key.String()+"\n")
	up := e2e.Install(t, dir, listen)
	cfg := up.Config(t)
	before := fillInstallation(t, up)
	configMapsSeen, widgetsSeen := watchAll(t, cfg)

	load := []*sequence{{name: "a"}, {name: "b"}, {name: "c"}}
	var running sync.WaitGroup
	for _, s := range load {
		running.Go(func() { s.run(t, e2e.HTTPClient(t, cfg), up.Endpoint) })
	}
	progress := func(until int) {
		t.Helper()
		e2e.Eventually(t, "the load writes", func() error {
			for _, s := range load {
				if n := s.count(); n < until {
					return fmt.Errorf("%s is at %d", s.name, n)
				}
			}
			return nil
		})
	}
	progress(20)
	least := map[string]int{}
	for _, s := range load {
		least[s.name] = s.count()
	}
	t.Log(portico(t, "backup", file, "--data-dir="+dir, "--encrypt-to="+key.Recipient().String()))
	progress(load[0].count() + 50)
	latest := listVersion(t, up)
	destroy(t, up, dir)
	running.Wait()

	restored, ended := filepath.Join(work, "restored"), time.Now()
	t.Log(portico(t, "restore", file, "--data-dir="+restored, "--identity-file="+identity))
	up = e2e.Install(t, restored, listen)
	lost := 0
	for _, s := range load {
		n := storedSequence(t, up.Client(t), s.name)
		if n < least[s.name] || n > s.count() {
			t.Errorf("%d of %s are stored, %d were acknowledged before the backup, %d in all", n, s.name, least[s.name], s.count())
		}
		lost += s.count() - n
	}
	if lost == 0 {
		t.Error("nothing was written after the backup: the test shows nothing")
	}
	noProcessesOfBefore(t, up, ended)
	before.check(t, up, cfg)
	if now := listVersion(t, up); now <= latest {
		t.Errorf("resource version %d after %d", now, latest)
	}
	if code, answer := up.Do(t, http.MethodGet, fmt.Sprintf("%s?watch=1&timeoutSeconds=5&resourceVersion=%d", configMaps, latest), ""); code != http.StatusGone && !strings.Contains(answer, `"code":410`) {
		t.Errorf("watch from a revision of before: %d %s", code, answer)
	}
	e2e.Create(t, up, "after")
	converged(t, up, configMapsSeen, widgetsSeen)
}

// noProcessesOfBefore checks that processes that ended have no Lease, by which status would call them silent.
func noProcessesOfBefore(t *testing.T, up *e2e.Installation, ended time.Time) {
	t.Helper()
	leases, err := up.Client(t).CoordinationV1().Leases(metav1.NamespaceSystem).List(t.Context(), metav1.ListOptions{LabelSelector: "apiserver.kubernetes.io/identity"})
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range leases.Items {
		if l.Spec.RenewTime.Time.Before(ended) {
			t.Errorf("the Lease %s of %s was renewed at %v last, before the restoration at %v", l.Name, l.Annotations["portico.dev/instance"], l.Spec.RenewTime, ended)
		}
	}
}

// destroy kills an installation and removes its data.
func destroy(t *testing.T, up *e2e.Installation, dir string) {
	t.Helper()
	if err := up.Cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := up.Stop(); err != nil {
		t.Fatal(err)
	}
	e2e.Eventually(t, "the folder is removed", func() error { return os.RemoveAll(dir) })
}

// listVersion returns the resource version of a list.
func listVersion(t *testing.T, up *e2e.Installation) int {
	t.Helper()
	list, err := up.Client(t).CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(list.ResourceVersion)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// storedSequence returns how many of a sequence are stored. There must be no gap.
func storedSequence(t *testing.T, client kubernetes.Interface, name string) int {
	t.Helper()
	list, err := client.CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	found := map[int]bool{}
	for _, cm := range list.Items {
		if number, ok := strings.CutPrefix(cm.Name, name+"-"); ok {
			n, err := strconv.Atoi(number)
			if err != nil {
				t.Fatal(err)
			}
			found[n] = true
		}
	}
	for i := range len(found) {
		if !found[i] {
			t.Errorf("%s-%d is missing and a later one of %d is stored", name, i, len(found))
		}
	}
	return len(found)
}

// filled is what fillInstallation made.
type filled struct{ token, address string }

const drillGroup = "drill.example.com"

// fillInstallation creates objects of several kinds.
func fillInstallation(t *testing.T, up *e2e.Installation) filled {
	t.Helper()
	ctx, client := t.Context(), up.Client(t)
	widgets := e2e.Define(t, e2e.DynamicClient(t, up.Config(t)), drillGroup)
	if _, err := widgets.Namespace("default").Create(ctx, e2e.Widget(drillGroup, "w"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s"}, StringData: map[string]string{"k": "secret"}}
	if _, err := client.CoreV1().Secrets("default").Create(ctx, secret, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	service, err := client.CoreV1().Services("default").Create(ctx, newService("first"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	up.Post(t, "/apis/apiregistration.k8s.io/v1/apiservices", `{"apiVersion":"apiregistration.k8s.io/v1","kind":"APIService","metadata":{"name":"v1.away.example.com"},
		"spec":{"group":"away.example.com","version":"v1","groupPriorityMinimum":10,"versionPriority":10,"insecureSkipTLSVerify":true,"service":{"namespace":"default","name":"first"}}}`)
	token, err := client.CoreV1().ServiceAccounts("default").CreateToken(ctx, "default", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return filled{token: token.Status.Token, address: service.Spec.ClusterIP}
}

func newService(name string) *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}
}

// check finds the objects again, with credentials of before: cfg and the token.
func (f filled) check(t *testing.T, up *e2e.Installation, cfg *rest.Config) {
	t.Helper()
	ctx, client := t.Context(), kubernetes.NewForConfigOrDie(cfg)
	up.Shows(t, "/apis/"+drillGroup+"/v1/namespaces/default/widgets/w", `"colour":"red"`)
	up.Shows(t, "/apis/apiregistration.k8s.io/v1/apiservices/v1.away.example.com", `"group":"away.example.com"`)
	secret, err := client.CoreV1().Secrets("default").Get(ctx, "s", metav1.GetOptions{})
	if err != nil || string(secret.Data["k"]) != "secret" {
		t.Errorf("secret: %v %v", secret, err)
	}
	second, err := client.CoreV1().Services("default").Create(ctx, newService("second"), metav1.CreateOptions{})
	if err != nil || second.Spec.ClusterIP == f.address {
		t.Errorf("a second service has %s, the first one %s: %v", second.Spec.ClusterIP, f.address, err)
	}
	account := rest.AnonymousClientConfig(cfg)
	account.BearerToken = f.token
	if user := e2e.Whoami(t, account); user != "system:serviceaccount:default:default" {
		t.Errorf("the token is of %q", user)
	}
}

// watchAll starts informers of the ConfigMaps and widgets of the namespace default.
func watchAll(t *testing.T, cfg *rest.Config) (configMaps, widgets cache.Store) {
	t.Helper()
	typed := informers.NewSharedInformerFactoryWithOptions(kubernetes.NewForConfigOrDie(cfg), 0, informers.WithNamespace("default"))
	dynamic := dynamicinformer.NewFilteredDynamicSharedInformerFactory(e2e.DynamicClient(t, cfg), 0, "default", nil)
	first, second := typed.Core().V1().ConfigMaps().Informer(), dynamic.ForResource(e2e.WidgetsOf(drillGroup)).Informer()
	typed.Start(t.Context().Done())
	dynamic.Start(t.Context().Done())
	t.Cleanup(typed.Shutdown)
	t.Cleanup(dynamic.Shutdown)
	if !cache.WaitForCacheSync(t.Context().Done(), first.HasSynced, second.HasSynced) {
		t.Fatal("informers do not start")
	}
	return first.GetStore(), second.GetStore()
}

// converged waits until informers have what is stored.
func converged(t *testing.T, up *e2e.Installation, configMaps, widgets cache.Store) {
	t.Helper()
	start := time.Now()
	stored, err := up.Client(t).CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]bool{}
	for _, cm := range stored.Items {
		want["default/"+cm.Name] = true
	}
	e2e.Eventually(t, "informers have what is stored", func() error {
		have := map[string]bool{}
		for _, key := range configMaps.ListKeys() {
			have[key] = true
		}
		if !maps.Equal(have, want) {
			return fmt.Errorf("%d config maps, %d are stored", len(have), len(want))
		}
		if keys := widgets.ListKeys(); !slices.Equal(keys, []string{"default/w"}) {
			return fmt.Errorf("widgets %v", keys)
		}
		return nil
	})
	t.Logf("informers have what is stored %v after it was listed", time.Since(start).Round(time.Millisecond))
}
