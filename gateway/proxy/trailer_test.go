package proxy

import (
	"fmt"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"slices"
	"strings"
	"testing"
)

// Headers that a server must not send, or not as trailers, are removed from its
// trailers, announced or not; others pass.
func TestTrailersOfServers(t *testing.T) {
	t.Parallel()
	pass := []string{"Grpc-Message", "Grpc-Status", "X-Checksum"}
	drop := []string{
		"Audit-Id", "X-Portico-Backend", "Server-Timing", "Access-Control-Allow-Origin", "Set-Cookie", "Location", "Host", "Authorization",
		"Www-Authenticate", "Cache-Control", "Content-Type", "Content-Encoding", "Connection", "Upgrade", "If-Match", "Retry-After", "Date",
	}
	framing := []string{"Content-Length", "Transfer-Encoding", "Trailer"} // must not be trailers (RFC 9110, 6.5.1)
	serve := func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		announced := r.Header.Get("X-Announced") != ""
		if r.ProtoMajor == 2 {
			for _, name := range append(slices.Clone(pass), drop...) {
				if announced {
					w.Header().Add("Trailer", name)
				}
				defer w.Header().Set(http.TrailerPrefix+name, "theirs")
			}
			fmt.Fprint(w, "body")
			flush(w) // or it would say how long that is
			return
		}
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		status, announce, all := "200 OK", "", slices.Concat(pass, drop, framing)
		if r.Header.Get("Upgrade") != "" {
			status = "403 Forbidden"
		}
		if announced {
			announce = "Trailer: " + strings.Join(append(slices.Clone(pass), drop...), ", ") + "\r\n"
		}
		fmt.Fprintf(conn, "HTTP/1.1 %s\r\nConnection: close\r\n%sTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n", status, announce)
		for _, name := range all {
			fmt.Fprintf(conn, "%s: theirs\r\n", name)
		}
		fmt.Fprint(conn, "\r\n")
	}
	for _, protocol := range []string{"HTTP/1.1", "HTTP/2"} {
		server := httptest.NewUnstartedServer(http.HandlerFunc(serve))
		server.Config.ErrorLog = log.New(io.Discard, "", 0)
		server.EnableHTTP2 = protocol == "HTTP/2"
		server.StartTLS()
		defer server.Close()
		f := frontOf(t, trustOf(server), server.Listener.Addr().String())
		for name, c := range map[string]struct{ path, header, body string }{
			"short": {path: shortPath}, "long": {path: longPath}, "long, with a body": {path: longPath, body: "x"},
			"refused another protocol": {path: longPath, header: "Upgrade"},
		} {
			for _, announced := range []string{"", "yes"} {
				header := http.Header{"X-Announced": {announced}}
				if c.header != "" {
					header["Connection"], header["Upgrade"] = []string{"Upgrade"}, []string{"websocket"}
				}
				res := f.do(t, "POST", c.path, strings.NewReader(c.body), header)
				if body, err := io.ReadAll(res.Body); string(body) != "body" || err != nil {
					t.Fatalf("%s, %s: %d %q %v", protocol, name, res.StatusCode, body, err)
				}
				if got := slices.Sorted(maps.Keys(res.Trailer)); !slices.Equal(got, pass) || res.Trailer.Get("Grpc-Status") != "theirs" {
					t.Errorf("%s, %s, announced %q: %v", protocol, name, announced, res.Trailer)
				}
			}
		}
	}
}

// Informational responses of a server (1xx) do not reach the client, with or without
// headers that only the gateway sets.
func TestInformationalResponses(t *testing.T) {
	t.Parallel()
	f := startFront(t, func(w http.ResponseWriter, _ *http.Request) {
		for range 10 {
			w.Header().Set("Audit-Id", "theirs")
			w.WriteHeader(http.StatusEarlyHints)
		}
		clear(w.Header())
		fmt.Fprint(w, "body")
	})
	for _, path := range []string{shortPath, shortPath + "?watch=true"} { // over HTTP/1.1 and HTTP/2
		trace := &httptrace.ClientTrace{Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
			t.Errorf("%s: got %d with the header %v", path, code, h)
			return nil
		}}
		req, err := http.NewRequestWithContext(httptrace.WithClientTrace(t.Context(), trace), "GET", f.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != 200 {
			t.Errorf("%s: got %d, want 200", path, res.StatusCode)
		}
	}
}
