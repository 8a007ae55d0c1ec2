package kubelet

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/websocket"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico/backends/core/kinds"
	"portico/internal/testing/await"
	"portico/internal/testing/kubelettest"
	"portico/internal/testing/memstore"
	"portico/resource"
	"portico/resource/rest"
	"portico/resource/rest/handlers"
)

// bench is a server of pods, nodes and services over HTTP, with the kubelet of node n.
type bench struct {
	t       *testing.T
	kubelet *kubelettest.Kubelet
	server  *httptest.Server
	// asked are the actions that the server asked about; refuse is the response.
	asked  []string
	refuse error
	find   func(group, res string) *rest.Resource
}

// newBench returns a bench; change changes the Config.
func newBench(t *testing.T, change func(cfg *Config)) *bench {
	b := &bench{t: t, kubelet: kubelettest.New(t)}
	resources := map[schema.GroupResource]*rest.Resource{}
	cfg := Config{
		ClientCertFile: b.kubelet.CertFile, ClientKeyFile: b.kubelet.KeyFile, CAFile: b.kubelet.CAFile,
		Find: func(group, res string) *rest.Resource {
			return resources[schema.GroupResource{Group: group, Resource: res}]
		},
		AllowLoopback: true, allowed: func(netip.Addr) bool { return true },
	}
	b.find = cfg.Find
	if change != nil {
		change(&cfg)
	}
	c, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	storage := memstore.New()
	var list []*rest.Resource
	for _, k := range kinds.All(kinds.Config{Connections: c.Subresources}) {
		r := &rest.Resource{Kind: k, Store: storage.Store(&k.Info)}
		resources[k.GroupResource()] = r
		list = append(list, r)
	}
	api := handlers.New(handlers.Config{Resources: list, Authorize: func(_ context.Context, act *resource.Action) error {
		b.asked = append(b.asked, act.Verb+" "+act.Resource+"/"+act.Subresource+" "+act.Name)
		return b.refuse
	}})
	b.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		act := resource.ParseAction(r)
		act.User = &resource.User{Name: "u"}
		api.ServeHTTP(w, r.WithContext(resource.WithAction(r.Context(), act)))
	}))
	t.Cleanup(func() {
		b.server.CloseClientConnections()
		b.server.Close()
	})
	b.must("POST", "/api/v1/nodes", b.node("n", "127.0.0.1", b.kubelet.Port))
	b.must("POST", "/api/v1/nodes", &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "bare"}})
	for name, node := range map[string]string{"p": "n", "idle": "", "lost": "gone", "bare": "bare"} {
		b.must("POST", podPath, pod(name, node, "c"))
	}
	b.must("POST", podPath, pod("two", "n", "c1", "c2"))
	b.must("POST", podPath, pod("none", "n", "none"))
	return b
}

const podPath = "/api/v1/namespaces/default/pods"

func (b *bench) node(name, address string, port int) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeExternalIP, Address: "192.0.2.1"}, {Type: corev1.NodeInternalIP, Address: address}}
	n.Status.DaemonEndpoints.KubeletEndpoint.Port = int32(port)
	return n
}

func pod(name, node string, containers ...string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{NodeName: node}}
	for _, c := range containers {
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: c, Image: "i"})
	}
	return p
}

// do sends a request with a header of pairs.
func (b *bench) do(method, path string, body any, header ...string) (int, string, http.Header) {
	b.t.Helper()
	var in io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			b.t.Fatal(err)
		}
		in = strings.NewReader(string(data))
	}
	r, err := http.NewRequestWithContext(b.t.Context(), method, b.server.URL+path, in)
	if err != nil {
		b.t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	res, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		b.t.Fatal(err)
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return res.StatusCode, string(data), res.Header
}

func (b *bench) must(method, path string, body any) {
	b.t.Helper()
	if code, text, _ := b.do(method, path, body, "Content-Type", "application/json"); code >= 300 {
		b.t.Fatalf("%s %s: %d %s", method, path, code, text)
	}
}

