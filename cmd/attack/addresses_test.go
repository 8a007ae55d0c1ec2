package attack

import (
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
)

// listen counts the connections to a port of 127.0.0.1.
func listen(t *testing.T) (port int, connections *atomic.Int64) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	connections = new(atomic.Int64)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			connections.Add(1)
			conn.Close()
		}
	}()
	return l.Addr().(*net.TCPAddr).Port, connections
}

// A node that says that it is at a loopback or link-local address, in whatever form, does not make
// the core server connect there, by logs, streams or proxies; neither does a pod.
func TestAddressesOfNodesAndPods(t *testing.T) {
	t.Parallel()
	i := target
	const nodes, pods = "/api/v1/nodes", "/api/v1/namespaces/a/pods"
	port, connections := listen(t)
	liar := i.client(i.user(t, "system:node:liar", "system:nodes"))
	if code, body, err := i.ask(liar, "POST", nodes, `{"metadata":{"name":"liar"}}`); err != nil || code != 201 {
		t.Fatalf("the node registers: %d %.500s %v", code, body, err)
	}
	t.Cleanup(func() { i.must(t, "DELETE", nodes+"/liar", "") })
	eventually(t, "the service account of pods", func() error { return i.answers("/api/v1/namespaces/a/serviceaccounts/default", 200, "") })
	i.must(t, "POST", pods, `{"metadata":{"name":"lured"},"spec":{"nodeName":"liar","containers":[{"name":"c","image":"i"}]}}`)
	t.Cleanup(func() { i.must(t, "DELETE", pods+"/lured?gracePeriodSeconds=0", "") })
	refused := func(what string, code int, body string, err error) {
		t.Helper()
		if err != nil || code < 400 || !strings.Contains(body, "address not allowed") {
			t.Errorf("%s: %d %.500s %v, want address not allowed", what, code, body, err)
		}
	}
	for _, address := range []string{
		"127.0.0.1", "127.9.9.9", "::1", "localhost", "::ffff:127.0.0.1", "::127.0.0.1", "64:ff9b::7f00:1", "64:ff9b:1::7f00:1", "2002:7f00:1::",
		"0.0.0.0", "169.254.169.254", "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe", "fe80::1",
	} {
		status := fmt.Sprintf(`{"status":{"addresses":[{"type":"InternalIP","address":%q}],"daemonEndpoints":{"kubeletEndpoint":{"Port":%d}}}}`, address, port)
		if code, body, err := i.ask(liar, "PATCH", nodes+"/liar/status", status, merge); err != nil || code != 200 {
			t.Fatalf("the node says that it is at %s: %d %.500s %v", address, code, body, err)
		}
		code, body, err := i.ask(i.admin, "GET", pods+"/lured/log", "")
		refused("the log at "+address, code, body, err)
		code, body, err = i.ask(i.admin, "GET", nodes+"/liar/proxy/", "")
		refused("the proxy of the node at "+address, code, body, err)
		for _, stream := range []string{"exec?command=id&stdout=true", "attach?stdout=true", "portforward"} {
			a := i.send(t, i.administrator, "POST", "POST "+pods+"/lured/"+stream+" HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n"+
				"X-Stream-Protocol-Version: v4.channel.k8s.io\r\nContent-Length: 0\r\n\r\n")
			refused(stream+" at "+address, a.code, string(a.body), nil)
		}
	}
	for _, address := range []string{"127.0.0.1", "::7f00:1", "64:ff9b::7f00:1", "2002:7f00:1::"} {
		i.must(t, "PATCH", pods+"/lured/status", fmt.Sprintf(`{"status":{"podIP":%q,"podIPs":[{"ip":%q}]}}`, address, address), merge)
		code, body, err := i.ask(i.admin, "GET", fmt.Sprintf("%s/lured:%d/proxy/", pods, port), "")
		refused("the proxy of the pod at "+address, code, body, err)
	}
	if n := connections.Load(); n > 0 {
		t.Errorf("the core server connected %d times", n)
	}
	conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	eventually(t, "control: a connection is counted", func() error {
		if connections.Load() != 1 {
			return fmt.Errorf("%d connections", connections.Load())
		}
		return nil
	})
}
