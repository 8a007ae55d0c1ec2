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
)

// probeTimeout bounds one question to a child.
const probeTimeout = 2 * time.Second

// HTTPReady returns a check that GET url answers 200. The address is that of
// the URL, or the unix socket if socket is not ""; header is sent along.
func HTTPReady(url, socket string, tlsConfig *tls.Config, header http.Header) func(ctx context.Context) error {
	var dialer net.Dialer
	client := &http.Client{
		Timeout: probeTimeout,
		Transport: &http.Transport{
			TLSClientConfig: tlsConfig,
			// A child that was started again must not be asked on the
			// connection of the one before; questions are few.
			DisableKeepAlives: true,
			DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
				if socket != "" {
					network, address = "unix", socket
				}
				return dialer.DialContext(ctx, network, address)
			},
		},
	}
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

// failing returns the checks that a health answer names as failing, or all of
// it if it names none.
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