// Requests that lead nowhere get a Status at once.
func TestLocationErrors(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	for _, r := range []struct {
		method, path string
		code         int
		text         string
	}{
		{"GET", podPath + "/x/log", 404, `pods \"x\" not found`},
		{"GET", podPath + "/idle/log", 204, ""},
		{"GET", podPath + "/lost/log", 404, `nodes \"gone\" not found`},
		{"GET", podPath + "/bare/log", 500, "no preferred addresses found; known addresses: []"},
		{"GET", podPath + "/two/log", 400, "a container name must be specified for pod two, choose one of: [c1 c2]"},
		{"GET", podPath + "/p/log?container=x", 400, "container x is not valid for pod p"},
		{"GET", podPath + "/none/log", 404, "the server could not find the requested resource ( pods/log none)"},
		{"GET", podPath + "/p/log?tailLines=-1", 422, "PodLogOptions \\\"p\\\" is invalid: tailLines: Invalid value: -1: must be greater than or equal to 0"},
		{"GET", podPath + "/p/log?tailLines=x", 400, "invalid syntax"},
		{"GET", podPath + "/p/log?sinceSeconds=1&sinceTime=2026-01-02T03:04:05Z", 422, "at most one of `sinceTime` or `sinceSeconds` may be specified"},
		{"GET", podPath + "/p/log?stream=Stdout", 422, "stream: Forbidden: may not be specified"},
		{"POST", podPath + "/p/log", 405, ""},
		{"GET", podPath + "/p/log/more", 404, ""},
		{"POST", podPath + "/x/exec", 404, `pods \"x\" not found`},
		{"POST", podPath + "/idle/exec", 400, "pod idle does not have a host assigned"},
		{"POST", podPath + "/idle/attach", 400, "pod idle does not have a host assigned"},
		{"POST", podPath + "/idle/portforward", 400, "pod idle does not have a host assigned"},
		{"POST", podPath + "/lost/exec", 404, `nodes \"gone\" not found`},
		{"POST", podPath + "/two/attach", 400, "a container name must be specified"},
		{"POST", podPath + "/p/exec", 400, "Upgrade request required"},
		{"POST", podPath + "/p/exec?dryRun=All", 400, "dryRun is not supported"},
		{"PUT", podPath + "/p/exec", 405, ""},
		{"GET", podPath + "/p/proxy/", 400, "address not allowed"},
		{"GET", podPath + "/ftp:p:1/proxy/", 400, `invalid pod request \"ftp:p:1\"`},
		{"GET", "/api/v1/nodes/x/proxy/", 404, `nodes \"x\" not found`},
		{"GET", "/api/v1/nodes/a:b:c:d/proxy/", 400, "invalid node request"},
		{"GET", "/api/v1/namespaces/default/services/s/proxy/", 503, `no endpoints available for service \"s\"`},
		{"GET", "/api/v1/namespaces/default/services/s:80/proxy/", 404, `services \"s\" not found`},
	} {
		code, text, _ := b.do(r.method, r.path, nil)
		if code != r.code || !strings.Contains(text, r.text) {
			t.Errorf("%s %s: %d %s", r.method, r.path, code, text)
		}
	}
	if got := b.kubelet.Requests(); len(got) != 1 {
		t.Errorf("%d requests to the kubelet", len(got))
	}
}

func TestLog(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	code, text, header := b.do("GET", podPath+"/p/log?previous=true&timestamps=1&tailLines=2&limitBytes=3&sinceTime=2026-01-02T03:04:05Z&insecureSkipTLSVerifyBackend=false&pretty=1", nil)
	const want = "log of default/p/c limitBytes=3&previous=true&sinceTime=2026-01-02T03%3A04%3A05Z&tailLines=2&timestamps=true\n"
	if code != 200 || text != want || header.Get("Content-Type") != "text/plain" {
		t.Errorf("%d %s %v", code, text, header)
	}
	r, err := http.NewRequestWithContext(t.Context(), "GET", b.server.URL+podPath+"/p/log?follow=true", nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	line := make([]byte, 200)
	for _, want := range []string{"log of default/p/c follow=true\n", "more\n", "and more\n"} {
		if n, err := io.ReadAtLeast(res.Body, line, len(want)); err != nil || string(line[:n]) != want {
			t.Fatalf("%q %v", line[:n], err)
		}
		switch want {
		case "more\n":
			b.kubelet.More <- "and more"
		case "and more\n":
			close(b.kubelet.More)
		default:
			b.kubelet.More <- "more"
		}
	}
	if rest, err := io.ReadAll(res.Body); err != nil || len(rest) > 0 {
		t.Errorf("%q %v", rest, err)
	}
}

// A WebSocket gets the log in messages.
func TestLogOverWebSocket(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	url := strings.Replace(b.server.URL, "http", "ws", 1) + podPath + "/p/log?tailLines=1"
	const line = "log of default/p/c tailLines=1\n"
	for protocol, want := range map[string]string{"": line, "binary.k8s.io": line, "base64.binary.k8s.io": base64.StdEncoding.EncodeToString([]byte(line))} {
		ws, err := websocket.Dial(url, protocol, b.server.URL)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"", want} { // the first message is a ping
			var got string
			if err := websocket.Message.Receive(ws, &got); err != nil || got != want {
				t.Errorf("%s: %q %v", protocol, got, err)
			}
		}
		if err := websocket.Message.Receive(ws, new(string)); err != io.EOF {
			t.Errorf("%s: %v", protocol, err)
		}
		ws.Close()
	}
	if _, err := websocket.Dial(url, "other", b.server.URL); err == nil {
		t.Error("an unknown protocol is accepted")
	}
	// A client that goes ends the request to the kubelet.
	ws, err := websocket.Dial(strings.Replace(url, "tailLines=1", "follow=1", 1), "", b.server.URL)
	if err != nil {
		t.Fatal(err)
	}
	ws.Close()
}

