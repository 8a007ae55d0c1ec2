package authn

import (
	"net/http"
	"net/url"
	"strings"

	"portico/resource"
)

// The headers that name the user between Portico's processes (docs/wire.md 7.2). The last
// one is a prefix; the key of the extra follows.
const (
	HeaderUser        = "X-Remote-User"
	HeaderUID         = "X-Remote-Uid"
	HeaderGroup       = "X-Remote-Group"
	HeaderExtraPrefix = "X-Remote-Extra-"
)

// HeaderNames are the headers that a front proxy puts the user in. Names are
// matched without regard to case. The zero value is none; see
// [DefaultHeaderNames].
type HeaderNames struct {
	// User and UID: the first header with a value counts.
	User, UID []string
	// Group: every value of every header is a group.
	Group []string
	// ExtraPrefix: the rest of a header's name is the key, percent-encoded.
	ExtraPrefix []string
}

// DefaultHeaderNames returns the X-Remote-* headers.
func DefaultHeaderNames() HeaderNames {
	return HeaderNames{
		User:        []string{HeaderUser},
		UID:         []string{HeaderUID},
		Group:       []string{HeaderGroup},
		ExtraPrefix: []string{HeaderExtraPrefix},
	}
}

// user reads the user from the headers; nil when they name none.
func (n HeaderNames) user(h http.Header) *resource.User {
	name := firstValue(h, n.User)
	if name == "" {
		return nil
	}
	u := &resource.User{Name: name, UID: firstValue(h, n.UID)}
	for _, header := range n.Group {
		u.Groups = append(u.Groups, h.Values(header)...)
	}
	for header, values := range h {
		for _, prefix := range n.ExtraPrefix {
			if !hasPrefixFold(header, prefix) {
				continue
			}
			if u.Extra == nil {
				u.Extra = make(map[string][]string)
			}
			key := decodeExtraKey(header[len(prefix):])
			u.Extra[key] = append(u.Extra[key], values...)
			break
		}
	}
	return u
}

func firstValue(h http.Header, names []string) string {
	for _, name := range names {
		if v := strings.TrimSpace(h.Get(name)); v != "" {
			return v
		}
	}
	return ""
}

// Strip removes these headers from h.
func (n HeaderNames) Strip(h http.Header) {
	for _, names := range [][]string{n.User, n.UID, n.Group} {
		for _, name := range names {
			h.Del(name)
		}
	}
	for _, prefix := range n.ExtraPrefix {
		for header := range h {
			if hasPrefixFold(header, prefix) {
				delete(h, header)
			}
		}
	}
}

func hasPrefixFold(s, prefix string) bool {
	return len(s) >= len(prefix) && strings.EqualFold(s[:len(prefix)], prefix)
}

// SetFrontProxyHeaders replaces the identity headers in h by those of the user. Keys of
// extras are percent-encoded where a header name does not permit them.
func SetFrontProxyHeaders(h http.Header, u *resource.User) {
	StripFrontProxyHeaders(h)
	// All values share one array; the capacities keep an append from reaching the next.
	values := make([]string, 0, 2+len(u.Groups))
	values = append(values, u.Name)
	h[HeaderUser] = values[:1:1]
	if u.UID != "" {
		values = append(values, u.UID)
		h[HeaderUID] = values[1:2:2]
	}
	if first := len(values); len(u.Groups) > 0 {
		values = append(values, u.Groups...)
		h[HeaderGroup] = values[first:len(values):len(values)]
	}
	for key, values := range u.Extra {
		name := extraHeader(key)
		h[name] = append(h[name], values...)
	}
}

// StripFrontProxyHeaders removes every header that a receiver could read as one of the
// X-Remote-* headers: those with the same name after FoldHeaderName.
func StripFrontProxyHeaders(h http.Header) {
	for name := range h {
		if HasFoldedPrefix(name, "x-remote-") {
			delete(h, name)
		}
	}
}

// FoldHeaderName returns a header's name in lower case, with a dash for each byte
// that is neither a letter nor a digit. Names that are the same after that are the
// same header to some servers: CGI (RFC 3875, 4.1.18) and its successors replace
// dashes by underscores, and PHP also dots and others.
func FoldHeaderName(name string) string {
	folded := make([]byte, len(name))
	for i := range len(name) {
		folded[i] = foldByte(name[i])
	}
	return string(folded)
}

// HasFoldedPrefix reports whether FoldHeaderName(name) begins with prefix.
func HasFoldedPrefix(name, prefix string) bool {
	if len(name) < len(prefix) {
		return false
	}
	for i := range len(prefix) {
		if foldByte(name[i]) != prefix[i] {
			return false
		}
	}
	return true
}

func foldByte(c byte) byte {
	switch {
	case 'A' <= c && c <= 'Z':
		return c | 0x20
	case 'a' <= c && c <= 'z', '0' <= c && c <= '9':
		return c
	}
	return '-'
}

// StripCredentials removes what a request was authenticated by, whether or not
// it was used, so that nothing behind authentication can see or forward it:
// Authorization, X-Remote-*, and a token among the WebSocket protocols.
func StripCredentials(h http.Header) {
	delete(h, "Authorization")
	StripFrontProxyHeaders(h)
	stripProtocolToken(h)
}

// extraHeader returns the name of the header for a key of an extra, in canonical
// form: bytes that are not token characters (RFC 9110, 5.6.2), and the percent
// sign itself, become %XX.
func extraHeader(key string) string {
	const hex = "0123456789abcdef" // as the canonical form has it, but at a beginning
	var room [128]byte
	name := append(room[:0], HeaderExtraPrefix...)
	upper := true
	add := func(c byte) {
		switch {
		case upper && 'a' <= c && c <= 'z':
			c -= 'a' - 'A'
		case !upper && 'A' <= c && c <= 'Z':
			c += 'a' - 'A'
		}
		name = append(name, c)
		upper = c == '-'
	}
	for i := range len(key) {
		c := key[i]
		if isTokenByte(c) && c != '%' {
			add(c)
			continue
		}
		add('%')
		add(hex[c>>4])
		add(hex[c&15])
	}
	return string(name)
}

// decodeExtraKey is the inverse, up to case, which headers do not keep: keys
// are lower case. What is not properly encoded is taken as it stands.
func decodeExtraKey(encoded string) string {
	encoded = strings.ToLower(encoded)
	if key, err := url.PathUnescape(encoded); err == nil {
		return key
	}
	return encoded
}

func isTokenByte(c byte) bool {
	switch {
	case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		return true
	}
	return strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0
}
