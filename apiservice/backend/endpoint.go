package backend

import (
	"errors"
	"net"
	"net/netip"
	"net/url"
	"path"
	"strconv"
	"strings"
)

// Schemes of endpoint URLs.
const (
	HTTPS = "https"
	HTTP  = "http"
	Unix  = "unix"
)

const (
	// maxURL bounds an endpoint's URL, in bytes.
	maxURL = 1024
	// maxSocketPath is what fits into a socket's address, in bytes.
	maxSocketPath = 107
)

// Address is the address of an endpoint, parsed from its URL.
//
// +k8s:openapi-gen=false
type Address struct {
	// Scheme is HTTPS, HTTP or Unix.
	Scheme string
	// Host is host:port, as net.Dial takes it, always with the port; "" for a socket.
	Host string
	// Named is the host as in the URL, with the port if the URL has one.
	Named string
	// Path is the path of the socket; "" for others.
	Path string
}

// where identifies an address; the case of the host does not matter.
func (a Address) where() [2]string { return [2]string{strings.ToLower(a.Host), a.Path} }

// SameAddress reports whether the URLs of two endpoints have the same address, whatever their
// schemes are and however a host is written: in capitals, with a trailing dot, as localhost or
// as a loopback address, in another form of the address. Names are not resolved. An invalid
// URL has no address.
func SameAddress(a, b string) bool {
	one, err := ParseURL(a)
	if err != nil {
		return false
	}
	other, err := ParseURL(b)
	return err == nil && one.canonical() == other.canonical()
}

// canonical is where with the canonical form of the host.
func (a Address) canonical() [2]string {
	host, port, err := net.SplitHostPort(a.Host)
	if err != nil {
		return a.where() // a socket
	}
	if n, err := strconv.Atoi(port); err == nil {
		port = strconv.Itoa(n)
	}
	return [2]string{net.JoinHostPort(canonicalHost(host), port), a.Path}
}

// localhost is the canonical host of the first loopback addresses and of the unspecified ones,
// which clients use for them.
const localhost = "localhost"

func canonicalHost(host string) string {
	host = strings.TrimSuffix(strings.ToLower(host), ".")
	if host == localhost || strings.HasSuffix(host, "."+localhost) {
		return localhost
	}
	addr, err := netip.ParseAddr(host)
	if err != nil {
		return host
	}
	addr = addr.Unmap()
	switch addr.WithZone("") {
	case netip.IPv6Loopback(), netip.IPv6Unspecified(), netip.IPv4Unspecified(), netip.AddrFrom4([4]byte{127, 0, 0, 1}):
		return localhost
	}
	return addr.String()
}

var errScheme = errors.New("must be https://host:port, http://host:port or unix:///path")

// ParseURL parses the URL of an endpoint: https://host[:port], http://host[:port] or
// unix:///path. The error says what the URL must be.
func ParseURL(text string) (Address, error) {
	if len(text) > maxURL {
		return Address{}, errors.New("must be no more than " + strconv.Itoa(maxURL) + " bytes")
	}
	u, err := url.Parse(text)
	if err != nil && !strings.Contains(text, "://") {
		return Address{}, errScheme // Go's error of host:port is of its first path segment
	}
	if err != nil {
		// Callers name the URL.
		if inner := new(url.Error); errors.As(err, &inner) {
			err = inner.Err
		}
		return Address{}, errors.New("must be a URL: " + err.Error())
	}
	if u.User != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || strings.HasSuffix(text, "#") {
		return Address{}, errors.New("must not have a user, a query or a fragment")
	}
	switch u.Scheme {
	case Unix:
		return parseSocket(u)
	case HTTPS:
		return parseHost(u, "443")
	case HTTP:
		return parseHost(u, "80")
	}
	return Address{}, errScheme
}

// maxHost bounds the name of a host, in bytes, as the domain name system does.
const maxHost = 253

// impossibleHost says why the host cannot exist; "": it can. It is checked in writes only:
// stored Backends are served as they are.
func (a Address) impossibleHost() string {
	host, _, err := net.SplitHostPort(a.Host)
	if err != nil {
		return "" // a socket
	}
	last := strings.TrimSuffix(host, ".")
	last = last[strings.LastIndexByte(last, '.')+1:]
	_, err = netip.ParseAddr(host)
	switch {
	case len(host) > maxHost:
		return "must have a host of no more than " + strconv.Itoa(maxHost) + " bytes"
	case strings.Contains(host, "*"):
		return "must have one host, not a pattern"
	case err != nil && strings.Trim(last, "0123456789") == "":
		return "must have a host that is a name or an IP address"
	}
	return ""
}

func parseSocket(u *url.URL) (Address, error) {
	switch {
	case u.Host != "" || u.Opaque != "" || !strings.HasPrefix(u.Path, "/"):
		return Address{}, errors.New("must have three slashes and an absolute path: unix:///path")
	case path.Clean(u.Path) != u.Path || u.Path == "/" || strings.Contains(u.Path, "\x00"):
		return Address{}, errors.New("must name a socket by its shortest path")
	case len(u.Path) > maxSocketPath:
		return Address{}, errors.New("must have a path of no more than " + strconv.Itoa(maxSocketPath) + " bytes")
	}
	return Address{Scheme: Unix, Path: u.Path}, nil
}

func parseHost(u *url.URL, defaultPort string) (Address, error) {
	if u.Opaque != "" || u.Hostname() == "" {
		return Address{}, errors.New("must have a host: " + u.Scheme + "://host:port")
	}
	if u.Path != "" && u.Path != "/" {
		return Address{}, errors.New("must not have a path")
	}
	port := u.Port()
	if port == "" {
		if strings.HasSuffix(u.Host, ":") {
			return Address{}, errors.New("must have a port after the colon")
		}
		port = defaultPort
	}
	if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
		return Address{}, errors.New("must have a port between 1 and 65535")
	}
	return Address{Scheme: u.Scheme, Host: net.JoinHostPort(u.Hostname(), port), Named: u.Host}, nil
}
