//go:build certificates

package ha

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"portico/cmd/e2e"
	"portico/internal/testing/history"
)

// The commands of the page replace all authorities, those of etcd among them, and the key of service-account tokens, while
// clients of all verbs work, and clients that dial for each request. No request fails but those that a restart of etcd may. At last
// certificates of before are refused, and a token of before is good.
func TestReplaceTheAuthorities(t *testing.T) {
	t.Parallel()
	var b *balancer
	in := install(t, shutdownDelay, func(in *installation, address string) { b = balance(t, in, address) })
	b.uses(t)
	in.serves(t, in.Endpoint)
	o, first := newObserver(), in.Config(t)
	o.restarts = true
	define(t, first)
	served(t, first)
	r := &replacement{t: t, in: in, observer: o}
	tokens := []string{r.token()}

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var dialing sync.WaitGroup
	dialing.Go(func() { r.dial(ctx) })
	r.work(func() {
		r.step(1)
		r.restart(b, slices.Concat(members, backends, gateways)...)
	})
	tokens = append(tokens, r.token())
	r.work(func() { r.step(2) })
	tokens = append(tokens, r.token())
	r.work(func() {
		r.step(3)
		r.restart(b, members...)
	})
	stop()
	dialing.Wait()
	o.report(t)

	now := in.Config(t)
	for n, token := range tokens {
		cfg := rest.AnonymousClientConfig(now)
		cfg.CAData, cfg.BearerToken = now.CAData, token
		if user := e2e.Whoami(t, cfg); user != "system:serviceaccount:default:default" {
			t.Errorf("token %d is of %q", n, user)
		}
	}
	certificate := rest.CopyConfig(now)
	certificate.CertData, certificate.KeyData = first.CertData, first.KeyData
	for name, cfg := range map[string]*rest.Config{"kubeconfig": first, "client certificate": certificate} {
		if res, answer, err := e2e.Ask(t.Context(), e2e.HTTPClient(t, cfg), http.MethodGet, in.Endpoint+"/version", ""); err == nil && res.StatusCode != http.StatusUnauthorized {
			t.Errorf("the %s of before is accepted: %s %s", name, res.Status, answer)
		}
	}
}

// replacement is a replacement of the authorities by the commands of the page.
type replacement struct {
	t        *testing.T
	in       *installation
	observer *observer
}

// step runs the commands of a step, and waits until processes have read the files, as the page says.
func (r *replacement) step(number int) {
	r.t.Helper()
	_, text, found := strings.Cut(section(r.t, "Replace the authorities"), fmt.Sprintf("\n%d. ", number))
	text, _, _ = strings.Cut(text, fmt.Sprintf("\n%d. ", number+1))
	lines := commands(text, "portico|for|cp|rm")
	if !found || len(lines) < 2 {
		r.t.Fatalf("the page has no step %d", number)
	}
	hosts := []string{"--server=" + r.in.Endpoint, "--gateway-host=" + r.in.network + ".100", "--etcd-host=127.0.0.1"}
	for name := range r.in.processes {
		host, _, err := net.SplitHostPort(r.in.address(name))
		if err != nil {
			r.t.Fatal(err)
		}
		kind, _, _ := strings.Cut(name, "-")
		hosts = append(hosts, "--"+kind+"-host="+host)
	}
	before := r.kubeconfig()
	for _, line := range lines {
		shell(r.t, r.in.Dir, append(slices.Clone(r.in.env), "flags="+strings.Join(hosts, " ")), line)
	}
	if bytes.Equal(before, r.kubeconfig()) {
		r.t.Fatalf("step %d makes no other kubeconfig", number)
	}
	tls, err := r.in.clientTLS()
	if err != nil {
		r.t.Fatal(err)
	}
	r.in.etcd.tls = tls
	time.Sleep(2 * time.Second) // as the page says
}

func (r *replacement) kubeconfig() []byte {
	data, err := os.ReadFile(r.in.Kubeconfig)
	if err != nil {
		r.t.Error(err)
	}
	return data
}

// restart restarts processes in order.
func (r *replacement) restart(b *balancer, names ...string) {
	r.t.Helper()
	all := probes(r.t, r.in, r.in.Config(r.t))
	for _, name := range names {
		end := r.observer.begin("restart of "+name, name)
		p := r.in.processes[name]
		err := p.terminate(r.t.Context())
		if err == nil {
			err = errors.Join(p.start(), p.awaitReady(r.t.Context()))
		}
		for _, probe := range all {
			if err == nil {
				err = probe(r.t.Context())
			}
		}
		if err != nil {
			r.t.Fatalf("restart of %s: %v", name, err)
		}
		b.uses(r.t)
		end()
	}
}

// work has clients of all verbs work while what is done, with the kubeconfig of the begin.
func (r *replacement) work(what func()) {
	r.t.Helper()
	ctx, stop := context.WithCancel(r.t.Context())
	defer stop()
	var doors []*rest.Config
	for range gateways {
		cfg := r.observer.door(r.in.Config(r.t), r.in.Endpoint, "")
		cfg.Dial = new(net.Dialer).DialContext // a connection of its own
		doors = append(doors, cfg)
	}
	clients, wait := startVerbs(ctx, r.observer, 20*time.Millisecond, doors...)
	what()
	stop()
	wait()
	client := r.in.Client(r.t)
	for _, v := range clients {
		v.check(r.t, client)
	}
	if err := client.CoreV1().ConfigMaps(verbsNamespace).DeleteCollection(r.t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "of"}); err != nil {
		r.t.Fatal(err)
	}
}

// dial reads from the gateway, the core server and the CRD server, each on a connection of its own, with the present kubeconfig.
func (r *replacement) dial(ctx context.Context) {
	records := history.Info().GVR("v1")
	for n := 0; ctx.Err() == nil; n++ {
		cfg, err := clientcmd.RESTConfigFromKubeConfig(r.kubeconfig())
		if err != nil {
			r.t.Error(err)
			return
		}
		config, err := rest.TLSConfigFor(cfg)
		if err != nil {
			r.t.Error(err)
			return
		}
		client := &http.Client{Transport: &observed{&http.Transport{TLSClientConfig: config, DisableKeepAlives: true}, r.observer, ""}}
		for _, path := range []string{"/api/v1/namespaces/default", "/apis/" + records.Group + "/v1/" + records.Resource + "?limit=1", "/apis/rbac.authorization.k8s.io/v1/clusterroles/view"} {
			if res, answer, err := e2e.Ask(ctx, client, http.MethodGet, r.in.Endpoint+path, ""); err == nil && res.StatusCode >= 300 && res.StatusCode < 500 {
				r.observer.reject("GET %s: %s %.300s", path, res.Status, answer)
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// token returns a new token of a service account.
func (r *replacement) token() string {
	r.t.Helper()
	made, err := r.in.Client(r.t).CoreV1().ServiceAccounts("default").CreateToken(r.t.Context(), "default", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	return made.Status.Token
}
