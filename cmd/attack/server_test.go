package attack

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"

	"portico/internal/testing/await"
)

// request is a request that has reached a server.
type request struct {
	method, uri     string
	header, trailer http.Header
	body            []byte
	// wire has the bytes of the connection; nil over HTTP/2.
	wire []byte
	// whole is closed when the request has been read, or has failed.
	whole chan struct{}
}

// String returns all of the request.
func (r *request) String() string {
	if r.wire != nil {
		return string(r.wire)
	}
	return fmt.Sprintf("%s %s\n%v\n%s\n%v", r.method, r.uri, r.header, r.body, r.trailer)
}

// server is a server behind the gateway that records its requests.
type server struct {
	group string
	mu    sync.Mutex
	seen  []*request
}

// fences numbers the requests by which take detects that all earlier ones have arrived.
var fences atomic.Int64

const fencePrefix = "fence-"

// root returns the path of the server's things in namespace a.
func (s *server) root() string { return "/apis/" + s.group + "/v1/namespaces/a/things" }

// take returns the requests since the last call. It sends a request first, which follows
// all bytes that are left on a connection between the gateway and the server.
func (s *server) take(t *testing.T) []*request {
	t.Helper()
	name := fmt.Sprint(fencePrefix, fences.Add(1))
	path := "/apis/" + s.group + "/v1/things/" + name
	if code, answer, err := target.ask(target.admin, "GET", path, ""); err != nil || code != http.StatusOK {
		t.Fatalf("fence %s: %d %.300s %v", path, code, answer, err)
	}
	s.mu.Lock()
	all := s.seen
	s.seen = nil
	s.mu.Unlock()
	for _, r := range all {
		select {
		case <-r.whole:
		case <-time.After(await.Patience()):
			t.Fatalf("the test ends before this request: %s %s", r.method, r.uri)
		}
	}
	isFence := func(r *request) bool { return strings.HasSuffix(r.uri, "/things/"+name) }
	if !slices.ContainsFunc(all, isFence) {
		t.Fatalf("%s has not reached the server", path)
	}
	return slices.DeleteFunc(all, isFence)
}

