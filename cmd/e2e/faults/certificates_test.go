//go:build certificates

package faults

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"portico/cmd/e2e"
	"portico/internal/testing/await"
)

// replaced are the files that each generation of authorities replaces.
var replaced = []string{"serving-ca.key", "client-ca.key", "front-proxy-ca.key", "kubelet-serving-ca.key", "service-account.key"}

// No request is refused while all authorities and the key of service-account tokens are replaced, several
// times: neither of clients that read their kubeconfig again when it changes, nor of pods, which have a token
// and ConfigMap kube-root-ca.crt. A watch gets every change. At last the credentials of the start are refused.
func TestAuthoritiesAreReplaced(t *testing.T) {
	t.Parallel()
	leaf, err := time.ParseDuration(os.Getenv("PORTICO_TEST_CERTIFICATE_LIFETIME"))
	if err != nil {
		t.Fatal(err)
	}
	generations, err := strconv.Atoi(os.Getenv("PORTICO_TEST_CERTIFICATE_GENERATIONS"))
	if err != nil {
		t.Fatal(err)
	}
	life := 4 * leaf
	up := e2e.Install(t, t.TempDir(), fmt.Sprint("--certificate-lifetime=", leaf), fmt.Sprint("--certificate-authority-lifetime=", life))
	l := &lifetimeLoad{up: up, first: up.Config(t), group: "lifetimes.example.com"}
	e2e.Define(t, e2e.DynamicClient(t, l.first), l.group)
	began := time.Now()

	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	run := func(what func(context.Context) error) {
		wg.Go(func() {
			if err := what(ctx); err != nil && ctx.Err() == nil {
				t.Errorf("after %v: %v", time.Since(began).Round(time.Second), err)
			}
		})
	}
	watching := make(chan struct{})
	run(func(ctx context.Context) error { return l.watch(ctx, watching) })
	select {
	case <-watching:
	case <-time.After(await.Patience()):
		t.Fatal("the watch does not begin")
	}
	for n := range 3 {
		run(func(ctx context.Context) error { return l.administrate(ctx, fmt.Sprint("admin-", n), n == 0) })
	}
	run(l.livePod)
	for generation := range generations {
		awaitReplacement(t, up, life)
		l.checkPublished(t)
		t.Logf("generation %d after %v: %d requests, %d changes watched", generation+1, time.Since(began).Round(time.Second), l.requests.Load(), l.watched.Load())
	}
	l.checkEnd(t, life)
	if l.watched.Load() == 0 || l.requests.Load() < int64(generations)*100 {
		t.Errorf("%d requests and %d changes watched: too few to tell", l.requests.Load(), l.watched.Load())
	}
}

// awaitReplacement returns when every key has been replaced.
func awaitReplacement(t *testing.T, up *e2e.Installation, life time.Duration) {
	t.Helper()
	read := func(name string) []byte {
		data, err := os.ReadFile(filepath.Join(up.Dir, "pki", name))
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	before := map[string][]byte{}
	for _, name := range replaced {
		before[name] = read(name)
	}
	e2e.Within(t, 2*life, "all authorities are replaced", func() error {
		if t.Failed() {
			return nil // of the requests
		}
		for _, name := range replaced {
			if bytes.Equal(read(name), before[name]) {
				return fmt.Errorf("%s is that of before", name)
			}
		}
		return nil
	})
	if t.Failed() {
		t.FailNow()
	}
}

// lifetimeLoad sends requests to an installation of short-lived certificates.
type lifetimeLoad struct {
	up                *e2e.Installation
	first             *rest.Config // the administrator's of the start
	group             string
	requests, watched atomic.Int64
}

// pace is the pause between two requests of a client.
const pace = 50 * time.Millisecond

// ask sends a request that must succeed.
func (l *lifetimeLoad) ask(ctx context.Context, client *http.Client, method, path, body string, header ...string) (string, error) {
	res, answer, err := e2e.Ask(ctx, client, method, l.up.Endpoint+path, body, header...)
	if err == nil && res.StatusCode >= 300 {
		err = fmt.Errorf("%s %.500s", res.Status, answer)
	}
	if err != nil {
		return "", fmt.Errorf("%s %s: %w", method, path, err)
	}
	l.requests.Add(1)
	return answer, nil
}

// each calls what at the pace of a client until ctx ends.
func each(ctx context.Context, what func(n int) error) error {
	tick := time.NewTicker(pace)
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if err := what(n); err != nil {
			return err
		}
	}
}

