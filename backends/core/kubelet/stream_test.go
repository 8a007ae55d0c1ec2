package kubelet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/client-go/util/exec"
	"k8s.io/streaming/pkg/httpstream"
)

// overBoth runs a test over SPDY and over WebSockets. The kubelet gets SPDY.
func overBoth(t *testing.T, run func(t *testing.T, b *bench, executor func(path string) remotecommand.Executor, dialer func(path string) httpstream.Dialer)) {
	for _, protocol := range []string{"SPDY", "WebSocket"} {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, nil)
			cfg := &rest.Config{Host: b.server.URL}
			executor := func(path string) (e remotecommand.Executor) {
				u, err := url.Parse(b.server.URL + path)
				if err == nil && protocol == "SPDY" {
					e, err = remotecommand.NewSPDYExecutor(cfg, "POST", u)
				} else if err == nil {
					e, err = remotecommand.NewWebSocketExecutor(cfg, "GET", u.String())
				}
				if err != nil {
					t.Fatal(err)
				}
				return e
			}
			dialer := func(path string) (d httpstream.Dialer) {
				u, err := url.Parse(b.server.URL + path)
				if err == nil && protocol == "SPDY" {
					var transport http.RoundTripper
					var upgrader spdy.Upgrader
					if transport, upgrader, err = spdy.RoundTripperFor(cfg); err == nil {
						d = spdy.NewDialerForStreaming(upgrader, &http.Client{Transport: transport}, "POST", u)
					}
				} else if err == nil {
					d, err = portforward.NewSPDYOverWebsocketDialerForStreaming(u, cfg)
				}
				if err != nil {
					t.Fatal(err)
				}
				return d
			}
			run(t, b, executor, dialer)
			for _, r := range b.kubelet.Requests() {
				if r.Header.Get("Upgrade") != "SPDY/3.1" || r.Method != http.MethodPost {
					t.Errorf("the kubelet got %s with %v", r.Method, r.Header)
				}
				if len(r.TLS.PeerCertificates) == 0 {
					t.Error("no client certificate")
				}
			}
		})
	}
}

// A kubelet that knows the WebSocket protocols of clients gets their requests as they are.
func TestWebSocketToTheKubelet(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	n := b.node("n", "127.0.0.1", b.kubelet.Port)
	n.Status.DeclaredFeatures = []string{extendWebSockets}
	b.must("PUT", "/api/v1/nodes/n/status", n)
	e, err := remotecommand.NewWebSocketExecutor(&rest.Config{Host: b.server.URL}, "GET", b.server.URL+podPath+"/p/exec?command=cat&stdout=true")
	if err != nil {
		t.Fatal(err)
	}
	// The library of container runtimes does not know the protocol.
	if err := e.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdout: io.Discard}); !httpstream.IsUpgradeFailure(err) {
		t.Error(err)
	}
	if got := b.kubelet.Requests(); len(got) != 1 || got[0].Header.Get("Sec-Websocket-Protocol") != "v5.channel.k8s.io" {
		t.Errorf("%v", got)
	}
}

func TestExec(t *testing.T) {
	t.Parallel()
	overBoth(t, func(t *testing.T, b *bench, executor func(string) remotecommand.Executor, _ func(string) httpstream.Dialer) {
		var out, errOut bytes.Buffer
		text := strings.Repeat("input\n", 10000)
		err := executor(podPath+"/p/exec?command=cat&stdin=true&stdout=true").StreamWithContext(t.Context(), remotecommand.StreamOptions{
			Stdin: strings.NewReader(text), Stdout: &out,
		})
		if err != nil || out.String() != text {
			t.Errorf("%d bytes, %v", out.Len(), err)
		}
		out.Reset()
		err = executor(podPath+"/two/exec?command=exit&command=3&container=c2&stdout=true&stderr=true").StreamWithContext(t.Context(), remotecommand.StreamOptions{
			Stdout: &out, Stderr: &errOut,
		})
		var code exec.CodeExitError
		if !errors.As(err, &code) || code.Code != 3 || out.String() != "c2 of default/two" || errOut.String() != "failed" {
			t.Errorf("%q %q %v", &out, &errOut, err)
		}
		out.Reset()
		sizes := sizes{{Width: 80, Height: 25}}
		err = executor(podPath+"/p/exec?command=size&stdin=true&stdout=true&tty=true").StreamWithContext(t.Context(), remotecommand.StreamOptions{
			Stdin: strings.NewReader(""), Stdout: &out, Tty: true, TerminalSizeQueue: &sizes,
		})
		if err != nil || out.String() != "80x25 tty=true" {
			t.Errorf("%q %v", &out, err)
		}
		err = executor(podPath+"/idle/exec?command=cat&stdout=true").StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdout: &out})
		if err == nil || !strings.Contains(err.Error(), "pod idle does not have a host assigned") && !httpstream.IsUpgradeFailure(err) {
			t.Error(err)
		}
	})
}