// record records a request and responds to it.
func (s *server) record(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("X-Remote-User") == "system:portico:core" {
		http.NotFound(w, r) // The garbage collector follows the things of every server.
		return
	}
	seen := &request{method: r.Method, uri: r.RequestURI, header: r.Header, whole: make(chan struct{})}
	s.mu.Lock()
	s.seen = append(s.seen, seen)
	s.mu.Unlock()
	body, err := io.ReadAll(io.LimitReader(r.Body, 16<<20))
	if err != nil {
		// The part that was sent is recorded.
		body = fmt.Appendf(body, "\n%v", err)
	}
	seen.body, seen.trailer = body, r.Trailer
	if conn, ok := r.Context().Value(wireKey{}).(*wire); ok {
		seen.wire = conn.take()
	}
	close(seen.whole)
	w.Header().Set("Set-Cookie", "session="+mark+"; Path=/")
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"kind":"Echo","apiVersion":"%s/v1","method":%q}`, s.group, r.Method)
}

// groupList and resourceList are the discovery documents of a server.
func groupList(group string) string {
	return fmt.Sprintf(`{"kind":"APIGroupList","apiVersion":"v1","groups":[{"name":%[1]q,
		"versions":[{"groupVersion":"%[1]s/v1","version":"v1"}],"preferredVersion":{"groupVersion":"%[1]s/v1","version":"v1"}}]}`, group)
}

func resourceList(group string) string {
	resource := func(name, verbs string) string {
		return fmt.Sprintf(`{"name":%q,"singularName":"thing","namespaced":true,"kind":"Thing","verbs":%s}`, name, verbs)
	}
	return fmt.Sprintf(`{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"%s/v1","resources":[%s,%s,%s]}`, group,
		resource("things", `["get","list","watch","create","update","patch","delete","deletecollection"]`),
		resource("things/status", `["get","update","patch"]`), resource("things/exec", `["get","create"]`))
}

// serveKubernetes serves discovery and records every other request.
func (s *server) serveKubernetes(w http.ResponseWriter, r *http.Request) {
	document := ""
	switch {
	case r.RequestURI == "/apis":
		document = groupList(s.group)
	case r.RequestURI == "/apis/"+s.group+"/v1":
		document = resourceList(s.group)
	case strings.HasPrefix(r.RequestURI, "/apis/"+s.group+"/v1/namespaces/"+drained):
		// The core server lists the objects of a deleted namespace.
		document = fmt.Sprintf(`{"kind":"ThingList","apiVersion":"%s/v1","metadata":{},"items":[]}`, s.group)
	case slices.Contains([]string{"/api", "/openapi/v2", "/openapi/v3", "/apis?watch=true", "/api?watch=true"}, r.RequestURI):
		forget(r)
		http.NotFound(w, r)
		return
	default:
		s.record(w, r)
		return
	}
	forget(r)
	w.Header().Set("Content-Type", "application/json")
	io.WriteString(w, document)
}

// drained is the prefix of the names of namespaces that tests delete.
const drained = "ending"

// forget drops the bytes of a request that is not recorded.
func forget(r *http.Request) {
	if conn, ok := r.Context().Value(wireKey{}).(*wire); ok {
		conn.take()
	}
}

// openAPI is the document of a REST server.
const openAPI = `{"openapi":"3.0.0","info":{"title":"t","version":"1"},"paths":{
 "/todos":{"get":{"operationId":"listTodos","responses":{"200":{"description":"ok"}}},"post":{"operationId":"createTodo","responses":{"200":{"description":"ok"}}}},
 "/todos/{id}":{"get":{"operationId":"getTodo","responses":{"200":{"description":"ok"}}},"put":{"operationId":"putTodo","responses":{"200":{"description":"ok"}}},"delete":{"operationId":"deleteTodo","responses":{"200":{"description":"ok"}}}},
 "/todos/{id}/notes":{"get":{"operationId":"listNotes","responses":{"200":{"description":"ok"}}}},
 "/todos/{id}/notes/{n}":{"get":{"operationId":"getNote","responses":{"200":{"description":"ok"}}},"delete":{"operationId":"deleteNote","responses":{"200":{"description":"ok"}}}},
 "/things/{id}":{"get":{"operationId":"getThing","responses":{"200":{"description":"ok"}}}},
 "/admin/users":{"get":{"operationId":"listUsers","responses":{"200":{"description":"ok"}}}}}}`

func (s *server) serveREST(w http.ResponseWriter, r *http.Request) {
	if r.RequestURI == "/openapi.json" {
		forget(r)
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Etag", `"1"`)
		io.WriteString(w, openAPI)
		return
	}
	s.record(w, r)
}

// serving returns the TLS configuration of a server that accepts the gateway only.
func serving(t *testing.T, protocol string) *tls.Config {
	t.Helper()
	gateways := x509.NewCertPool()
	gateways.AddCert(target.frontProxies.cert)
	return &tls.Config{
		MinVersion:   tls.VersionTLS12,
		Certificates: []tls.Certificate{*target.stranger.issue(t, subject{name: "server", hosts: []string{"127.0.0.1"}})},
		ClientAuth:   tls.RequireAndVerifyClientCert, ClientCAs: gateways, NextProtos: []string{protocol},
	}
}

// The protocols between the gateway and a server.
const (
	http1 = "http/1.1"
	http2 = "h2"
)

// register starts a Kubernetes API server behind the gateway, with a protocol.
func register(t *testing.T, group, protocol string) *server {
	t.Helper()
	s := &server{group: group}
	target.backend(t, group, discovered(runServer(t, serving(t, protocol), s.serveKubernetes), group))
	s.reached(t)
	return s
}

// discovered returns the spec of a Backend with a group that is registered.
func discovered(url, group string) string {
	return fmt.Sprintf(`{"endpoints":[{"url":%q}],"tls":{"caBundle":%q},"autoRegister":{"groups":[%q]}}`, url, base64Of(target.stranger.pem()), group)
}

// registerREST starts a REST server behind the gateway.
func registerREST(t *testing.T, group string) *server {
	t.Helper()
	s := &server{group: group}
	target.backend(t, group, fmt.Sprintf(`{"endpoints":[{"url":%q}],"rest":{"group":%q,"version":"v1","headers":["X-Colour"]}}`, runServer(t, nil, s.serveREST), group))
	s.reached(t)
	return s
}

// jane returns a user, "jane-GROUP", and its certificate, with rules in a namespace or everywhere
// for "".
func (s *server) jane(t *testing.T, namespace string, rules ...policyRule) (string, *tls.Certificate) {
	t.Helper()
	user := "jane-" + s.group
	target.grant(t, user, namespace, rules...)
	return user, target.user(t, user)
}

// backend creates a Backend and deletes it at the end of the test.
func (i *installation) backend(t *testing.T, group, spec string) {
	t.Helper()
	const path = "/apis/gateway.portico.dev/v1alpha1/backends"
	name := strings.ReplaceAll(group, ".", "-")
	i.must(t, "POST", path, fmt.Sprintf(`{"apiVersion":"gateway.portico.dev/v1alpha1","kind":"Backend","metadata":{"name":%q},"spec":%s}`, name, spec))
	t.Cleanup(func() { i.must(t, "DELETE", path+"/"+name, "") })
}

// reached waits until the gateway sends requests to the server.
func (s *server) reached(t *testing.T) {
	t.Helper()
	eventually(t, s.group+" is served", func() error {
		return target.answers("/apis/"+s.group+"/v1/things/"+fencePrefix+"0", http.StatusOK, `"Echo"`)
	})
	s.take(t)
}

// runServer serves on a free port until the test ends, in plain text without a configuration, and
// returns the URL.
func runServer(t *testing.T, config *tls.Config, handle http.HandlerFunc) (url string) {
	t.Helper()
	server := httptest.NewUnstartedServer(handle)
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.Config.ConnContext = func(ctx context.Context, conn net.Conn) context.Context {
		if conn, ok := conn.(*wire); ok {
			return context.WithValue(ctx, wireKey{}, conn)
		}
		return ctx
	}
	scheme := "https://"
	switch {
	case config == nil:
		scheme = "http://"
		server.Listener = wireListener{server.Listener}
		server.Start()
	case slices.Contains(config.NextProtos, http2):
		server.EnableHTTP2, server.TLS = true, config
		server.StartTLS()
	default:
		server.Listener = wireListener{tls.NewListener(server.Listener, config)}
		server.Start()
	}
	t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	return scheme + server.Listener.Addr().String()
}

// wireListener records the bytes of its connections.
type wireListener struct{ net.Listener }

func (l wireListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &wire{Conn: conn}, nil
}

// wire is a connection that records the bytes read.
type wire struct {
	net.Conn
	mu   sync.Mutex
	read bytes.Buffer
}

type wireKey struct{}

func (w *wire) Read(p []byte) (int, error) {
	n, err := w.Conn.Read(p)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.read.Write(p[:n])
	return n, err
}

// take returns the bytes since the last call.
func (w *wire) take() []byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	data := bytes.Clone(w.read.Bytes())
	w.read.Reset()
	return data
}

// review returns the user and the groups that the gateway derives from a client's
// credentials, and the status.
func (i *installation) review(client *http.Client, header ...string) (code int, user string, groups []string, err error) {
	code, answer, err := i.ask(client, "POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews",
		`{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`, header...)
	if err != nil {
		return 0, "", nil, err
	}
	var review authenticationv1.SelfSubjectReview
	_ = json.Unmarshal([]byte(answer), &review) // the status of a refusal is a string
	return code, review.Status.UserInfo.Username, review.Status.UserInfo.Groups, nil
}
