package proxy

import (
	"fmt"
	"net/http"
	"strings"

	"golang.org/x/net/http/httpguts"

	"portico/gateway/upstream"
)

// upgradeError is an answer to a request for another protocol that neither
// switches nor refuses (contract 8.3).
type upgradeError struct{ code int }

func (e *upgradeError) Error() string {
	return fmt.Sprintf("invalid upgrade response: status code %d", e.code)
}

// upgrades reports whether the client asks for another protocol. It may not ask
// for another HTTP, or for TLS to speak HTTP in: requests that came that way
// would reach the server as the gateway's, with whatever identity they claim.
// Who asks for that gets an answer in the protocol there is, as servers may do.
func upgrades(h http.Header) bool {
	if !httpguts.HeaderValuesContainsToken(h["Connection"], "Upgrade") {
		return false
	}
	protocols := strings.Split(strings.Join(h["Upgrade"], ","), ",")
	for _, protocol := range protocols {
		name, _, _ := strings.Cut(strings.ToLower(strings.TrimSpace(protocol)), "/")
		switch name {
		case "", "http", "h2", "h2c", "h3", "tls":
			return false
		}
	}
	return true
}

// staysHTTP judges the answer to a request that asked for no other protocol.
func staysHTTP(res *http.Response) error {
	if res.StatusCode == http.StatusSwitchingProtocols {
		return upstream.ErrSwitched
	}
	return modifyResponse(res)
}

// leavesHTTP judges the answer to one that did.
func leavesHTTP(res *http.Response) error {
	if err := modifyResponse(res); err != nil {
		return err
	}
	if res.StatusCode < http.StatusBadRequest && res.StatusCode != http.StatusSwitchingProtocols {
		return &upgradeError{res.StatusCode}
	}
	if res.StatusCode == http.StatusSwitchingProtocols && !strings.EqualFold(res.Header.Get("Upgrade"), res.Request.Header.Get("Upgrade")) {
		// httputil would refuse it too, and leave the connection open.
		return &upgradeError{res.StatusCode}
	}
	return nil
}
