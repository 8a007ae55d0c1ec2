package upstream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// maxInformational is how many informational responses a request may get.
const maxInformational = 5

// informFrames sends informational responses to a request.
func informFrames(stream uint32, fr *http2.Framer, times int) {
	for i := range times {
		var b bytes.Buffer
		e := hpack.NewEncoder(&b)
		_ = e.WriteField(hpack.HeaderField{Name: ":status", Value: "103"})
		_ = e.WriteField(hpack.HeaderField{Name: "x-number", Value: strconv.Itoa(i)})
		_ = fr.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: b.Bytes(), EndHeaders: true})
	}
}

// A client that does not take its informational responses keeps the answers of
// no others from them, although they come by the same connection.
func TestInformingBlocksNobody(t *testing.T) {
	f := startFrames(t, func(n int, stream uint32, fr *http2.Framer) bool {
		if n == 1 {
			informFrames(stream, fr, maxInformational)
		}
		answerFrames(stream, fr)
		return false
	})
	u := over(t, turns(), f.Endpoint)
	read, began := make(chan struct{}), make(chan struct{}, maxInformational)
	release := sync.OnceFunc(func() { close(read) })
	defer release()
	var numbers []string
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{Got1xxResponse: func(_ int, h textproto.MIMEHeader) error {
		began <- struct{}{}
		<-read
		numbers = append(numbers, h.Get("X-Number"))
		return nil
	}})
	req, _ := http.NewRequestWithContext(ctx, "GET", "https://example.com/x", nil)
	answered := make(chan error, 1)
	go func() {
		res, err := u.Long().RoundTrip(req)
		if err == nil && (res.StatusCode != 200 || !slices.Equal(numbers, []string{"0", "1", "2", "3", "4"})) {
			err = errors.New(res.Status)
		}
		answered <- err
	}()
	<-began
	others := make(chan result, 1)
	go func() { others <- send(t, u, long, "GET", "") }()
	select {
	case got := <-others:
		if got.code != 200 {
			t.Errorf("another: %+v", got)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("another waits for the client that does not read")
	}
	select {
	case <-answered:
		t.Fatal("the first has an answer, or none, before its client took what comes before that")
	default:
	}
	release()
	if err := <-answered; err != nil {
		t.Errorf("the first: %v %q", err, numbers)
	}
	if f.requests() != 2 {
		t.Errorf("%d requests", f.requests())
	}
}

// Informational responses without end are an error of their request alone.
func TestInformingWithoutEnd(t *testing.T) {
	f := startFrames(t, func(n int, stream uint32, fr *http2.Framer) bool {
		if n == 2 {
			informFrames(stream, fr, maxInformational+1)
		} else {
			answerFrames(stream, fr)
		}
		return false
	})
	u := over(t, turns(), f.Endpoint)
	bounded, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	ctx := httptrace.WithClientTrace(bounded, &httptrace.ClientTrace{Got1xxResponse: func(int, textproto.MIMEHeader) error { return nil }})
	for i, good := range []bool{true, false, true} {
		req, _ := http.NewRequestWithContext(ctx, "GET", "https://example.com/x", nil)
		if _, err := u.Long().RoundTrip(req); (err == nil) != good {
			t.Errorf("request %d: %v", i+1, err)
		}
	}
	if f.requests() != 3 {
		t.Errorf("%d requests", f.requests())
	}
}

// A server that informs without end is left, also on the way of what net/http sends.
func TestInformedByRestWithoutEnd(t *testing.T) {
	bad, _ := rough(t, false, func(conn net.Conn) {
		for {
			if _, err := io.WriteString(conn, "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"); err != nil {
				return
			}
		}
	})
	u := over(t, turns(), bad)
	trace := &httptrace.ClientTrace{Got1xxResponse: func(int, textproto.MIMEHeader) error { return nil }}
	for _, method := range []string{"GET", "OPTIONS"} {
		ctx, cancel := context.WithTimeout(httptrace.WithClientTrace(t.Context(), trace), 20*time.Second)
		req, _ := http.NewRequestWithContext(ctx, method, "https://example.com/x", nil)
		if _, err := u.send(req, short); !strings.Contains(fmt.Sprint(err), "informational") {
			t.Errorf("%s: %v", method, err)
		}
		cancel()
	}
}