// The certificate of a kubelet is verified by the CAs, if there are any.
func TestCertificates(t *testing.T) {
	t.Parallel()
	foreign := foreignCA(t)
	b := newBench(t, func(cfg *Config) { cfg.CAFile = foreign })
	if code, text, _ := b.do("GET", podPath+"/p/log", nil); code != 500 || !strings.Contains(text, "x509: certificate signed by unknown authority") {
		t.Errorf("%d %s", code, text)
	}
	if code, text, _ := b.do("POST", podPath+"/p/exec?command=cat", nil, "Connection", "Upgrade", "Upgrade", "SPDY/3.1"); code != 500 || !strings.Contains(text, "x509: certificate signed by unknown authority") {
		t.Errorf("%d %s", code, text)
	}
	if code, text, _ := b.do("GET", podPath+"/p/log?insecureSkipTLSVerifyBackend=true", nil); code != 200 {
		t.Errorf("%d %s", code, text)
	}
	b = newBench(t, func(cfg *Config) { cfg.CAFile = "" })
	if code, text, _ := b.do("GET", podPath+"/p/log", nil); code != 200 {
		t.Errorf("%d %s", code, text)
	}
	b = newBench(t, func(cfg *Config) { cfg.ClientCertFile, cfg.ClientKeyFile = "", "" })
	if code, text, _ := b.do("GET", podPath+"/p/log", nil); code != 500 || !strings.Contains(text, "certificate required") {
		t.Errorf("%d %s", code, text)
	}
	for name, cfg := range map[string]Config{
		"a certificate without key": {ClientCertFile: b.kubelet.CertFile}, "no CA": {CAFile: "/none"}, "no certificate": {ClientCertFile: "/none", ClientKeyFile: "/none"},
	} {
		if _, err := New(cfg); err == nil {
			t.Errorf("%s is no error", name)
		}
	}
}

// Connections are made anew with a renewed certificate: the kubelet may refuse requests on those
// that have the former one.
func TestRenewedClientCertificate(t *testing.T) {
	t.Parallel()
	first, second := kubelettest.New(t), kubelettest.New(t)
	dir := t.TempDir()
	cfg := &Config{ClientCertFile: filepath.Join(dir, "tls.crt"), ClientKeyFile: filepath.Join(dir, "tls.key")}
	write := func(k *kubelettest.Kubelet) {
		t.Helper()
		for from, to := range map[string]string{k.CertFile: cfg.ClientCertFile, k.KeyFile: cfg.ClientKeyFile} {
			data, err := os.ReadFile(from)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(to, data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	write(first)
	made, err := newTransports(cfg)
	if err != nil {
		t.Fatal(err)
	}
	before := made.get(toKubelet)
	if made.get(toKubelet) != before {
		t.Error("connections are made anew without a change")
	}
	write(second)
	await.Until(t, "the certificate is read again", func() bool { return made.get(toKubelet) != before })
	shown, err := made.get(toKubelet).TLSClientConfig.GetClientCertificate(nil)
	want, loadErr := tls.LoadX509KeyPair(second.CertFile, second.KeyFile)
	if err := errors.Join(err, loadErr); err != nil || !bytes.Equal(shown.Certificate[0], want.Certificate[0]) {
		t.Errorf("a connection has another certificate: %v", err)
	}
}

// foreignCA writes the certificate of a CA that has signed nothing.
func foreignCA(t *testing.T) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), IsCA: true, BasicConstraintsValid: true, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// A GET that upgrades needs the permission to create for streams and the proxy of a node.
func TestUpgradesNeedThePermissionToCreate(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.refuse = apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "p", errors.New("no"))
	upgrade := []string{"Connection", "Upgrade", "Upgrade", "websocket"}
	for path, want := range map[string]int{
		podPath + "/p/exec": 403, podPath + "/p/attach": 403, podPath + "/p/portforward": 403, "/api/v1/nodes/n/proxy/exec/default/p/c": 403,
		podPath + "/p/log": 200,
	} {
		b.asked = nil
		header := upgrade
		if want == 200 {
			header = nil
		}
		code, text, _ := b.do("GET", path, nil, header...)
		if code != want || (len(b.asked) == 1) != (want == 403) {
			t.Errorf("%s: %d %s, asked %v", path, code, text, b.asked)
		}
	}
	if got := len(b.kubelet.Requests()); got != 1 {
		t.Errorf("%d requests to the kubelet", got)
	}
}
