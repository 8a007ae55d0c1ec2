package authn

import (
	"errors"
	"fmt"
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

// headerMode has the mode of a constrained impersonation; the other headers of the constraint
// name its impersonator (docs/wire.md 7.2).
const headerMode = "X-Remote-Impersonation-Mode"

func impersonatorHeaders() HeaderNames {
	return HeaderNames{
		User:        []string{"X-Remote-Impersonator"},
		UID:         []string{"X-Remote-Impersonator-Uid"},
		Group:       []string{"X-Remote-Impersonator-Group"},
		ExtraPrefix: []string{"X-Remote-Impersonator-Extra-"},
	}
}

// HeaderNames are the identity headers of a front proxy. Case does not matter. The zero value
// has none; see [DefaultHeaderNames].
type HeaderNames struct {
	// User and UID: the first header with a value is used.
	User, UID []string
	// Group: every value of every header is a group.
	Group []string
	// ExtraPrefix: the rest of a header's name is the percent-encoded key.
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

// user returns the user in the headers; nil without one.
func (n HeaderNames) user(h http.Header) *resource.User {
	name := firstValue(h, n.User)
	if name == "" {
		return nil
	}
	u := &resource.User{Name: name, UID: firstValue(h, n.UID)}
	for _, header := range n.Group {
		for _, group := range h.Values(header) {
			if group != "" {
				u.Groups = append(u.Groups, group)
			}
		}
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

// constraint returns the constraint in the headers; nil without one. An incomplete one is an
// error: without it the user would have more rights.
func constraint(h http.Header) (*resource.Constraint, error) {
	c := &resource.Constraint{Impersonator: impersonatorHeaders().user(h), Mode: h.Get(headerMode)}
	switch {
	case c.Impersonator == nil && c.Mode == "":
		return nil, nil
	case c.Impersonator == nil || c.Mode == "":
		return nil, errors.New("the headers of a constrained impersonation need both the mode and the impersonator")
	}
	return c, nil
}

func firstValue(h http.Header, names []string) string {
	for _, name := range names {
		if v := strings.TrimSpace(h.Get(name)); v != "" {
			return v
		}
	}
	return ""
}

// Strip removes these headers from h, and every header that a server could read as one of them:
// all names that are the same, or begin with the prefix, after FoldHeaderName.
func (n HeaderNames) Strip(h http.Header) {
	for _, names := range [][]string{n.User, n.UID, n.Group} {
		for _, name := range names {
			deleteFolded(h, name, false)
		}
	}
	for _, prefix := range n.ExtraPrefix {
		deleteFolded(h, prefix, true)
	}
}

// deleteFolded deletes the headers whose name is the same after FoldHeaderName, or begins with it.
func deleteFolded(h http.Header, name string, prefix bool) {
	folded := FoldHeaderName(name)
	for header := range h {
		if HasFoldedPrefix(header, folded) && (prefix || len(header) == len(name)) {
			delete(h, header)
		}
	}
}

func hasPrefixFold(s, prefix string) bool {
	return len(s) >= len(prefix) && strings.EqualFold(s[:len(prefix)], prefix)
}

// SetFrontProxyHeaders replaces the identity headers in h by those of the user. Characters of
// extra keys that a header name cannot have are percent-encoded.
func SetFrontProxyHeaders(h http.Header, u *resource.User) {
	StripFrontProxyHeaders(h)
	// All values share one array; the limited capacities keep appends from overwriting it.
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
		name := extraHeader(HeaderExtraPrefix, key)
		h[name] = append(h[name], values...)
	}
}

// AddConstraint adds the headers of the user's constraint to the headers of SetFrontProxyHeaders. The
// core and the CRD server read them ([FrontProxyOnly]); other API servers know the names of the
// user's headers only.
func AddConstraint(h http.Header, u *resource.User) {
	if u.Constraint == nil {
		return
	}
	by, names := u.Constraint.Impersonator, impersonatorHeaders()
	h.Set(headerMode, u.Constraint.Mode)
	h.Set(names.User[0], by.Name)
	if by.UID != "" {
		h.Set(names.UID[0], by.UID)
	}
	for _, group := range by.Groups {
		h.Add(names.Group[0], group)
	}
	for key, values := range by.Extra {
		name := extraHeader(names.ExtraPrefix[0], key)
		h[name] = append(h[name], values...)
	}
}

// StripFrontProxyHeaders removes every header that a server could read as one of the
// X-Remote-* headers: all names that begin with x-remote- after FoldHeaderName.
func StripFrontProxyHeaders(h http.Header) {
	for name := range h {
		if HasFoldedPrefix(name, "x-remote-") {
			delete(h, name)
		}
	}
}

// FoldHeaderName returns a header's name in lower case, with a dash for each byte that is
// neither a letter nor a digit. Some servers treat names that become equal as one header:
// CGI (RFC 3875, 4.1.18) replaces dashes by underscores, and PHP also other characters.
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

// StripCredentials removes all credentials, used or not, so that nothing behind
// authentication can read or forward them: Authorization, X-Remote-*, and a token among the
// WebSocket protocols.
func StripCredentials(h http.Header) {
	delete(h, "Authorization")
	StripFrontProxyHeaders(h)
	stripProtocolToken(h)
}

// extraHeader returns the canonical header name for a key of an extra, behind a prefix. Bytes that are not
// token characters (RFC 9110, 5.6.2), and the percent sign, become %XX.
func extraHeader(prefix, key string) string {
	name := []byte(prefix)
	for i := range len(key) {
		if c := key[i]; isTokenByte(c) && c != '%' {
			name = append(name, c)
		} else {
			name = fmt.Appendf(name, "%%%02x", c)
		}
	}
	return http.CanonicalHeaderKey(string(name))
}

// decodeExtraKey is the inverse of extraHeader. The key is in lower case, because header
// names have no case. A key that is not properly encoded is returned unchanged.
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
