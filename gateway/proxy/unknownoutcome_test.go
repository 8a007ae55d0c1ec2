package proxy

import (
	"net"
	"net/http"
	"strings"
	"testing"

	"golang.org/x/net/http2"

	"portico/gateway/upstream"
)

// The 503 for a request without an answer says that it may have been carried out,
// unless no server processed any of it or it changes nothing.
func TestUnknownOutcome(t *testing.T) {
	t.Parallel()
	server, _ := startTLS(t, nil)
	const unknown = "it is not known whether the request was carried out"
	for name, c := range map[string]struct {
		on      func(fr *http2.Framer, stream uint32)
		untaken bool
	}{
		"refused":                  {func(fr *http2.Framer, stream uint32) { _ = fr.WriteRSTStream(stream, http2.ErrCodeRefusedStream) }, true},
		"above the last":           {func(fr *http2.Framer, stream uint32) { _ = fr.WriteGoAway(0, http2.ErrCodeNo, nil) }, true},
		"above the last, in anger": {func(fr *http2.Framer, stream uint32) { _ = fr.WriteGoAway(0, http2.ErrCodeEnhanceYourCalm, nil) }, true},
		"the last, which fails": {func(fr *http2.Framer, stream uint32) {
			_ = fr.WriteGoAway(stream, http2.ErrCodeNo, nil)
			_ = fr.WriteRSTStream(stream, http2.ErrCodeInternal)
		}, false},
		"broken off": {func(fr *http2.Framer, stream uint32) { _ = fr.WriteRSTStream(stream, http2.ErrCodeCancel) }, false},
	} {
		bad := startRefusing(t, server.TLS, func(conn net.Conn) { byFrames(conn, c.on) })
		f := frontOf(t, upstream.Trust{Insecure: true}, bad.Addr().String())
		for _, method := range []string{"POST", "DELETE", "GET", "OPTIONS"} {
			body := ""
			if method == "POST" {
				body = "text"
			}
			res := f.do(t, method, longPath, strings.NewReader(body), nil)
			again := c.untaken || method == "GET" || method == "OPTIONS"
			s := statusOf(t, res)
			if res.StatusCode != 503 || res.Header.Get("Retry-After") != "" || strings.Contains(s.Message, unknown) == again {
				t.Errorf("%s: %s: %d, Retry-After %q, %s", name, method, res.StatusCode, res.Header.Get("Retry-After"), s.Message)
			}
		}
	}
}

// The outcome of a GET that runs a command is unknown as well.
func TestUnknownOutcomeOfExec(t *testing.T) {
	t.Parallel()
	f := startFront(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	res := f.raw(t, "GET "+execPath+" HTTP/1.1\nHost: gw\nConnection: Upgrade\nUpgrade: websocket\n\n")
	if s := statusOf(t, res); res.StatusCode != 503 || res.Header.Get("Retry-After") != "" || !strings.Contains(s.Message, "it is not known") {
		t.Errorf("%d, Retry-After %q, %s", res.StatusCode, res.Header.Get("Retry-After"), s.Message)
	}
}
