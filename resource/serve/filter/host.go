package filter

import (
	"fmt"
	"net/http"
	"net/netip"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"portico/resource/response"
)

// host answers 400 to a request whose Host, or :authority of HTTP/2, is no host with or without a port.
// Servers get the host as X-Forwarded-Host and make URLs of it: a host with a path or a user would lead
// elsewhere. net/http checks only its bytes, and not over HTTP/2. A request without a host passes.
func (c *Chain) host(w http.ResponseWriter, r *http.Request) bool {
	if r.Host == "" || isAuthority(r.Host) {
		return true
	}
	response.WriteStatus(w, r, apierrors.NewBadRequest(fmt.Sprintf("the host %q must be a name or an address with an optional port", r.Host)))
	return false
}

// isAuthority reports whether text is a host name, an IPv4 address or an IPv6 address in brackets, with or
// without a port.
func isAuthority(text string) bool {
	if rest, ok := strings.CutPrefix(text, "["); ok {
		address, port, ok := strings.Cut(rest, "]")
		ip, err := netip.ParseAddr(address)
		return ok && err == nil && ip.Is6() && ip.Zone() == "" && (port == "" || port[0] == ':' && isPort(port[1:]))
	}
	name, port, _ := strings.Cut(text, ":")
	if name == "" || !isPort(port) {
		return false
	}
	for i := range len(name) {
		switch c := name[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '-', c == '.', c == '_':
		default:
			return false
		}
	}
	return true
}

// isPort reports whether text is the digits of a port, or empty (RFC 3986, 3.2.3).
func isPort(text string) bool {
	for i := range len(text) {
		if text[i] < '0' || text[i] > '9' {
			return false
		}
	}
	return len(text) <= 5
}
