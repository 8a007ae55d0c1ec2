package access

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	authuser "k8s.io/apiserver/pkg/authentication/user"

	"portico/resource"
	"portico/resource/response"
)

const (
	headerUser        = "Impersonate-User"
	headerGroup       = "Impersonate-Group"
	headerUID         = "Impersonate-Uid"
	headerExtraPrefix = "Impersonate-Extra-"
)

// nodePrefix begins the user names of nodes.
const nodePrefix = "system:node:"

// Impersonation is the filter between authentication and authorization that makes a request
// act as another user, if its user may (see mode). It always removes the headers. The request
// continues with a copy of its Action that has the impersonated User; Impersonator is for audit.
func (a *Access) Impersonation(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		as, err := a.impersonated(r)
		switch {
		case err != nil:
			response.WriteStatus(w, r, err)
		case as == nil:
			next.ServeHTTP(w, r)
		default:
			next.ServeHTTP(w, r.WithContext(resource.WithAction(r.Context(), as)))
		}
	})
}

// impersonated returns the Action of an impersonated request; nil for a request without
// impersonation. It removes the headers.
func (a *Access) impersonated(r *http.Request) (*resource.Action, error) {
	if !hasHeaders(r.Header) {
		return nil, nil
	}
	wanted, err := requested(r.Header)
	strip(r.Header)
	if err != nil || wanted == nil {
		return nil, err
	}
	act := resource.ActionFrom(r.Context())
	if act == nil || act.User == nil {
		return nil, apierrors.NewInternalError(errors.New("impersonation without an authenticated user"))
	}
	as, err := a.impersonate(r.Context(), act, wanted)
	if err != nil {
		return nil, err
	}
	a.log.Debug("impersonation", "user", act.User.Name, "as", as.User.Name, "groups", as.User.Groups, "constrained", as.User.Constraint != nil)
	return as, nil
}

// requested returns the user in the headers; nil if there is none.
func requested(h http.Header) (*resource.User, error) {
	u := &resource.User{Name: h.Get(headerUser), UID: h.Get(headerUID), Groups: slices.Clone(h.Values(headerGroup))}
	for name, values := range h {
		key, ok := strings.CutPrefix(name, headerExtraPrefix)
		if !ok {
			continue
		}
		if u.Extra == nil {
			u.Extra = map[string][]string{}
		}
		key = strings.ToLower(key)
		if plain, err := url.PathUnescape(key); err == nil {
			key = plain
		}
		u.Extra[key] = append(u.Extra[key], values...)
	}
	if u.Name != "" {
		return u, nil
	}
	if u.UID == "" && len(u.Groups) == 0 && len(u.Extra) == 0 {
		return nil, nil
	}
	info := &authuser.DefaultInfo{UID: u.UID, Groups: u.Groups, Extra: u.Extra}
	return nil, apierrors.NewBadRequest(fmt.Sprintf("requested %#v without impersonating a user name", info)) // as kube-apiserver prints it
}

// hasHeaders reports whether there is an impersonation header. Most requests have none.
func hasHeaders(h http.Header) bool {
	for name := range h {
		if isImpersonation(name) {
			return true
		}
	}
	return false
}

// strip removes all impersonation headers.
func strip(h http.Header) {
	for name := range h {
		if isImpersonation(name) {
			delete(h, name)
		}
	}
}

// isImpersonation reports whether a server could read a header as one of impersonation, also
// with underscores, which some servers replace by dashes.
func isImpersonation(name string) bool {
	const prefix = "impersonate-"
	return len(name) >= len(prefix) && (name[0]|0x20) == prefix[0] && strings.EqualFold(strings.ReplaceAll(name[:len(prefix)], "_", "-"), prefix)
}

// serviceAccount returns the service account of a user name; false for other users and
// for names that no service account can have.
func serviceAccount(user string) (namespace, name string, ok bool) {
	namespace, name, err := serviceaccount.SplitUsername(user)
	return namespace, name, err == nil
}

// node returns the node of a user name of the form system:node:NAME.
func node(user string) (name string, ok bool) {
	name, ok = strings.CutPrefix(user, nodePrefix)
	return name, ok && len(validation.NameIsDNSSubdomain(name, false)) == 0
}
