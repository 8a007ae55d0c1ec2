package supervise

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"portico/resource/egress"
)

// probeTimeout bounds one readiness check.
const probeTimeout = 2 * time.Second

// HTTPReady returns a check that the response to a GET of url with header is 200. It connects
// to the unix socket, or to the address of the URL if socket is "".
func HTTPReady(url, socket string, tlsConfig *tls.Config, header http.Header) func(ctx context.Context) error {
	var dialer net.Dialer
	client := egress.Client(&http.Transport{
		TLSClientConfig: tlsConfig,
		// A connection may lead to a child that has ended.
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			if socket != "" {
				network, address = "unix", socket
			}
			return dialer.DialContext(ctx, network, address)
		},
	}, probeTimeout)
	return func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		if header != nil {
			req.Header = header.Clone()
		}
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(io.LimitReader(resp.Body, 4<<10))
		if err != nil {
			return err
		}
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("%s: %s", resp.Status, failing(string(body)))
		}
		return nil
	}
}

// failing returns the failing checks of a health response, or all of the response if it names
// none.
func failing(body string) string {
	var bad []string
	for line := range strings.Lines(body) {
		if name, ok := strings.CutPrefix(line, "[-]"); ok {
			name, _, _ = strings.Cut(name, " ")
			bad = append(bad, strings.TrimSpace(name))
		}
	}
	if len(bad) == 0 {
		return strings.TrimSpace(body)
	}
	return "waiting for " + strings.Join(bad, ", ")
}