// administrate writes to the core server, the CRD server and the gateway itself with the kubeconfig, which it
// reads again when it has changed. With dial each request has a connection of its own.
func (l *lifetimeLoad) administrate(ctx context.Context, name string, dial bool) error {
	var client *http.Client
	var seen []byte
	return each(ctx, func(n int) error {
		data, err := os.ReadFile(l.up.Kubeconfig)
		if err != nil {
			return err
		}
		if !bytes.Equal(data, seen) {
			cfg, err := clientcmd.RESTConfigFromKubeConfig(data)
			if err == nil {
				client, err = freshClient(cfg, dial)
			}
			if err != nil {
				return err
			}
			seen = data
		}
		for path, object := range map[string]string{
			"/api/v1/namespaces/default/configmaps":                              `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"NAME"}}`,
			"/apis/" + l.group + "/v1/namespaces/default/widgets":                `{"apiVersion":"` + l.group + `/v1","kind":"Widget","metadata":{"name":"NAME"}}`,
			"/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings": `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"RoleBinding","metadata":{"name":"NAME"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"view"}}`,
		} {
			object = strings.ReplaceAll(object, "NAME", fmt.Sprintf("%s-%d", name, n))
			if _, err := l.ask(ctx, client, "POST", path, object); err != nil {
				return err
			}
			if _, err := l.ask(ctx, client, "DELETE", fmt.Sprintf("%s/%s-%d", path, name, n), ""); err != nil {
				return err
			}
		}
		return nil
	})
}

// freshClient returns a client that shares no connections; with dial it keeps none.
func freshClient(cfg *rest.Config, dial bool) (*http.Client, error) {
	config, err := rest.TLSConfigFor(cfg)
	if err != nil {
		return nil, err
	}
	return &http.Client{Timeout: await.Patience(), Transport: &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true, DisableKeepAlives: dial}}, nil
}

// livePod reads ConfigMap kube-root-ca.crt with a token of a service account, of the start and of now, on a
// connection that the ConfigMap as it was read last has verified.
func (l *lifetimeLoad) livePod(ctx context.Context) error {
	cfg := rest.AnonymousClientConfig(l.first)
	cfg.CAData = l.first.CAData
	old, err := l.token(ctx)
	if err != nil {
		return err
	}
	return each(ctx, func(int) error {
		client, err := freshClient(cfg, true)
		if err != nil {
			return err
		}
		now, err := l.token(ctx)
		if err != nil {
			return err
		}
		for _, token := range []string{old, now} {
			const reviews = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
			answer, err := l.ask(ctx, client, "POST", reviews, `{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`, "Authorization: Bearer "+token)
			if err != nil {
				return err
			}
			if !strings.Contains(answer, "system:serviceaccount:default:default") {
				return fmt.Errorf("the token of a pod is of %s", answer)
			}
		}
		published, err := l.published(ctx)
		if err == nil {
			cfg.CAData = []byte(published)
		}
		return err
	})
}

// administrator returns a client with the present kubeconfig.
func (l *lifetimeLoad) administrator() (kubernetes.Interface, error) {
	cfg, err := clientcmd.BuildConfigFromFlags("", l.up.Kubeconfig)
	if err != nil {
		return nil, err
	}
	cfg.QPS = -1
	return kubernetes.NewForConfig(cfg)
}

// token returns a new token of the service account of pods.
func (l *lifetimeLoad) token(ctx context.Context) (string, error) {
	client, err := l.administrator()
	if err != nil {
		return "", err
	}
	made, err := client.CoreV1().ServiceAccounts("default").CreateToken(ctx, "default", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("request a token: %w", err)
	}
	return made.Status.Token, nil
}

