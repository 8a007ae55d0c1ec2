package proxy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
)

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

// The streams of an exec over SPDY pass in both directions until both sides end them.
func TestSPDYThroughTheProxy(t *testing.T) {
	t.Parallel()
	server := &shouting{closed: make(chan struct{}, 1)}
	for name, at := range map[string]string{
		"TLS": startFront(t, server.ServeHTTP).URL, "socket": startChain(t, server.ServeHTTP).URL,
	} {
		u, err := url.Parse(at + execPath + "?stdin=true&stdout=true&stderr=true")
		if err != nil {
			t.Fatal(err)
		}
		e, err := remotecommand.NewSPDYExecutor(&rest.Config{Host: at, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}, "POST", u)
		if err != nil {
			t.Fatal(err)
		}
		var out, errs bytes.Buffer
		input := strings.Repeat("some text. ", 100_000)
		err = e.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdin: strings.NewReader(input), Stdout: &out, Stderr: &errs})
		if err != nil || out.String() != strings.ToUpper(input) || !strings.HasPrefix(errs.String(), "by ") || len(errs.String()) < 5 {
			t.Errorf("%s: %d bytes of %d, %q, %v", name, out.Len(), len(input), errs.String(), err)
		}
		soon(t, "the server's connection ends", server.closed)
	}
}
