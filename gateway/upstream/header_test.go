package upstream

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
)

// The header of an answer may have up to 1 MiB, by every protocol.
func TestHeaderBound(t *testing.T) {
	server := startNode(t, "tls", func(w http.ResponseWriter, r *http.Request) {
		n, _ := strconv.Atoi(r.Header.Get("X-Lines"))
		for i := range n {
			w.Header().Set("X-Line-"+strconv.Itoa(i), strings.Repeat("x", 32<<10))
		}
	})
	const lines = 1 << 20 >> 15 // 1 MiB
	for name, c := range map[string]struct {
		k      kind
		method string
	}{"HTTP/1.1": {short, "GET"}, "HTTP/2": {long, "GET"}, "upgrade": {upgrade, "GET"}} {
		u := over(t, turns(), server.endpoint())
		if got := send(t, u, c.k, c.method, "", "X-Lines", strconv.Itoa(lines-1)); got.err != nil || got.code != 200 {
			t.Errorf("%s, below the bound: %d, %v", name, got.code, got.err)
		}
		if got := send(t, u, c.k, c.method, "", "X-Lines", strconv.Itoa(lines+1)); got.err == nil {
			t.Errorf("%s, above the bound: %d", name, got.code)
		}
		server.seen()
	}
}
