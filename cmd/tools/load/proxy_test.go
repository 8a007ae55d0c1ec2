package main

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// testFront serves h to a load.
func testFront(t *testing.T, h http.HandlerFunc) *front {
	server := httptest.NewUnstartedServer(h)
	server.EnableHTTP2 = true
	server.Config.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: 2}
	server.StartTLS()
	t.Cleanup(server.Close)
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	return &front{name: "server", address: server.Listener.Addr().String(), tls: &tls.Config{RootCAs: roots, ServerName: "example.com"}}
}

// turn drives a load for a tenth of a second.
func turn(t *testing.T, l *load, f *front) (sample, error) {
	d, err := l.drive(t.Context(), f)
	if err != nil {
		t.Fatal(err)
	}
	defer d.close()
	return d.turn(t.Context(), 100*time.Millisecond)
}

// Every request that is sent is answered and counted once, also where a server
// takes fewer at a time than there are.
func TestLoad(t *testing.T) {
	f := testFront(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet || r.URL.Path != "/x" || r.Header.Get("Authorization") != "Bearer secret" || r.Header.Get("Accept") != jsonType {
			http.Error(w, "not what was to be asked", http.StatusBadRequest)
			return
		}
		readyBytes(staticJSON(3500)).ServeHTTP(w, r)
	})
	for _, protocol := range []string{http1, http2Name} {
		l := &load{protocol: protocol, fields: requestFields("/x", "secret"), want: 3500, atOnce: 16}
		s, err := turn(t, l, f)
		if err != nil || s.ops < 16 {
			t.Errorf("%s, as fast as can be: %d answers, %v", protocol, s.ops, err)
		}
		l.rate = 1000
		s, err = turn(t, l, f)
		if err != nil || s.ops != 100 || s.quantile(1) <= 0 {
			t.Errorf("%s, 1,000 a second for a tenth of one: %d answers, %v", protocol, s.ops, err)
		}
	}
}

// An answer that is not the expected one ends a measurement.
func TestLoadRefuses(t *testing.T) {
	for what, h := range map[string]http.HandlerFunc{
		"bytes": func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(staticJSON(300)) },
		"503": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = w.Write(staticJSON(200))
		},
	} {
		f := testFront(t, h)
		for _, protocol := range []string{http1, http2Name} {
			l := &load{protocol: protocol, fields: requestFields("/x", ""), want: 200, atOnce: 4}
			if _, err := turn(t, l, f); err == nil || !strings.Contains(err.Error(), what) {
				t.Errorf("%s: %v, want one that says %q", protocol, err, what)
			}
		}
	}
}

// The static objects have the size that their name promises.
func TestStaticObjects(t *testing.T) {
	for _, n := range []int64{smallObject, 3500} {
		if got := staticJSON(n); int64(len(got)) != n {
			t.Errorf("%d bytes, not %d", len(got), n)
		}
	}
}

// A driver goes on with the same connections, turn after turn, and an answer may
// come in pieces.
func TestDriverTurns(t *testing.T) {
	f := testFront(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "3500")
		_, _ = w.Write(staticJSON(3500)[:7])
		_ = http.NewResponseController(w).Flush()
		_, _ = w.Write(staticJSON(3500)[7:])
	})
	for _, protocol := range []string{http1, http2Name} {
		l := &load{protocol: protocol, fields: requestFields("/x", ""), want: 3500, atOnce: 3}
		d, err := l.drive(t.Context(), f)
		if err != nil {
			t.Fatal(err)
		}
		defer d.close()
		for range 3 {
			if s, err := d.turn(t.Context(), 10*time.Millisecond); err != nil || s.ops < 3 || len(s.latencies) != int(s.ops) {
				t.Errorf("%s: %d answers, %d times, %v", protocol, s.ops, len(s.latencies), err)
			}
		}
	}
}

// A window has as many turns as it takes, and one that has fewer is left out.
func TestWindows(t *testing.T) {
	for _, c := range []struct{ turns, perWindow, want int }{{6, 1, 6}, {6, 3, 2}, {8, 3, 2}, {2, 3, 1}} {
		m := &measured{}
		for i := range c.turns {
			m.add(sample{ops: 1, latencies: []time.Duration{time.Duration(i)}}, c.perWindow)
		}
		m.close()
		if got := len(m.windows); got != c.want || int(m.windows[0].ops) != min(c.perWindow, c.turns) || int(m.all.ops) != c.turns || len(m.all.latencies) != c.turns {
			t.Errorf("%d turns, %d in a window: %d windows, the first of %d; %d turns in all", c.turns, c.perWindow, got, m.windows[0].ops, m.all.ops)
		}
	}
}

// A spread is that of the windows, not of the sums.
func TestSpread(t *testing.T) {
	a, b := &measured{}, &measured{}
	for i := range 5 {
		a.windows = append(a.windows, sample{ops: int64(10 * (i + 1))})
		b.windows = append(b.windows, sample{ops: 10})
	}
	got := spreadOf(a, b, func(a, b sample) float64 { return float64(a.ops) / float64(b.ops) })
	if want := (spread{Half: 3, Low: 2, High: 4}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	a.windows, b.windows = a.windows[:4], b.windows[:4]
	got = spreadOf(a, b, func(a, b sample) float64 { return float64(a.ops) / float64(b.ops) })
	if want := (spread{Half: 2.5, Low: 1.75, High: 3.25}); got != want {
		t.Errorf("of four windows: %+v, want %+v", got, want)
	}
}
