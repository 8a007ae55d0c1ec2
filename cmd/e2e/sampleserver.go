package e2e

import (
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/jsonpath"

	"portico/cmd/internal/testtools"
	"portico/internal/testing/await"
)

// Apply applies a manifest and returns what kubectl prints.
func (s *SampleServer) Apply(t *testing.T, name, manifest string) string {
	t.Helper()
	file := filepath.Join(s.Dir, name+".yaml")
	if err := os.WriteFile(file, []byte(manifest), 0o600); err != nil {
		t.Fatal(err)
	}
	return s.Up.MustKubectl(t, "apply", "-f", file)
}

// Says waits until the value of a JSONPath of a Backend contains want.
func (s *SampleServer) Says(t *testing.T, backend, path, want string) {
	t.Helper()
	query := jsonpath.New(backend).AllowMissingKeys(true)
	if err := query.Parse("{" + path + "}"); err != nil {
		t.Fatal(err)
	}
	Eventually(t, fmt.Sprintf("Backend %s: %s is %q", backend, path, want), func() error {
		var object any
		code, body := s.Up.Do(t, http.MethodGet, "/apis/gateway.portico.dev/v1alpha1/backends/"+backend, "")
		if err := json.Unmarshal([]byte(body), &object); err != nil {
			return err
		}
		var value strings.Builder
		if err := query.Execute(&value, object); err != nil || !strings.Contains(value.String(), want) {
			return fmt.Errorf("%d %q %w", code, &value, err)
		}
		return nil
	})
}

// RoutableAddress returns an address of this machine that an EndpointSlice may
// name and that can be listened on.
func RoutableAddress(t *testing.T) string {
	t.Helper()
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addresses {
		network, ok := a.(*net.IPNet)
		if !ok || !network.IP.IsGlobalUnicast() {
			continue
		}
		if ln, err := net.Listen("tcp", net.JoinHostPort(network.IP.String(), "0")); err == nil {
			ln.Close()
			return network.IP.String()
		}
	}
	t.Fatalf("an EndpointSlice may name no loopback or link-local address, and the network interfaces of this machine have no other (there are %v): give one of them an address, such as 192.0.2.1 on lo, or leave this test out with -short", addresses)
	return ""
}

const (
	// Noticed is the maximum time until the end or the return of a server shows.
	Noticed = 3 * time.Second
	// atOnce is far less than waiting for a dead server takes, and far more than a
	// response from memory.
	atOnce = time.Second
)

// SampleServer is the Kubernetes project's sample-apiserver, unmodified, behind
// an installation.
type SampleServer struct {
	Up         *Installation
	Dir        string
	Host, Port string // where it listens
	Kubeconfig string
	Args       []string // beside those that every one has
	cmd        *exec.Cmd
}

// FreePort returns a port of host that no process listens on. It is below the range from which
// kernels choose ports for others, so that it stays free.
func FreePort(t *testing.T, host string) string {
	t.Helper()
	for range 100 {
		port := strconv.Itoa(10_000 + rand.IntN(20_000))
		if ln, err := net.Listen("tcp", net.JoinHostPort(host, port)); err == nil {
			ln.Close()
			return port
		}
	}
	t.Fatal("no free port")
	return ""
}

