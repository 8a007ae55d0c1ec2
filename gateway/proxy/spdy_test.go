package proxy

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
)

const execPath = "/api/v1/namespaces/a/pods/b/exec"

// shouting is a server that runs one command: it writes its input in capitals. closed
// gets a value for each connection that ends.
type shouting struct{ closed chan struct{} }

func (s *shouting) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if _, err := httpstream.Handshake(r, w, []string{"v4.channel.k8s.io"}); err != nil {
		return
	}
	named, all := map[string]httpstream.Stream{}, make(chan struct{})
	var mu sync.Mutex
	conn := spdy.NewResponseUpgrader().UpgradeResponse(w, r, func(stream httpstream.Stream, _ <-chan struct{}) error {
		mu.Lock()
		defer mu.Unlock()
		named[stream.Headers().Get("streamType")] = stream
		if len(named) == 4 {
			close(all)
		}
		return nil
	})
	if conn == nil {
		return
	}
	defer conn.Close()
	go func() {
		<-conn.CloseChan()
		s.closed <- struct{}{}
	}()
	select {
	case <-all:
	case <-conn.CloseChan():
		return
	}
	fmt.Fprintf(named["stderr"], "by %s", r.Header.Get("X-Remote-User"))
	buffer := make([]byte, 8<<10)
	for {
		n, err := named["stdin"].Read(buffer)
		if _, err := named["stdout"].Write(bytes.ToUpper(buffer[:n])); err != nil {
			return
		}
		if err != nil {
			break
		}
	}
	_ = json.NewEncoder(named["error"]).Encode(metav1.Status{Status: metav1.StatusSuccess})
	for _, stream := range named {
		stream.Close()
	}
	<-conn.CloseChan() // the client has read everything
}

// The streams of an exec over SPDY pass in both directions, and the end of one side
// ends the other.
func TestSPDYThroughTheProxy(t *testing.T) {
	server := &shouting{closed: make(chan struct{}, 1)}
	for name, at := range map[string]string{
		"TLS": startFront(t, server.ServeHTTP).URL, "socket": startChain(t, server.ServeHTTP).URL,
	} {
		exec := func() remotecommand.Executor {
			u, err := url.Parse(at + execPath + "?stdin=true&stdout=true&stderr=true")
			if err != nil {
				t.Fatal(err)
			}
			e, err := remotecommand.NewSPDYExecutor(&rest.Config{Host: at, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}, "POST", u)
			if err != nil {
				t.Fatal(err)
			}
			return e
		}
		t.Run(name, func(t *testing.T) {
			var out, errs bytes.Buffer
			input := strings.Repeat("some text. ", 100_000)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			err := exec().StreamWithContext(ctx, remotecommand.StreamOptions{Stdin: strings.NewReader(input), Stdout: &out, Stderr: &errs})
			if err != nil || out.String() != strings.ToUpper(input) || !strings.HasPrefix(errs.String(), "by ") || len(errs.String()) < 5 {
				t.Fatalf("%d bytes of %d, %q, %v", out.Len(), len(input), errs.String(), err)
			}
			soon(t, "the server's connection ends", server.closed)
		})
		t.Run(name+", each word at once", func(t *testing.T) {
			in, words := io.Pipe()
			echoes, out := io.Pipe()
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				_ = exec().StreamWithContext(ctx, remotecommand.StreamOptions{Stdin: in, Stdout: out, Stderr: io.Discard})
				echoes.CloseWithError(io.ErrUnexpectedEOF)
			}()
			for _, word := range []string{"one", "two", "three"} {
				got := make([]byte, len(word))
				if _, err := io.WriteString(words, word); err != nil {
					t.Fatal(err)
				}
				if _, err := io.ReadFull(echoes, got); err != nil || string(got) != strings.ToUpper(word) {
					t.Fatalf("%q came back as %q, %v", word, got, err)
				}
			}
			leave()
			soon(t, "the server is freed", server.closed)
			soon(t, "the client is gone", ended)
			words.Close()
		})
	}
}

// An error of the server instead of a switch reaches the client.
func TestSPDYRefused(t *testing.T) {
	f := startFront(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"not you","reason":"Forbidden","code":403}`)
	})
	u, err := url.Parse(f.URL + execPath)
	if err != nil {
		t.Fatal(err)
	}
	e, err := remotecommand.NewSPDYExecutor(&rest.Config{Host: f.URL}, "POST", u)
	if err != nil {
		t.Fatal(err)
	}
	err = e.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdout: io.Discard})
	if err == nil || !strings.Contains(err.Error(), "not you") {
		t.Errorf("%v", err)
	}
}
