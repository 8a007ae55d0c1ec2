//go:build certificates

package faults

import (
	"bytes"
	"context"
	"encoding/pem"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	certutil "k8s.io/client-go/util/cert"

	"portico/cmd/e2e"
	"portico/cmd/internal/pki"
	"portico/cmd/internal/testtools"
)

// An installation that is killed by SIGKILL at any moment of the replacement of its authorities starts again each
// time. Each kubeconfig that has not ended is served, and so is each token of a service account; what was stored
// is there, and no file is half-written.
func TestKilledWhileAuthoritiesAreReplaced(t *testing.T) {
	t.Parallel()
	number := func(name string) uint64 {
		n, err := strconv.ParseUint(os.Getenv(name), 10, 64)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		return n
	}
	leaf, err := time.ParseDuration(os.Getenv("PORTICO_TEST_CERTIFICATE_LIFETIME"))
	if err != nil {
		t.Fatal(err)
	}
	kills, seed := number("PORTICO_TEST_CERTIFICATE_KILLS"), uint64(time.Now().UnixNano())
	if os.Getenv("PORTICO_TEST_CERTIFICATE_SEED") != "" {
		seed = number("PORTICO_TEST_CERTIFICATE_SEED")
	}
	t.Logf("SEED=%d", seed)
	k := &killed{
		t: t, rnd: rand.New(rand.NewPCG(seed, 0)), dir: t.TempDir(),
		args: []string{"--listen=127.0.0.1:" + e2e.FreePort(t, "127.0.0.1"), fmt.Sprint("--certificate-lifetime=", leaf), fmt.Sprint("--certificate-authority-lifetime=", 4*leaf)},
	}
	k.pki = filepath.Join(k.dir, "pki")
	first := k.start()
	k.checkServes(first)
	k.end(first)
	for k.kills = 1; k.kills < int(kills) && !t.Failed(); k.kills++ {
		if k.rnd.IntN(3) == 0 {
			k.killStarting()
		} else {
			k.killRunning()
		}
		k.checkFiles()
	}
	up := e2e.Install(t, k.dir, k.args...)
	k.checkServes(up)
	t.Logf("%d kills; %d authorities of servers; %d kubeconfigs, %d requests by earlier ones; %d tokens; %d objects", k.kills, k.generations, len(k.kubeconfigs), k.asked, len(k.tokens), len(k.stored))
	if k.generations < 2 || k.asked < k.kills {
		t.Error("too few to tell")
	}
}

// killed is an installation that is killed and started again.
type killed struct {
	t           *testing.T
	rnd         *rand.Rand
	dir, pki    string
	args        []string
	kubeconfigs []*rest.Config // all that there were
	tokens      []string       // of a service account
	stored      []string       // names of ConfigMaps
	serving     []byte         // the key of servers
	// kills, asked and generations are counts: of ends, of requests with earlier kubeconfigs, and of authorities of servers.
	kills, asked, generations int
}

// start starts the installation, which must come up.
func (k *killed) start() *e2e.Installation {
	k.t.Helper()
	up, err := e2e.Launch(k.dir, k.args...)
	if err != nil {
		k.t.Fatalf("after %d kills: %v", k.kills, err)
	}
	return up
}

// killStarting kills an installation that starts, and has to replace its authorities first in half of the cases.
func (k *killed) killStarting() {
	if k.rnd.IntN(2) == 0 {
		k.request()
	}
	moment := k.moment(2 * time.Second)
	up, err := testtools.Start(k.dir, k.args...)
	if err != nil {
		k.t.Fatal(err)
	}
	moment()
	k.end(&e2e.Installation{Installation: up})
}

// killRunning kills an installation that serves, with its children in half of the cases, while clients write.
func (k *killed) killRunning() {
	up := k.start()
	k.checkServes(up)
	if k.t.Failed() {
		up.DumpLogs(k.t)
	}
	children := map[string]int{}
	for _, name := range []string{"etcd", "core", "crd", "gateway"} {
		children[name] = up.Child(k.t, name)
	}
	if k.rnd.IntN(4) == 0 {
		children = nil
	}
	ctx, stop := context.WithCancel(k.t.Context())
	acknowledged := make(chan []string)
	go func() { acknowledged <- k.write(ctx, up) }()
	moment := k.moment(6 * time.Second)
	k.request()
	moment()
	k.end(up, children)
	stop()
	k.stored = append(k.stored, <-acknowledged...)
}

// request requests the replacement of all authorities, as portico certs rotate does, which refuses to have too many of them.
func (k *killed) request() {
	all, err := pki.Replacements(k.pki)
	if err != nil {
		k.t.Fatal(err)
	}
	if slices.ContainsFunc(all, func(r pki.Replacement) bool { return len(r.Earlier) >= pki.MaxEarlier }) {
		return
	}
	if err := pki.ReplaceAuthorities.Request(k.pki); err != nil {
		k.t.Fatal(err)
	}
}

// moment returns a function that waits for a random number of changes in the folder of keys, or for a random time.
func (k *killed) moment(within time.Duration) (wait func()) {
	changed := func() time.Time {
		info, err := os.Stat(k.pki)
		if err != nil {
			k.t.Error(err)
		}
		return info.ModTime()
	}
	last, left, lasts := changed(), 1+k.rnd.IntN(40), time.Duration(k.rnd.Int64N(int64(within)))
	return func() {
		for end := time.Now().Add(lasts); left > 0 && time.Now().Before(end); time.Sleep(50 * time.Microsecond) {
			if now := changed(); !now.Equal(last) {
				last = now
				left--
			}
		}
	}
}

