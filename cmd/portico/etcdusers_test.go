package main

import (
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/etcd/server/v3/embed"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico/cmd/e2e"
	"portico/cmd/internal/testtools"
	"portico/internal/testing/etcdtest"
)

// With the users and roles of deploy/machines/users.sh each process does its work, and etcd refuses it what is not its
// own: what others serve, and what is not Portico's.
func TestUsersOfEtcd(t *testing.T) {
	t.Parallel()
	e2e.NeedsInstallation(t)
	dir, address := t.TempDir(), freePort(t)
	file := func(name string) string { return filepath.Join(dir, name) }
	issued(t, dir, "portico-gateway", "portico-core", "portico-crd", "root")
	etcdtest.Start(t, func(cfg *embed.Config) {
		client := url.URL{Scheme: "https", Host: address}
		cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
		tls := &cfg.ClientTLSInfo
		tls.CertFile, tls.KeyFile, tls.TrustedCAFile, tls.ClientCertAuth = file("etcd.crt"), file("etcd.key"), file("client-ca.crt"), true
	})
	program := filepath.Dir(e2e.Program(t, testtools.Etcdctl))
	as := func(user, script string) (string, error) {
		cmd := exec.CommandContext(t.Context(), "sh", "-ec", script)
		cmd.Env = append(os.Environ(), "PATH="+program+":"+os.Getenv("PATH"), "ETCDCTL_ENDPOINTS=https://"+address, "ETCDCTL_CACERT="+file("serving-ca.crt"),
			"ETCDCTL_CERT="+file(user+".crt"), "ETCDCTL_KEY="+file(user+".key"))
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	users := etcdUsers(t) + " shop.example.com"
	for range 2 { // it may be run again
		if out, err := as("root", users); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}

	config := head
	for section, user := range map[string]string{"up": "gateway", "gateway": "gateway", "core": "core", "crd": "crd"} {
		config += section + ": {etcd-certfile: " + file("portico-"+user+".crt") + ", etcd-keyfile: " + file("portico-"+user+".key") + "}\n"
	}
	e2e.WriteFile(t, file("portico.yaml"), config)
	up := e2e.Install(t, file("data"), "--config="+file("portico.yaml"), "--etcd-servers=https://"+address, "--etcd-cafile="+file("serving-ca.crt"))
	e2e.Create(t, up, "stored")
	e2e.Expect(t, up, "stored")
	widgets := e2e.Define(t, e2e.DynamicClient(t, up.Config(t)), "shop.example.com")
	e2e.Eventually(t, "a custom resource is stored", func() error {
		_, err := widgets.Namespace("default").Create(t.Context(), e2e.Widget("shop.example.com", "w"), metav1.CreateOptions{})
		return err
	})
	up.MustKubectl(t, "create", "clusterrole", "reader", "--verb=get", "--resource=pods")
	up.MustKubectl(t, "create", "deployment", "d", "--image=x")
	up.MustKubectl(t, "delete", "crd", "widgets.shop.example.com")
	if out := up.MustKubectl(t, "get", "--raw", "/debug/installation"); !strings.Contains(out, "garbage-collector") {
		t.Errorf("the installation has no leaders: %s", out)
	}
	for _, child := range []string{"gateway", "core", "crd"} {
		log, err := os.ReadFile(filepath.Join(up.Dir, "logs", child+".log"))
		if err != nil || strings.Contains(string(log), "permission denied") {
			t.Errorf("%s is refused what it needs: %v\n%s", child, err, log)
		}
	}

	for user, keys := range map[string][]string{
		"portico-gateway": {"/registry/secrets/default/x", "/registry/leases/kube-system/kube-scheduler", "/registry/shop.example.com/widgets/x", "portico/elections/registry/controllers/x", "other"},
		"portico-core":    {"/registry/clusterroles/x", "/registry/apiregistration.k8s.io/apiservices/x", "/registry/shop.example.com/widgets/x", "portico/documents/registry/gateway/x", "compact_rev_key", "other"},
		"portico-crd":     {"/registry/secrets/default/x", "/registry/clusterroles/x", "/registry/other.example.com/x", "portico/elections/registry/gateway/x", "compact_rev_key", "other"},
	} {
		for _, key := range keys {
			if out, err := as(user, "etcdctl put "+key+" x"); err == nil || !strings.Contains(out, "permission denied") {
				t.Errorf("%s writes %s: %v\n%s", user, key, err, out)
			}
		}
		for _, script := range []string{"etcdctl get other", "etcdctl user list", "etcdctl snapshot save " + file("snapshot")} {
			if out, err := as(user, script); err == nil || !strings.Contains(out, "permission denied") {
				t.Errorf("%s: %s: %v\n%s", user, script, err, out)
			}
		}
	}
}

// issued makes the certificates of an etcd and of its users in a folder.
func issued(t *testing.T, dir string, users ...string) {
	t.Helper()
	ca, out := "--ca-dir="+filepath.Join(dir, "ca"), "--out="+dir
	all := [][]string{{"init", ca}, {"issue", "server", ca, "--name=etcd", "--host=127.0.0.1", out}}
	for _, user := range users {
		all = append(all, []string{"issue", "client", ca, "--user=" + user, out})
	}
	for _, args := range all {
		if _, err := command(t, append([]string{"certs"}, args...)...); err != nil {
			t.Fatal(err)
		}
	}
}

// etcdUsers returns the file that makes the users of etcd. It grants the core server and the gateway all that
// docs/storage.md says that they write.
func etcdUsers(t *testing.T) string {
	t.Helper()
	file := filepath.Join(e2e.Repository(), "deploy/machines/users.sh")
	script, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	words := strings.Fields(string(script))
	for _, row := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\| .* \\| (?:core|gateway) \\|$").FindAllStringSubmatch(documentsOf(t)["docs/storage.md"], -1) {
		if !slices.ContainsFunc(words, func(word string) bool { return strings.TrimSuffix(word, ";") == row[1] }) {
			t.Errorf("users.sh grants no user %s", row[1])
		}
	}
	return file
}
