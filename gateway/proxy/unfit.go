package proxy

import (
	"fmt"
	"net/http"
	"strings"

	"golang.org/x/net/http/httpguts"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"portico/resource"
)

// Refuse returns the error for a request that is not sent this way, because the
// server might read it as another than was authorized, or not as it is meant; nil
// if it is sent.
func (r *Route) Refuse(req *http.Request) error {
	if err := unfit(req); err != nil || r.Plain == nil {
		return err
	}
	return r.Plain.refuse(req)
}

// unfit returns the error for a request that a server might read as another one
// than was authorized; nil if there is none.
func unfit(r *http.Request) error {
	if hasUnfitByte(r.URL.Path) || hasEscapedSlash(r.URL.RawPath) {
		// The gateway authorizes what is escaped as part of a name; servers that decode
		// the path before they split it take x%2Fstatus for a subresource of x.
		return apierrors.NewBadRequest("the path must not have an escaped slash, a backslash or a control character: servers differ in how they read it")
	}
	if strings.Contains(r.URL.Path, "/.") {
		for segment := range strings.SplitSeq(r.URL.Path, "/") {
			if segment == "." || segment == ".." {
				// Servers differ in whether they take the segment before it away.
				return apierrors.NewBadRequest(fmt.Sprintf("the path must not have the segment %q", segment))
			}
		}
	}
	if act := resource.ActionFrom(r.Context()); act != nil && act.User != nil {
		if value, ok := unspeakable(act.User); ok {
			return apierrors.NewBadRequest(fmt.Sprintf("the user cannot be named to the server: %q cannot be the value of a header", value))
		}
	}
	return nil
}

// hasUnfitByte reports whether a path has, escaped or not, a backslash, which is a slash
// to some servers, or a control character: a NUL ends the path, and a line break a line.
func hasUnfitByte(path string) bool {
	for i := range len(path) {
		if c := path[i]; c < ' ' || c == 0x7f || c == '\\' {
			return true
		}
	}
	return false
}

// hasEscapedSlash reports whether an escaped path has a slash that is escaped. It is
// "" for a path that needs no escapes but the default ones, which that is not.
func hasEscapedSlash(escaped string) bool {
	return escaped != "" && strings.Contains(strings.ToLower(escaped), "%2f")
}

// unspeakable returns what of a user does not come through a header as it is:
// without its line breaks, or the space around it, it would be another user.
func unspeakable(u *resource.User) (value string, ok bool) {
	changes := func(v string) bool { return !httpguts.ValidHeaderFieldValue(v) || strings.Trim(v, " \t") != v }
	if changes(u.Name) {
		return u.Name, true
	}
	if changes(u.UID) {
		return u.UID, true
	}
	for _, group := range u.Groups {
		if changes(group) {
			return group, true
		}
	}
	for _, values := range u.Extra {
		for _, v := range values {
			if changes(v) {
				return v, true
			}
		}
	}
	return "", false
}
