package kubelet

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/net/websocket"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico/resource/rest"
)

// A proxy passes method, path, query and body on, without the identity of the user, and
// rewrites what leads back to the host.
func TestProxy(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		for name := range r.Header {
			if strings.HasPrefix(name, "X-Remote-") || name == "Authorization" {
				t.Errorf("header %s", name)
			}
		}
		switch r.URL.Path {
		case "/redirect":
			http.Redirect(w, r, "/login", http.StatusFound)
		case "/page":
			w.Header().Set("Content-Type", "text/html")
			_, _ = io.WriteString(w, `<a href="/login">x</a>`)
		default:
			w.Header().Set("X-Got", r.Method+" "+r.URL.String()+" "+string(body)+" for "+r.Host)
		}
	}))
	t.Cleanup(backend.Close)
	port := b.serveAs("web", backend.URL)
	const service = "/api/v1/namespaces/default/services/"
	for _, r := range []struct{ method, path, want string }{
		{"GET", podPath + "/web:" + port + "/proxy/", "GET / "},
		{"GET", podPath + "/web/proxy/a/b?c=d", "GET /a/b?c=d "},
		{"GET", podPath + "/http:web:" + port + "/proxy/a//b/", "GET /a/b/ "},
		{"POST", podPath + "/web/proxy/a", `POST /a "x"`},
		{"DELETE", podPath + "/web/proxy/a", "DELETE /a "},
		{"HEAD", podPath + "/web/proxy/a", "HEAD /a "},
		{"OPTIONS", podPath + "/web/proxy/a", "OPTIONS /a "},
		{"GET", service + "s/proxy/a", "GET /a "},
		{"GET", service + "s:80/proxy/a", "GET /a "},
		{"GET", "/api/v1/nodes/n:" + port + "/proxy/a", "GET /a "},
		{"GET", "/api/v1/nodes/http:n:" + port + "/proxy/a", "GET /a "},
	} {
		var body any
		if r.method == "POST" {
			body = "x"
		}
		code, text, header := b.do(r.method, r.path, body, "X-Remote-User", "u", "Authorization", "Bearer x", "X-Forwarded-Host", "portico.example")
		if code != 200 || !strings.HasPrefix(header.Get("X-Got"), r.want) || !strings.HasSuffix(header.Get("X-Got"), " for portico.example") {
			t.Errorf("%s %s: %d %s %v", r.method, r.path, code, text, header)
		}
	}
	code, _, header := b.do("GET", podPath+"/web/proxy", nil)
	if code != 301 || header.Get("Location") != podPath+"/web/proxy/" {
		t.Errorf("%d %v", code, header)
	}
	code, _, header = b.do("GET", podPath+"/web/proxy/redirect", nil)
	if code != 302 || header.Get("Location") != podPath+"/web/proxy/login" {
		t.Errorf("%d %v", code, header)
	}
	if _, text, _ := b.do("GET", podPath+"/web/proxy/page", nil); !strings.Contains(text, `href="`+podPath+`/web/proxy/login"`) {
		t.Error(text)
	}
	if code, text, _ := b.do("GET", podPath+"/web/proxy/a", nil, "X-HTTP-Method-Override", "DELETE"); code != 400 || !strings.Contains(text, "authorized by their method") {
		t.Errorf("%d %s", code, text)
	}
	if code, text, _ := b.do("GET", service+"s:81/proxy/a", nil); code != 503 || !strings.Contains(text, `no service port 81 found for service \"s\"`) {
		t.Errorf("%d %s", code, text)
	}
	code, text, _ := b.do("GET", "/api/v1/nodes/n/proxy/stats", nil)
	if code != 200 || text != "GET /stats" {
		t.Errorf("%d %s", code, text)
	}
	backend.Close()
	if code, text, _ := b.do("GET", podPath+"/web/proxy/", nil); code != 503 || !strings.Contains(text, "error trying to reach service: ") {
		t.Errorf("%d %s", code, text)
	}
}

// A proxy joins the client with a server that switches to another protocol. The header of its
// response is bounded.
func TestProxyUpgrade(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	echo := websocket.Server{Handshake: func(*websocket.Config, *http.Request) error { return nil }, Handler: func(ws *websocket.Conn) {
		_ = websocket.Message.Send(ws, ws.Request().URL.String())
		_, _ = io.Copy(ws, ws)
	}}
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/endless" {
			echo.ServeHTTP(w, r)
			return
		}
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		for _, err = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\n"); err == nil; {
			_, err = io.WriteString(conn, "X-More: "+strings.Repeat("x", 1000)+"\r\n")
		}
	}))
	t.Cleanup(backend.Close)
	b.serveAs("web", backend.URL)
	ws, err := websocket.Dial(strings.Replace(b.server.URL, "http", "ws", 1)+podPath+"/web/proxy/chat?room=1", "", b.server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer ws.Close()
	large := strings.Repeat("y", 3<<20)
	if err := websocket.Message.Send(ws, large); err != nil {
		t.Fatal(err)
	}
	var first, second string
	err = errors.Join(websocket.Message.Receive(ws, &first), websocket.Message.Receive(ws, &second))
	if err != nil || first != "/chat?room=1" || len(second) == 0 {
		t.Errorf("%q, %d bytes, %v", first, len(second), err)
	}
	code, text, _ := b.do("GET", podPath+"/web/proxy/endless", nil, "Connection", "Upgrade", "Upgrade", "other")
	if code != 500 || !strings.Contains(text, errLargeHeader.Error()) {
		t.Errorf("%d %s", code, text)
	}
}