// published returns the authorities that pods trust.
func (l *lifetimeLoad) published(ctx context.Context) (string, error) {
	return l.read(ctx, "default", "kube-root-ca.crt", "ca.crt")
}

// read returns a key of a ConfigMap.
func (l *lifetimeLoad) read(ctx context.Context, namespace, name, key string) (string, error) {
	client, err := l.administrator()
	if err != nil {
		return "", err
	}
	cm, err := client.CoreV1().ConfigMaps(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	return cm.Data[key], nil
}

// checkPublished checks that ConfigMaps get the authorities soon after they were replaced.
func (l *lifetimeLoad) checkPublished(t *testing.T) {
	t.Helper()
	for _, p := range []struct{ namespace, name, key, file string }{
		{"default", "kube-root-ca.crt", "ca.crt", "serving-ca.crt"},
		{"kube-system", "extension-apiserver-authentication", "client-ca-file", "client-ca.crt"},
		{"kube-system", "extension-apiserver-authentication", "requestheader-client-ca-file", "front-proxy-ca.crt"},
	} {
		e2e.Within(t, 10*time.Second, p.name+" is up to date", func() error {
			want, err := os.ReadFile(filepath.Join(l.up.Dir, "pki", p.file))
			if err != nil {
				return err
			}
			first, _, _ := strings.Cut(string(want), "-----END")
			if got, err := l.read(t.Context(), p.namespace, p.name, p.key); err != nil || !strings.Contains(got, first) {
				return fmt.Errorf("%s lacks the authority in use: %v", p.key, err)
			}
			return nil
		})
	}
}

// watch watches ConfigMaps with the credentials of the start, and closes begun when the watch is there. Each
// ConfigMap that it sees created is deleted after.
func (l *lifetimeLoad) watch(ctx context.Context, begun chan struct{}) error {
	client, err := kubernetes.NewForConfig(l.first)
	if err != nil {
		return err
	}
	list, err := client.CoreV1().ConfigMaps("default").List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	seconds := int64((24 * time.Hour).Seconds())
	w, err := client.CoreV1().ConfigMaps("default").Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion, TimeoutSeconds: &seconds})
	if err != nil {
		return err
	}
	defer w.Stop()
	close(begun)
	next := map[string]int{} // the number of the ConfigMap of each client that is created next
	for event := range w.ResultChan() {
		cm, ok := event.Object.(*corev1.ConfigMap)
		if !ok {
			return fmt.Errorf("the watch says %v", event)
		}
		i := strings.LastIndex(cm.Name, "-")
		if event.Type != "ADDED" || i < 0 || !strings.HasPrefix(cm.Name, "admin-") {
			continue
		}
		if want := fmt.Sprintf("%s-%d", cm.Name[:i], next[cm.Name[:i]]); cm.Name != want {
			return fmt.Errorf("the watch has %s after what comes before %s", cm.Name, want)
		}
		next[cm.Name[:i]]++
		l.watched.Add(1)
	}
	return errors.New("the watch ended")
}

// checkEnd checks what is left when the authorities of the start have ended: they are not published, and
// credentials of the start are refused.
func (l *lifetimeLoad) checkEnd(t *testing.T, life time.Duration) {
	first := strings.TrimSpace(string(l.first.CAData))
	e2e.Within(t, life, "the authorities of the start are not trusted", func() error {
		published, err := l.published(t.Context())
		if err != nil || strings.Contains(published, first) {
			return fmt.Errorf("kube-root-ca.crt has the authority of the start: %v", err)
		}
		return nil
	})
	cfg := rest.CopyConfig(l.up.Config(t))
	cfg.CertData, cfg.KeyData = l.first.CertData, l.first.KeyData
	for name, cfg := range map[string]*rest.Config{"kubeconfig": l.first, "client certificate": cfg} {
		client, err := freshClient(cfg, true)
		if err != nil {
			t.Fatal(err)
		}
		if res, answer, err := e2e.Ask(t.Context(), client, "GET", l.up.Endpoint+"/version", ""); err == nil && res.StatusCode != http.StatusUnauthorized {
			t.Errorf("the %s of the start is accepted: %s %s", name, res.Status, answer)
		}
	}
}