// sizes is a queue of sizes of a terminal.
type sizes []remotecommand.TerminalSize

func (s *sizes) Next() *remotecommand.TerminalSize {
	if len(*s) == 0 {
		return nil
	}
	next := (*s)[0]
	*s = (*s)[1:]
	return &next
}

func TestAttach(t *testing.T) {
	t.Parallel()
	overBoth(t, func(t *testing.T, b *bench, executor func(string) remotecommand.Executor, _ func(string) httpstream.Dialer) {
		var out bytes.Buffer
		err := executor(podPath+"/p/attach?stdin=true&stdout=true").StreamWithContext(t.Context(), remotecommand.StreamOptions{
			Stdin: strings.NewReader("a\nb\nend\n"), Stdout: &out,
		})
		if err != nil || out.String() != "attached to c of default/p\na\nb\n" {
			t.Errorf("%q %v", &out, err)
		}
	})
}

func TestPortForward(t *testing.T) {
	t.Parallel()
	overBoth(t, func(t *testing.T, b *bench, _ func(string) remotecommand.Executor, dialer func(string) httpstream.Dialer) {
		stop, ready := make(chan struct{}), make(chan struct{})
		forwarder, err := portforward.NewForStreaming(dialer(podPath+"/p/portforward"), []string{"0:8080"}, stop, ready, io.Discard, io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- forwarder.ForwardPorts() }()
		defer func() {
			close(stop)
			if err := <-done; err != nil {
				t.Error(err)
			}
		}()
		select {
		case <-ready:
		case err := <-done:
			done <- nil
			t.Fatal(err)
		}
		ports, err := forwarder.GetPorts()
		if err != nil {
			t.Fatal(err)
		}
		for i := range 3 {
			transport := &http.Transport{DisableKeepAlives: true}
			r, err := http.NewRequestWithContext(t.Context(), "GET", fmt.Sprintf("http://127.0.0.1:%d/%d", ports[0].Local, i), nil)
			if err != nil {
				t.Fatal(err)
			}
			res, err := transport.RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(res.Body)
			res.Body.Close()
			if want := fmt.Sprintf("port 8080 of default/p: /%d", i); err != nil || string(body) != want {
				t.Errorf("%q %v", body, err)
			}
		}
	})
}

// A client that goes ends the stream at the kubelet.
func TestStreamEndsWithTheClient(t *testing.T) {
	t.Parallel()
	overBoth(t, func(t *testing.T, b *bench, executor func(string) remotecommand.Executor, _ func(string) httpstream.Dialer) {
		ctx, cancel := context.WithCancel(t.Context())
		in, feed := io.Pipe()
		out := &firstWrite{done: cancel}
		err := make(chan error, 1)
		go func() {
			err <- executor(podPath+"/p/exec?command=cat&stdin=true&stdout=true").StreamWithContext(ctx, remotecommand.StreamOptions{Stdin: in, Stdout: out})
		}()
		if _, err := io.WriteString(feed, "x"); err != nil {
			t.Fatal(err)
		}
		if err := <-err; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		feed.Close()
	})
}

// firstWrite calls done after the first write.
type firstWrite struct{ done func() }

func (w *firstWrite) Write(p []byte) (int, error) {
	w.done()
	return len(p), nil
}
