package proxy

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"portico/internal/testing/await"
)

// freed is how long a server may wait to learn that its client is gone: shorter
// than any deadline of a request, and long enough for a busy machine.
const freed = 20 * time.Second

// passage is a client's protocol and a server's address.
type passage struct {
	name   string
	url    string
	client *http.Client
}

// passages are clients and servers that all run behind: over TLS, where short and long
// requests use different protocols, and over a socket, behind all filters.
func passages(t *testing.T, behind http.HandlerFunc) []passage {
	t.Helper()
	toTLS, toSocket := startFront(t, behind), startChain(t, behind)
	client := func(roots *tls.Config, h2 bool) *http.Client {
		protocols := new(http.Protocols)
		protocols.SetHTTP1(!h2)
		protocols.SetHTTP2(h2)
		transport := &http.Transport{
			TLSClientConfig: roots, Protocols: protocols, ExpectContinueTimeout: time.Hour, DisableCompression: true,
		}
		t.Cleanup(transport.CloseIdleConnections)
		return &http.Client{Transport: transport, Timeout: await.Patience()}
	}
	roots := toSocket.Client().Transport.(*http.Transport).TLSClientConfig
	return []passage{
		{"HTTP/1.1 to TLS", toTLS.URL, client(nil, false)},
		{"HTTP/1.1 to a socket", toSocket.URL, client(roots.Clone(), false)},
		{"HTTP/2 to a socket", toSocket.URL, client(roots.Clone(), true)},
	}
}

func (p *passage) send(t *testing.T, ctx context.Context, method, path string, body io.Reader, header http.Header) (*http.Response, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, p.url+path, body)
	if err != nil {
		t.Fatal(err)
	}
	if header != nil {
		req.Header = header
	}
	res, err := p.client.Do(req)
	if err == nil {
		t.Cleanup(func() { res.Body.Close() })
	}
	return res, err
}

// soon waits for a signal.
func soon(t *testing.T, what string, signal <-chan struct{}) {
	t.Helper()
	select {
	case <-signal:
	case <-time.After(freed):
		t.Errorf("not within %v: %s", freed, what)
	}
}

// Each event reaches the client before the server sends the next, and the header before the
// first; a client that goes ends the request at the server.
func TestServerSentEvents(t *testing.T) {
	t.Parallel()
	var next chan string
	ended, over := make(chan struct{}, 1), make(chan struct{})
	all := passages(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		w.Header().Set("Cache-Control", "no-store")
		flush(w)
		for {
			select {
			case event := <-next:
				fmt.Fprintf(w, "data: %s\n\n", event)
				flush(w)
			case <-r.Context().Done():
				ended <- struct{}{}
				return
			case <-over:
				return
			}
		}
	})
	t.Cleanup(func() { close(over) }) // before the servers, which wait
	for _, p := range all {
		for _, path := range []string{shortPath, watchPath} {
			t.Run(p.name+" "+path, func(t *testing.T) {
				next = make(chan string)
				res, err := p.send(t, t.Context(), "GET", path, nil, http.Header{"Accept": {"text/event-stream"}})
				if err != nil {
					t.Fatal(err)
				}
				if h := res.Header; h.Get("Content-Type") != "text/event-stream" || h.Get("Cache-Control") != "no-store" || h.Get("Content-Length") != "" {
					t.Errorf("header %v", h)
				}
				for i := range 20 {
					next <- fmt.Sprint("event ", i)
					want := fmt.Sprintf("data: event %d\n\n", i)
					got := make([]byte, len(want))
					if _, err := io.ReadFull(res.Body, got); err != nil || string(got) != want {
						t.Fatalf("got %q, %v", got, err)
					}
				}
				res.Body.Close()
				soon(t, "the server is freed", ended)
			})
		}
	}
}

// Trailers of answers reach the client, announced or not.
func TestTrailersOfAnswers(t *testing.T) {
	t.Parallel()
	for _, p := range passages(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Trailer", "X-Checksum")
		io.WriteString(w, "body")
		w.Header().Set("X-Checksum", "c1")
		w.Header().Set(http.TrailerPrefix+"X-Late", "l1")
	}) {
		for _, path := range []string{shortPath, watchPath} {
			t.Run(p.name+" "+path, func(t *testing.T) {
				res, err := p.send(t, t.Context(), "GET", path, nil, http.Header{"Te": {"trailers"}})
				if err != nil {
					t.Fatal(err)
				}
				body, err := io.ReadAll(res.Body)
				if err != nil || string(body) != "body" {
					t.Errorf("%q, %v", body, err)
				}
				if res.Trailer.Get("X-Checksum") != "c1" || res.Trailer.Get("X-Late") != "l1" || res.Header.Get("X-Checksum") != "" {
					t.Errorf("header %v, trailer %v", res.Header, res.Trailer)
				}
			})
		}
	}
}

// counted counts what is read of a body.
type counted struct {
	io.Reader
	read atomic.Int64
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.read.Add(int64(n))
	return n, err
}

