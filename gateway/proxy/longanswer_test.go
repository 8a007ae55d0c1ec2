package proxy

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// longPath is long-running with any method.
const longPath = "/apis/g.example.com/v1/namespaces/a/things/x/proxy/echo"

// The request's body is forwarded while its long-running answer is sent.
func TestLongAnswerDuringRequest(t *testing.T) {
	for _, p := range passages(t, func(w http.ResponseWriter, r *http.Request) {
		answer := http.NewResponseController(w)
		_ = answer.EnableFullDuplex()
		_ = answer.Flush()
		lines := bufio.NewScanner(r.Body)
		for lines.Scan() {
			fmt.Fprintln(w, lines.Text())
			_ = answer.Flush()
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

// A stream of events that answers a request with a body is written by one goroutine,
// and complete.
func TestEventsForRequestWithBody(t *testing.T) {
	const events = 5
	for _, p := range passages(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		for range events {
			_, _ = io.WriteString(w, "data: x\n\n")
			_ = http.NewResponseController(w).Flush()
		}
	}) {
		t.Run(p.name, func(t *testing.T) {
			for range 50 {
				res, err := p.send(t, t.Context(), "POST", longPath, strings.NewReader("body"), nil)
				if err != nil {
					t.Fatal(err)
				}
				got, err := io.ReadAll(res.Body)
				res.Body.Close()
				if want := strings.Repeat("data: x\n\n", events); string(got) != want || err != nil {
					t.Fatalf("%q %v", got, err)
				}
			}
		})
	}
}

// A refusal in pieces ends although the request's body was never sent.
func TestLongRefusalOfUnsentBody(t *testing.T) {
	for _, p := range passages(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusForbidden)
		_, _ = io.WriteString(w, "no")
		_ = http.NewResponseController(w).Flush()
	}) {
		t.Run(p.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
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