// end kills the process, and those of children, in any order.
func (k *killed) end(up *e2e.Installation, children ...map[string]int) {
	pids := []int{up.Cmd.Process.Pid}
	for _, more := range children {
		for _, pid := range more {
			pids = append(pids, pid)
		}
	}
	k.rnd.Shuffle(len(pids), func(i, j int) { pids[i], pids[j] = pids[j], pids[i] })
	for _, pid := range pids {
		_ = syscall.Kill(pid, syscall.SIGKILL) // one that has died with the others is gone
	}
	<-up.Exited
}

// write creates ConfigMaps until that fails, and returns those that were acknowledged.
func (k *killed) write(ctx context.Context, up *e2e.Installation) (names []string) {
	client := up.Client(k.t)
	for n := 0; ; n++ {
		name := fmt.Sprintf("stored-%d-%d", k.kills, n)
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if _, err := client.CoreV1().ConfigMaps("default").Create(ctx, cm, metav1.CreateOptions{}); err != nil {
			return names
		}
		names = append(names, name)
		select {
		case <-ctx.Done():
		case <-time.After(pace):
		}
	}
}

// checkFiles checks each file of the folder of keys, and the kubeconfig.
func (k *killed) checkFiles() {
	k.t.Helper()
	entries, err := os.ReadDir(k.pki)
	if err != nil {
		k.t.Fatal(err)
	}
	for _, entry := range entries {
		name := entry.Name()
		if strings.HasPrefix(name, ".") || name == string(pki.ReplaceAuthorities) {
			continue
		}
		data, err := os.ReadFile(filepath.Join(k.pki, name))
		if err != nil {
			k.t.Fatal(err)
		}
		blocks := 0
		for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
			data = rest
			blocks++
		}
		if blocks == 0 || len(bytes.TrimSpace(data)) > 0 {
			k.t.Errorf("after %d kills: %s has %d blocks of PEM, and then %q", k.kills, name, blocks, data)
		}
	}
	k.readKubeconfig(filepath.Join(k.dir, "kubeconfig"))
}

// readKubeconfig keeps what a client has read.
func (k *killed) readKubeconfig(file string) {
	k.t.Helper()
	cfg, err := clientcmd.BuildConfigFromFlags("", file)
	if err != nil {
		k.t.Errorf("after %d kills: %v", k.kills, err)
		return
	}
	if n := len(k.kubeconfigs); n == 0 || !bytes.Equal(k.kubeconfigs[n-1].CertData, cfg.CertData) || !bytes.Equal(k.kubeconfigs[n-1].CAData, cfg.CAData) {
		k.kubeconfigs = append(k.kubeconfigs, cfg)
	}
}

// checkServes checks an installation that came up: what has not ended works, and no file is left of one that was killed.
func (k *killed) checkServes(up *e2e.Installation) {
	k.t.Helper()
	k.readKubeconfig(up.Kubeconfig)
	trusting := slices.DeleteFunc(slices.Clone(k.kubeconfigs), func(cfg *rest.Config) bool { return !slices.Contains(ended(k.t, cfg.CAData), false) })
	for _, cfg := range trusting {
		if !ended(k.t, cfg.CertData)[0] { // certificates of its authority follow
			k.ask(cfg, "an earlier kubeconfig", "/api/v1/namespaces/default")
		}
	}
	k.tokens = append(k.tokens, serviceAccountToken(k.t, up))
	for n, token := range k.tokens {
		of := rest.AnonymousClientConfig(k.kubeconfigs[0])
		of.CAData, of.BearerToken = trusting[n%len(trusting)].CAData, token
		k.ask(of, fmt.Sprint("token ", n), "/api")
	}
	list, err := up.Client(k.t).CoreV1().ConfigMaps("default").List(k.t.Context(), metav1.ListOptions{})
	if err != nil {
		k.t.Fatal(err)
	}
	has := map[string]bool{}
	for i := range list.Items {
		has[list.Items[i].Name] = true
	}
	for _, name := range k.stored {
		if !has[name] {
			k.t.Errorf("after %d kills: ConfigMap %s was acknowledged and is gone", k.kills, name)
		}
	}
	key, err := os.ReadFile(filepath.Join(k.pki, "serving-ca.key"))
	if err != nil {
		k.t.Fatal(err)
	}
	if !bytes.Equal(key, k.serving) {
		k.serving = key
		k.generations++
	}
	e2e.Eventually(k.t, "no temporary file is left", func() error {
		left, err := filepath.Glob(filepath.Join(k.pki, ".*"))
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("%v", left)
		}
		return err
	})
}

// ask sends a request on a new connection.
func (k *killed) ask(cfg *rest.Config, name, path string) {
	k.t.Helper()
	client, err := freshClient(cfg, true)
	if err != nil {
		k.t.Fatal(err)
	}
	var header []string
	if cfg.BearerToken != "" {
		header = []string{"Authorization: Bearer " + cfg.BearerToken}
	}
	res, answer, err := e2e.Ask(k.t.Context(), client, "GET", cfg.Host+path, "", header...)
	if err != nil || res.StatusCode != http.StatusOK {
		k.t.Errorf("after %d kills: %s: %v %.300s", k.kills, name, err, answer)
	}
	k.asked++
}

// ended reports of each certificate in PEM whether it has ended, or does in some seconds.
func ended(t *testing.T, data []byte) (all []bool) {
	t.Helper()
	certs, err := certutil.ParseCertsPEM(data)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range certs {
		all = append(all, time.Until(c.NotAfter) < 3*time.Second)
	}
	return all
}