// serveAs creates a pod that has the address and port of a URL, with service s, and an
// endpoint that is no pod. It returns the port.
func (b *bench) serveAs(name, serverURL string) string {
	u, err := url.Parse(serverURL)
	if err != nil {
		b.t.Fatal(err)
	}
	port, _ := strconv.Atoi(u.Port())
	p := pod(name, "n", "c")
	p.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: int32(port)}}
	b.must("POST", podPath, p)
	p.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: u.Hostname(), PodIPs: []corev1.PodIP{{IP: u.Hostname()}}}
	b.must("PUT", podPath+"/"+name+"/status", p)
	b.must("POST", "/api/v1/namespaces/default/services", &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "s"}, Spec: corev1.ServiceSpec{ClusterIP: "None", Ports: []corev1.ServicePort{{Port: 80}}},
	})
	portName, target := "", int32(port)
	// A client could not name a loopback address.
	if _, err := rest.CreateObject(b.t.Context(), b.find("discovery.k8s.io", "endpointslices"), &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "default", Name: "s", Labels: map[string]string{discoveryv1.LabelServiceName: "s"}},
		AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Name: &portName, Port: &target}},
		Endpoints: []discoveryv1.Endpoint{
			{Addresses: []string{"192.0.2.7"}},
			{Addresses: []string{"192.0.2.8"}, TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: "default", Name: name}},
			{Addresses: []string{"192.0.2.9"}, TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: "other", Name: name}},
			{Addresses: []string{u.Hostname()}, TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: "default", Name: name}},
		},
	}); err != nil {
		b.t.Fatal(err)
	}
	return u.Port()
}

// Proxies do not connect to loopback and link-local addresses, whatever names resolve to.
func TestProxiesReachNoLocalAddress(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(cfg *Config) { cfg.allowed = nil })
	for i, address := range []string{"127.0.0.1", "169.254.169.254", "::1", "fe80::1", "0.0.0.0", "224.0.0.1", "::127.0.0.1", "64:ff9b::7f00:1", "64:ff9b:1::7f00:1", "2002:7f00:1::"} {
		name := "local" + strconv.Itoa(i)
		b.must("POST", podPath, pod(name, "n", "c"))
		p := pod(name, "n", "c")
		p.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIPs: []corev1.PodIP{{IP: address}}}
		b.must("PUT", podPath+"/"+name+"/status", p)
		b.must("POST", "/api/v1/nodes", b.node(name, address, b.kubelet.Port))
		for _, path := range []string{podPath + "/" + name + ":1/proxy/", "/api/v1/nodes/" + name + "/proxy/", "/api/v1/nodes/" + name + ":1/proxy/"} {
			if code, text, _ := b.do("GET", path, nil); code != 400 || !strings.Contains(text, "address not allowed") {
				t.Errorf("%s to %s: %d %s", path, address, code, text)
			}
		}
	}
	b.must("POST", "/api/v1/nodes", b.node("named", "localhost", b.kubelet.Port))
	if code, text, _ := b.do("GET", "/api/v1/nodes/named/proxy/", nil); code != 400 || !strings.Contains(text, "address not allowed") {
		t.Errorf("%d %s", code, text)
	}
	// A name that resolves to another address when the connection is made.
	c, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []transportKind{proxyToPod, proxyToKubelet} {
		conn, err := c.transports.get(kind).DialContext(t.Context(), "tcp", net.JoinHostPort("localhost", strconv.Itoa(b.kubelet.Port)))
		if err == nil {
			conn.Close()
			t.Error("connected")
		} else if !strings.Contains(err.Error(), "address not allowed") {
			t.Error(err)
		}
	}
	// Streams and logs go where the node says, with the flag.
	if code, text, _ := b.do("GET", podPath+"/p/log", nil); code != 200 {
		t.Errorf("%d %s", code, text)
	}
	without := newBench(t, func(cfg *Config) { cfg.allowed, cfg.AllowLoopback = nil, false })
	for _, path := range []string{"/p/log", "/p/exec?command=id&stdout=true", "/p/attach?stdout=true", "/p/portforward"} {
		r, err := http.NewRequest("POST", without.server.URL+podPath+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if path == "/p/log" {
			r.Method = "GET"
		} else {
			r.Header.Set("Connection", "Upgrade")
			r.Header.Set("Upgrade", "SPDY/3.1")
		}
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err != nil || res.StatusCode < 400 || !strings.Contains(string(text), "--kubelet-allow-loopback") {
			t.Errorf("%s without the flag: %d %s, %v", path, res.StatusCode, text, err)
		}
	}
}