// A client with Expect: 100-continue gets the server's own answer: 100, or one without
// the body being sent. Over HTTP/2 net/http does not report the header, and the gateway
// reads the body in any case.
func TestExpectContinue(t *testing.T) {
	t.Parallel()
	for _, p := range passages(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Has("refuse") {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		n, err := io.Copy(io.Discard, r.Body)
		fmt.Fprint(w, n, err)
	}) {
		for _, size := range []int{1000, 1 << 20} {
			for _, refuse := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, %d bytes, refused %v", p.name, size, refuse), func(t *testing.T) {
					var asked atomic.Int32
					ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{Got100Continue: func() { asked.Add(1) }})
					body := &counted{Reader: strings.NewReader(strings.Repeat("x", size))}
					req, err := http.NewRequestWithContext(ctx, "POST", p.url+shortPath, body)
					if err != nil {
						t.Fatal(err)
					}
					req.ContentLength = int64(size)
					req.Header.Set("Expect", "100-continue")
					if refuse {
						req.URL.RawQuery = "refuse"
					}
					res, err := p.client.Do(req)
					if err != nil {
						t.Fatal(err)
					}
					defer res.Body.Close()
					answer, err := io.ReadAll(res.Body)
					switch {
					case err != nil:
						t.Error(err)
					case refuse:
						if res.StatusCode != http.StatusForbidden || res.ProtoMajor == 1 && (asked.Load() != 0 || body.read.Load() != 0) {
							t.Errorf("%d %q, asked for the body %d times, %d bytes read", res.StatusCode, answer, asked.Load(), body.read.Load())
						}
					default:
						if res.StatusCode != http.StatusOK || string(answer) != fmt.Sprint(size, nil) || asked.Load() != 1 {
							t.Errorf("%d %q, asked for the body %d times", res.StatusCode, answer, asked.Load())
						}
					}
				})
			}
		}
	}
}

// endless is a body without an end.
type endless struct{}

func (endless) Read(p []byte) (int, error) {
	time.Sleep(time.Millisecond)
	return copy(p, bytes.Repeat([]byte("x"), 1000)), nil
}

// A client that goes ends the request at the server at once: before the answer, during
// it, while it is not read, and while the request is sent.
func TestClientsThatGo(t *testing.T) {
	t.Parallel()
	arrived, ended, over := make(chan struct{}, 1), make(chan struct{}, 1), make(chan struct{})
	all := passages(t, func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			select {
			case ended <- struct{}{}:
			case <-over:
			}
		}()
		switch r.URL.Query().Get("in") {
		case "answer":
			io.WriteString(w, "begun")
			flush(w)
		case "flood":
			arrived <- struct{}{}
			for _, err := w.Write(make([]byte, 64<<10)); err == nil; _, err = w.Write(make([]byte, 64<<10)) {
			}
			return
		case "body":
			arrived <- struct{}{}
			_, _ = io.Copy(io.Discard, r.Body)
			return
		}
		arrived <- struct{}{}
		select {
		case <-r.Context().Done():
		case <-over:
		}
	})
	t.Cleanup(func() { close(over) }) // before the servers, which wait
	for _, p := range all {
		for _, path := range []string{shortPath + "?x=y", watchPath} {
			for _, in := range []string{"wait", "answer", "flood", "body"} {
				if in == "body" && path == watchPath {
					continue
				}
				t.Run(fmt.Sprintf("%s, %s, %s", p.name, path, in), func(t *testing.T) {
					ctx, leave := context.WithCancel(t.Context())
					defer leave()
					method, body := "GET", io.Reader(nil)
					if in == "body" {
						method, body = "POST", endless{}
					}
					gone := make(chan struct{})
					go func() {
						defer close(gone)
						if res, err := p.send(t, ctx, method, path+"&in="+in, body, nil); err == nil {
							<-ctx.Done()
							res.Body.Close()
						}
					}()
					soon(t, "the request arrives", arrived)
					leave()
					soon(t, "the server is freed", ended)
					soon(t, "the client is gone", gone)
				})
			}
		}
	}
}

// The request's body is forwarded while its long-running answer is sent.
func TestLongAnswerDuringRequest(t *testing.T) {
	t.Parallel()
	for _, p := range passages(t, func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).EnableFullDuplex()
		flush(w)
		lines := bufio.NewScanner(r.Body)
		for lines.Scan() {
			fmt.Fprintln(w, lines.Text())
			flush(w)
		}
	}) {
		if !strings.HasPrefix(p.name, "HTTP/2") {
			continue // its clients send all before they read
		}
		t.Run(p.name, func(t *testing.T) {
			asked, asking := io.Pipe()
			res, err := p.send(t, t.Context(), "POST", longPath, asked, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			answers := bufio.NewReader(res.Body)
			for i := range 3 {
				want := fmt.Sprintln("line", i)
				if _, err := io.WriteString(asking, want); err != nil {
					t.Fatal(err)
				}
				if got, err := answers.ReadString('\n'); got != want || err != nil {
					t.Fatalf("got %q, %v", got, err)
				}
			}
			asking.Close()
			if _, err := answers.ReadByte(); err != io.EOF {
				t.Error(err)
			}
		})
	}
}

// A refusal in pieces ends although the request's body was never sent.
func TestLongRefusalOfUnsentBody(t *testing.T) {
	t.Parallel()
	for _, p := range passages(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusForbidden)
		_, _ = io.WriteString(w, "no")
		flush(w)
	}) {
		t.Run(p.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), await.Patience())
			defer cancel()
			res, err := p.send(t, ctx, "POST", longPath, strings.NewReader(strings.Repeat("x", 1000)), http.Header{"Expect": {"100-continue"}})
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			if got, err := io.ReadAll(res.Body); res.StatusCode != http.StatusForbidden || string(got) != "no" || err != nil {
				t.Errorf("%d %q %v", res.StatusCode, got, err)
			}
		})
	}
}
