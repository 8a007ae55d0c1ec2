// Package kubelettest is a stand-in for the kubelet of a node: the server of streams with
// the library that container runtimes use, commands that a test needs, and logs.
//
// Runs in: tests.
package kubelettest

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/cri-streaming/pkg/streaming/portforward"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	utilexec "k8s.io/utils/exec"
)

const (
	idle     = time.Minute
	creation = 10 * time.Second
)

// Kubelet serves on a loopback address over TLS and requires a client certificate. Safe for
// concurrent use.
type Kubelet struct {
	// Port is where it serves, on 127.0.0.1.
	Port int
	// CAFile is the CA of its certificate; CertFile and KeyFile are a client certificate.
	CAFile, CertFile, KeyFile string
	// More sends further lines to logs that are followed.
	More chan string

	mu       sync.Mutex
	requests []*http.Request
}

// New starts a kubelet that stops when the test ends.
func New(t testing.TB) *Kubelet {
	t.Helper()
	k := &Kubelet{More: make(chan string)}
	server := httptest.NewUnstartedServer(k)
	server.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert}
	server.StartTLS()
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	_, port, err := net.SplitHostPort(server.Listener.Addr().String())
	if err == nil {
		k.Port, err = strconv.Atoi(port)
	}
	if err != nil {
		t.Fatal(err)
	}
	pair := server.TLS.Certificates[0]
	key, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(name, kind string, der []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	k.CAFile, k.KeyFile = write("ca.crt", "CERTIFICATE", pair.Certificate[0]), write("client.key", "PRIVATE KEY", key)
	k.CertFile = k.CAFile
	return k
}

// Requests returns the requests that it got, without their bodies.
func (k *Kubelet) Requests() []*http.Request {
	k.mu.Lock()
	defer k.mu.Unlock()
	return append([]*http.Request(nil), k.requests...)
}

// ServeHTTP serves the paths of a kubelet. Any other path is answered with itself.
func (k *Kubelet) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	k.mu.Lock()
	k.requests = append(k.requests, r.Clone(context.Background()))
	k.mu.Unlock()
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	for len(parts) < 4 {
		parts = append(parts, "")
	}
	switch pod, container := parts[1]+"/"+parts[2], parts[3]; parts[0] {
	case "exec", "attach":
		opts, err := remotecommand.NewOptions(r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if parts[0] == "exec" {
			remotecommand.ServeExec(w, r, k, pod, "", container, r.URL.Query()["command"], opts, idle, creation, remotecommand.SupportedStreamingProtocols)
			return
		}
		remotecommand.ServeAttach(w, r, k, pod, "", container, opts, idle, creation, remotecommand.SupportedStreamingProtocols)
	case "portForward":
		opts, err := portforward.NewV4Options(r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		portforward.ServePortForward(w, r, k, pod, "", opts, idle, creation, portforward.SupportedProtocols)
	case "containerLogs":
		k.log(w, r, pod+"/"+container)
	default:
		fmt.Fprintf(w, "%s %s", r.Method, r.URL)
	}
}

// log sends a line, and those of More if the log is followed. The container "none" has none.
func (k *Kubelet) log(w http.ResponseWriter, r *http.Request, container string) {
	if strings.HasSuffix(container, "/none") {
		http.Error(w, "no log", http.StatusNotFound)
		return
	}
	fmt.Fprintf(w, "log of %s %s\n", container, r.URL.RawQuery)
	if r.URL.Query().Get("follow") == "" {
		return
	}
	for {
		_ = http.NewResponseController(w).Flush() // the next write fails
		select {
		case line, ok := <-k.More:
			if !ok {
				return
			}
			fmt.Fprintln(w, line)
		case <-r.Context().Done():
			return
		}
	}
}

// ExecInContainer runs a command: "cat" copies its input; "size" reports the terminal;
// "exit N" writes to both outputs and ends with N; "tar" and "test", for kubectl cp, are the
// programs of this machine.
func (k *Kubelet) ExecInContainer(ctx context.Context, name, _, container string, cmd []string, in io.Reader, out, errOut io.WriteCloser, tty bool, resize <-chan remotecommand.TerminalSize, _ time.Duration) error {
	switch cmd[0] {
	case "cat":
		_, err := io.Copy(out, in)
		return err
	case "size":
		size := <-resize
		_, err := fmt.Fprintf(out, "%dx%d tty=%v", size.Width, size.Height, tty)
		return err
	case "exit":
		fmt.Fprintf(out, "%s of %s", container, name)
		fmt.Fprint(errOut, "failed")
		code, err := strconv.Atoi(cmd[1])
		if err != nil || code == 0 {
			return err
		}
		return utilexec.CodeExitError{Err: fmt.Errorf("exit %d", code), Code: code}
	case "tar", "test":
		c := exec.CommandContext(ctx, cmd[0], cmd[1:]...)
		c.Stdin, c.Stdout, c.Stderr = in, out, errOut
		err := c.Run()
		if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
			return utilexec.CodeExitError{Err: err, Code: exit.ExitCode()}
		}
		return err
	}
	return fmt.Errorf("no command %q", cmd)
}

// AttachContainer copies lines of its input until one is "end".
func (k *Kubelet) AttachContainer(_ context.Context, name, _, container string, in io.Reader, out, _ io.WriteCloser, _ bool, _ <-chan remotecommand.TerminalSize) error {
	if _, err := fmt.Fprintf(out, "attached to %s of %s\n", container, name); err != nil || in == nil {
		return err
	}
	for lines := bufio.NewScanner(in); lines.Scan() && lines.Text() != "end"; {
		if _, err := fmt.Fprintln(out, lines.Text()); err != nil {
			return err
		}
	}
	return nil
}

// PortForward is an HTTP/1.0 server at every port.
func (k *Kubelet) PortForward(_ context.Context, name, _ string, port int32, stream io.ReadWriteCloser) error {
	defer stream.Close()
	request, err := http.ReadRequest(bufio.NewReader(stream))
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(stream, "HTTP/1.0 200 OK\r\n\r\nport %d of %s: %s", port, name, request.URL)
	return err
}