// RegisterSample applies the sample's manifests with a free port, and gives the server the
// identity of its service account. edit may change the text of a file.
func RegisterSample(t *testing.T, up *Installation, edit func(file, text string) string) *SampleServer {
	t.Helper()
	s := &SampleServer{Up: up, Dir: t.TempDir(), Host: "127.0.0.1"}
	s.Port = FreePort(t, s.Host)
	manifests, err := filepath.Glob(filepath.Join(Repository(), "deploy/samples/sample-apiserver/*.yaml"))
	if err != nil || len(manifests) == 0 {
		t.Fatalf("no manifests of the sample: %v", err)
	}
	for _, m := range manifests {
		data, err := os.ReadFile(m)
		if err != nil {
			t.Fatal(err)
		}
		text := strings.ReplaceAll(edit(filepath.Base(m), string(data)), "port: 9443", "port: "+s.Port)
		if err := os.WriteFile(filepath.Join(s.Dir, filepath.Base(m)), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// One apply, as in the sample's README: kubectl orders files by name.
	up.MustKubectl(t, "apply", "-f", s.Dir)
	s.identify(t)
	t.Cleanup(s.Kill)
	return s
}

// identify writes the kubeconfig of the server, without the administrator's credentials.
func (s *SampleServer) identify(t *testing.T) {
	t.Helper()
	token := strings.TrimSpace(s.Up.MustKubectl(t, "-n", "wardle", "create", "token", "apiserver", "--duration=1h"))
	raw := s.Up.MustKubectl(t, "config", "view", "--raw", "--minify", "--flatten")
	s.Kubeconfig = filepath.Join(s.Dir, "wardle.kubeconfig")
	if err := os.WriteFile(s.Kubeconfig, []byte(raw), 0o600); err != nil {
		t.Fatal(err)
	}
	admin := s.Up.MustKubectl(t, "config", "view", "--minify", "-o", "jsonpath={.users[0].name}")
	s.Up.MustKubectl(t, "--kubeconfig", s.Kubeconfig, "config", "delete-user", admin)
	left, err := os.ReadFile(s.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(left), "client-key") {
		t.Fatalf("the server has a key of the administrator's:\n%s", left)
	}
	s.Up.MustKubectl(t, "--kubeconfig", s.Kubeconfig, "config", "set-credentials", "wardle", "--token="+token)
	s.Up.MustKubectl(t, "--kubeconfig", s.Kubeconfig, "config", "set-context", "--current", "--user=wardle")
}

// Start starts the server and does not wait until it serves.
func (s *SampleServer) Start(t *testing.T) {
	t.Helper()
	s.cmd = exec.Command(Program(t, testtools.SampleAPIServer), append([]string{
		"--bind-address=" + s.Host, "--secure-port=" + s.Port, "--cert-dir=" + filepath.Join(s.Dir, "certs"),
		"--etcd-servers=" + s.Up.Etcd, "--etcd-prefix=/registry/wardle.example.com",
		"--kubeconfig=" + s.Kubeconfig, "--authentication-kubeconfig=" + s.Kubeconfig, "--authorization-kubeconfig=" + s.Kubeconfig,
	}, s.Args...)...)
	log, err := os.Create(filepath.Join(s.Dir, "server.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	s.cmd.Stdout, s.cmd.Stderr = log, log
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
}

// Serves waits until the server itself, asked directly, is ready.
func (s *SampleServer) Serves(t *testing.T) {
	t.Helper()
	// The certificate is self-signed. The requests carry the front proxy's identity,
	// because a server that is ready may not trust the front proxy yet, and a connection
	// made then stays without an identity.
	pair, err := tls.LoadX509KeyPair(filepath.Join(s.Up.Dir, "pki", "front-proxy-client.crt"), filepath.Join(s.Up.Dir, "pki", "front-proxy-client.key"))
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Timeout: await.Patience(), Transport: &http.Transport{
		DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{pair}},
	}}
	for _, path := range []string{"/readyz", "/apis"} {
		Eventually(t, "the server answers the gateway", func() error {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+net.JoinHostPort(s.Host, s.Port)+path, nil)
			if err != nil {
				return err
			}
			req.Header.Set("X-Remote-User", "jane")
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

// Kill ends the server by SIGKILL and waits for that.
func (s *SampleServer) Kill() {
	if s.cmd != nil {
		s.cmd.Process.Kill()
		_ = s.cmd.Wait() // its error is that it was killed
		s.cmd = nil
	}
}

// Available waits until the AVAILABLE column of every APIService of the server begins with want,
// and returns how long that took.
func (s *SampleServer) Available(t *testing.T, want string) time.Duration {
	t.Helper()
	began := time.Now()
	Eventually(t, "the APIServices are available: "+want, func() error {
		_, body := s.Up.Do(t, http.MethodGet, "/apis/apiregistration.k8s.io/v1/apiservices", "",
			"Accept: application/json;as=Table;v=v1;g=meta.k8s.io")
		var table metav1.Table
		if err := json.Unmarshal([]byte(body), &table); err != nil {
			return fmt.Errorf("%w: %s", err, body)
		}
		found := 0
		for _, row := range table.Rows { // name, service, available, age
			if !strings.HasSuffix(fmt.Sprint(row.Cells[0]), ".wardle.example.com") {
				continue
			}
			if found++; !strings.HasPrefix(fmt.Sprint(row.Cells[2]), want) {
				return fmt.Errorf("%v", row.Cells)
			}
		}
		if found != 2 {
			return fmt.Errorf("there are %d of them", found)
		}
		return nil
	})
	return time.Since(began)
}

// UseFlunders creates, lists, watches and deletes flunders as the administrator, and checks
// that a user without rights is refused.
func (s *SampleServer) UseFlunders(t *testing.T) {
	t.Helper()
	write := func(name, kind string) string {
		path := filepath.Join(s.Dir, name+".json")
		text := fmt.Sprintf(`{"apiVersion":"wardle.example.com/v1alpha1","kind":%q,"metadata":{"name":%q}}`, kind, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	events := s.watchFlunders(t)
	s.Up.MustKubectl(t, "create", "-f", write("kept", "Flunder"))
	s.Up.MustKubectl(t, "create", "-f", write("gone", "Flunder"))
	s.Up.MustKubectl(t, "create", "-f", write("fish", "Fischer"))
	s.Up.MustKubectl(t, "delete", "flunder", "gone")
	if out := s.Up.MustKubectl(t, "get", "flunders,fischers", "-o", "name"); !strings.Contains(out, "/kept") || !strings.Contains(out, "/fish") || strings.Contains(out, "/gone") {
		t.Errorf("list shows %q", out)
	}
	for _, want := range []string{"ADDED kept", "ADDED gone", "DELETED gone"} {
		if got := <-events; got != want {
			t.Errorf("watch: got %q, want %q", got, want)
		}
	}
	out, err := s.Up.Kubectl(t, "get", "flunders", "--as=jane")
	if err == nil || !strings.Contains(out, `User "jane" cannot list resource "flunders" in API group "wardle.example.com"`) {
		t.Errorf("a user without rights: %q, %v", out, err)
	}
}

// watchFlunders opens a watch that starts now. It delivers "TYPE name" for each event, and
// "" at the end of the watch.
func (s *SampleServer) watchFlunders(t *testing.T) <-chan string {
	t.Helper()
	url := s.Up.Endpoint + "/apis/wardle.example.com/v1alpha1/namespaces/default/flunders"
	client := HTTPClient(t, s.Up.Config(t))
	var list struct {
		Metadata struct{ ResourceVersion string }
	}
	if _, body := Get(t, client, url, ""); json.Unmarshal([]byte(body), &list) != nil {
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

// WhileAway checks that a server that is down costs its own API only, and delays no response.
func (s *SampleServer) WhileAway(t *testing.T) {
	t.Helper()
	client := HTTPClient(t, s.Up.Config(t))
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
		code, body := Get(t, client, s.Up.Endpoint+tc.path, "")
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
	// The gateway counts its own responses, as component aggregator, and not those of
	// the server.
	_, metrics := Get(t, client, s.Up.Endpoint+"/metrics", "")
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
		t.Error("the gateway did not count its own responses for the server")
	}
	if out := s.Up.MustKubectl(t, "get", "ns"); strings.Contains(strings.ToLower(out), "error") || !strings.Contains(out, "kube-system") {
		t.Errorf("kubectl get ns prints %q", out)
	}
}
