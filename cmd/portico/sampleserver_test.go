package main

import (
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const (
	// noticed is how long the death or return of a server may stay unnoticed.
	noticed = 3 * time.Second
	// atOnce is far less than waiting for a dead server takes, and far more
	// than an answer from memory.
	atOnce = time.Second
)

// sampleServer is the Kubernetes project's sample-apiserver, unmodified, behind
// an installation.
type sampleServer struct {
	up         *installation
	dir        string
	host, port string // where it listens
	kubeconfig string
	args       []string // beside those that every one has
	cmd        *exec.Cmd
}

// freePort returns a port of host on which nobody listens now.
func freePort(t *testing.T, host string) string {
	t.Helper()
	ln, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	_, port, err := net.SplitHostPort(ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// registerSample applies the sample's manifests, with a port that is free, and
// gives the server the identity of its service account. edit may change what a
// file says.
func registerSample(t *testing.T, up *installation, edit func(file, text string) string) *sampleServer {
	t.Helper()
	s := &sampleServer{up: up, dir: t.TempDir(), host: "127.0.0.1"}
	s.port = freePort(t, s.host)
	manifests, err := filepath.Glob(filepath.Join(repository(), "deploy/samples/sample-apiserver/*.yaml"))
	if err != nil || len(manifests) == 0 {
		t.Fatalf("no manifests of the sample: %v", err)
	}
	for _, m := range manifests {
		data, err := os.ReadFile(m)
		if err != nil {
			t.Fatal(err)
		}
		text := strings.ReplaceAll(edit(filepath.Base(m), string(data)), "port: 9443", "port: "+s.port)
		if err := os.WriteFile(filepath.Join(s.dir, filepath.Base(m)), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// One apply, as the sample's README has it: kubectl goes by the files' names.
	up.mustKubectl(t, "apply", "-f", s.dir)
	s.identify(t)
	t.Cleanup(s.kill)
	return s
}

// identify writes the kubeconfig of the server: nothing of the administrator's.
func (s *sampleServer) identify(t *testing.T) {
	t.Helper()
	token := strings.TrimSpace(s.up.mustKubectl(t, "-n", "wardle", "create", "token", "apiserver", "--duration=1h"))
	raw := s.up.mustKubectl(t, "config", "view", "--raw", "--minify", "--flatten")
	s.kubeconfig = filepath.Join(s.dir, "wardle.kubeconfig")
	if err := os.WriteFile(s.kubeconfig, []byte(raw), 0o600); err != nil {
		t.Fatal(err)
	}
	admin := s.up.mustKubectl(t, "config", "view", "--minify", "-o", "jsonpath={.users[0].name}")
	s.up.mustKubectl(t, "--kubeconfig", s.kubeconfig, "config", "delete-user", admin)
	left, err := os.ReadFile(s.kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(left), "client-key") {
		t.Fatalf("the server has a key of the administrator's:\n%s", left)
	}
	s.up.mustKubectl(t, "--kubeconfig", s.kubeconfig, "config", "set-credentials", "wardle", "--token="+token)
	s.up.mustKubectl(t, "--kubeconfig", s.kubeconfig, "config", "set-context", "--current", "--user=wardle")
}

func (s *sampleServer) start(t *testing.T) {
	t.Helper()
	p, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	s.cmd = exec.Command(p.SampleAPIServer, append([]string{
		"--bind-address=" + s.host, "--secure-port=" + s.port, "--cert-dir=" + filepath.Join(s.dir, "certs"),
		"--etcd-servers=" + s.up.etcd, "--etcd-prefix=/registry/wardle.example.com",
		"--kubeconfig=" + s.kubeconfig, "--authentication-kubeconfig=" + s.kubeconfig, "--authorization-kubeconfig=" + s.kubeconfig,
	}, s.args...)...)
	log, err := os.Create(filepath.Join(s.dir, "server.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	s.cmd.Stdout, s.cmd.Stderr = log, log
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
}

// serves waits until the server itself, asked directly, is ready.
func (s *sampleServer) serves(t *testing.T) {
	t.Helper()
	// Its certificate is its own; what is asked is no secret. It is asked as the
	// gateway would: a server that is ready may for a moment not know yet whom to
	// believe, and a connection made then stays without an identity.
	pair, err := tls.LoadX509KeyPair(filepath.Join(s.up.dir, "pki", "front-proxy-client.crt"), filepath.Join(s.up.dir, "pki", "front-proxy-client.key"))
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Timeout: patienceInTests, Transport: &http.Transport{
		DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{pair}},
	}}
	for _, path := range []string{"/readyz", "/apis"} {
		eventually(t, "the server answers the gateway", func() error {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+net.JoinHostPort(s.host, s.port)+path, nil)
			if err != nil {
				return err
			}
			req.Header.Set("X-Remote-User", "somebody")
			req.Header.Set("X-Remote-Group", "system:authenticated")
			resp, err := client.Do(req)
			if err != nil {
				return err
			}
			defer resp.Body.Close()
			if resp.StatusCode != http.StatusOK {
				return errors.New(resp.Status)
			}
			return nil
		})
	}
}

func (s *sampleServer) kill() {
	if s.cmd != nil {
		s.cmd.Process.Kill()
		// How it ended was our doing.
		_ = s.cmd.Wait()
		s.cmd = nil
	}
}

// available waits for the condition of the APIService and returns how long that
// took.
func (s *sampleServer) available(t *testing.T, want string) time.Duration {
	t.Helper()
	began := time.Now()
	eventually(t, "the APIService says "+want, func() error {
		out, err := s.up.kubectl(t, "get", "apiservice", "v1alpha1.wardle.example.com", "--no-headers")
		if err == nil && !strings.Contains(out, want) {
			err = errors.New(out)
		}
		return err
	})
	return time.Since(began)
}

// A real aggregated API server: registered, used, killed, started again.
func TestSampleAPIServer(t *testing.T) {
	t.Parallel()
	up := install(t, t.TempDir())
	s := registerSample(t, up, func(_, text string) string { return text })
	s.available(t, "False (FailedDiscoveryCheck)")
	s.start(t)
	s.available(t, "True")
	eventually(t, "the server admits writes", func() error {
		_, err := up.kubectl(t, "apply", "-f", filepath.Join(repository(), "deploy/samples/sample-apiserver/objects"))
		return err
	})
	if out := up.mustKubectl(t, "api-resources", "--api-group=wardle.example.com", "-o", "name"); !strings.Contains(out, "flunders.") || !strings.Contains(out, "fischers.") {
		t.Errorf("api-resources lists %q", out)
	}
	s.useFlunders(t)

	s.kill()
	if took := s.available(t, "False (FailedDiscoveryCheck)"); took > noticed {
		t.Errorf("that the server is dead was noticed after %v", took)
	}
	s.whileAway(t)

	s.start(t)
	s.serves(t)
	if took := s.available(t, "True"); took > noticed {
		t.Errorf("that the server is back was noticed after %v", took)
	}
	eventually(t, "what was stored is there again", func() error {
		_, err := up.kubectl(t, "get", "flunder", "kept")
		return err
	})
}

// useFlunders creates, lists, watches and deletes as the administrator, and is
// refused as somebody without rights.
func (s *sampleServer) useFlunders(t *testing.T) {
	t.Helper()
	write := func(name, kind string) string {
		path := filepath.Join(s.dir, name+".json")
		text := fmt.Sprintf(`{"apiVersion":"wardle.example.com/v1alpha1","kind":%q,"metadata":{"name":%q}}`, kind, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	events := s.watchFlunders(t)
	s.up.mustKubectl(t, "create", "-f", write("kept", "Flunder"))
	s.up.mustKubectl(t, "create", "-f", write("gone", "Flunder"))
	s.up.mustKubectl(t, "create", "-f", write("fish", "Fischer"))
	s.up.mustKubectl(t, "delete", "flunder", "gone")
	if out := s.up.mustKubectl(t, "get", "flunders,fischers", "-o", "name"); !strings.Contains(out, "/kept") || !strings.Contains(out, "/fish") || strings.Contains(out, "/gone") {
		t.Errorf("list shows %q", out)
	}
	// Once when it came, once when it went.
	for _, want := range []string{"ADDED kept", "ADDED gone", "DELETED gone"} {
		if got := <-events; got != want {
			t.Errorf("watch: got %q, want %q", got, want)
		}
	}
	out, err := s.up.kubectl(t, "get", "flunders", "--as=somebody")
	if err == nil || !strings.Contains(out, `User "somebody" cannot list resource "flunders" in API group "wardle.example.com"`) {
		t.Errorf("somebody without rights: %q, %v", out, err)
	}
}

// watchFlunders opens a watch from now on and returns when it is open. It
// delivers "TYPE name" for each event, and "" when the watch is over.
func (s *sampleServer) watchFlunders(t *testing.T) <-chan string {
	t.Helper()
	url := s.up.endpoint + "/apis/wardle.example.com/v1alpha1/namespaces/default/flunders"
	client := httpClient(t, s.up.config(t))
	var list struct {
		Metadata struct{ ResourceVersion string }
	}
	if _, body := get(t, client, url, ""); json.Unmarshal([]byte(body), &list) != nil {
		t.Fatalf("list flunders: %s", body)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"?watch=1&resourceVersion="+list.Metadata.ResourceVersion, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	events := make(chan string)
	go func() {
		defer resp.Body.Close()
		defer close(events)
		for dec := json.NewDecoder(resp.Body); ; {
			var e struct {
				Type   string
				Object struct{ Metadata struct{ Name string } }
			}
			if dec.Decode(&e) != nil {
				return
			}
			select {
			case events <- e.Type + " " + e.Object.Metadata.Name:
			case <-t.Context().Done():
				return
			}
		}
	}()
	return events
}

// whileAway checks what others notice of a server that is down: nothing. Every
// answer comes at once.
func (s *sampleServer) whileAway(t *testing.T) {
	t.Helper()
	client := httpClient(t, s.up.config(t))
	for _, tc := range []struct {
		path string
		code int
		want []string
	}{
		{"/apis/wardle.example.com/v1alpha1/flunders", 503, []string{`"kind":"Status"`, "v1alpha1.wardle.example.com", "FailedDiscoveryCheck"}},
		{"/apis/wardle.example.com/v1alpha1", 200, []string{"flunders"}},
		{"/apis/wardle.example.com", 200, []string{"wardle.example.com/v1beta1"}},
		{"/apis", 200, []string{"wardle.example.com", "coordination.k8s.io"}},
		{"/api/v1/namespaces", 200, []string{"kube-system"}},
		{"/apis/rbac.authorization.k8s.io/v1/clusterroles/view", 200, []string{"view"}},
		{"/readyz", 200, []string{"ok"}},
	} {
		began := time.Now()
		code, body := get(t, client, s.up.endpoint+tc.path, "")
		if took := time.Since(began); took > atOnce {
			t.Errorf("%s took %v", tc.path, took)
		}
		if code != tc.code {
			t.Errorf("%s: %d, want %d: %.300s", tc.path, code, tc.code, body)
		}
		for _, want := range tc.want {
			if !strings.Contains(strings.ReplaceAll(body, `": `, `":`), want) {
				t.Errorf("%s: %q is not in %.300s", tc.path, want, body)
			}
		}
	}
	// What the gateway answered in its stead is the aggregator's; what the server
	// answered before it went was counted by itself.
	_, metrics := get(t, client, s.up.endpoint+"/metrics", "")
	counted := false
	for line := range strings.SplitSeq(metrics, "\n") {
		if !strings.HasPrefix(line, "apiserver_request_total{") || !strings.Contains(line, `group="wardle.example.com"`) {
			continue
		}
		counted = counted || strings.Contains(line, `code="503"`) && strings.Contains(line, `component="aggregator"`)
		if strings.Contains(line, `code="200"`) || strings.Contains(line, `component="apiserver"`) {
			t.Errorf("the gateway counted %s", line)
		}
	}
	if !counted {
		t.Error("the gateway did not count what it answered in the server's stead")
	}
	if out := s.up.mustKubectl(t, "get", "ns"); strings.Contains(strings.ToLower(out), "error") || !strings.Contains(out, "kube-system") {
		t.Errorf("kubectl get ns prints %q", out)
	}
}
