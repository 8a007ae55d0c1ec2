package access

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"portico/resource"
	"portico/resource/authn"
	"portico/resource/authz"
	"portico/resource/rest"
)

const (
	headerUser        = "Impersonate-User"
	headerGroup       = "Impersonate-Group"
	headerUID         = "Impersonate-Uid"
	headerExtraPrefix = "Impersonate-Extra-"
)

// Impersonation lets a request act as somebody else, if its sender may: the
// verb impersonate on each of the user, groups, uid and extras that the headers
// name (contract 7.3). The headers are consumed in every case, and the Action
// that goes on has the new user. It goes between authentication and
// authorization.
func (a *Access) Impersonation(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		act := resource.ActionFrom(r.Context())
		asked, err := requested(r.Header)
		strip(r.Header)
		if err != nil {
			rest.WriteStatus(w, r, err)
			return
		}
		if asked == nil || act == nil {
			next.ServeHTTP(w, r)
			return
		}
		if err := a.mayImpersonate(r.Context(), act.User, asked); err != nil {
			rest.WriteStatus(w, r, err)
			return
		}
		as := *act
		as.User = complete(asked)
		next.ServeHTTP(w, r.WithContext(resource.WithAction(r.Context(), &as)))
	})
}

// requested reads who the headers ask to be; nil if nobody.
func requested(h http.Header) (*resource.User, error) {
	u := &resource.User{Name: h.Get(headerUser), UID: h.Get(headerUID), Groups: slices.Clone(h.Values(headerGroup))}
	for name, values := range h {
		if key, ok := strings.CutPrefix(name, headerExtraPrefix); ok {
			if u.Extra == nil {
				u.Extra = map[string][]string{}
			}
			key = strings.ToLower(key)
			if plain, err := url.PathUnescape(key); err == nil {
				key = plain
			}
			u.Extra[key] = append(u.Extra[key], values...)
		}
	}
	if u.Name != "" {
		return u, nil
	}
	what := ""
	switch {
	case len(u.Groups) > 0:
		what = "requested []string{\"" + strings.Join(u.Groups, `", "`) + "\"} without impersonating a user name"
	case u.UID != "":
		what = "requested " + u.UID + " without impersonating a user name"
	case len(u.Extra) > 0:
		what = "requested extra without impersonating a user name"
	default:
		return nil, nil
	}
	return nil, apierrors.NewBadRequest(what)
}

func strip(h http.Header) {
	for name := range h {
		if strings.HasPrefix(name, "Impersonate-") {
			h.Del(name)
		}
	}
}

// mayImpersonate asks for every part of the identity by itself.
func (a *Access) mayImpersonate(ctx context.Context, who *resource.User, as *resource.User) error {
	ask := func(group, res, sub, namespace, name string) error {
		act := &resource.Action{
			User: who, Verb: "impersonate", IsResource: true, Group: group, Version: "v1",
			Resource: res, Subresource: sub, Namespace: namespace, Name: name, InPath: true,
		}
		decision, reason, err := a.Authorize(ctx, act)
		if err != nil && decision != authz.Allow {
			reason = err.Error()
		}
		if decision == authz.Allow {
			return nil
		}
		return authz.Forbidden(act, reason)
	}
	if namespace, name, ok := serviceAccount(as.Name); ok {
		if err := ask("", "serviceaccounts", "", namespace, name); err != nil {
			return err
		}
	} else if err := ask("", "users", "", "", as.Name); err != nil {
		return err
	}
	for _, g := range as.Groups {
		if err := ask("", "groups", "", "", g); err != nil {
			return err
		}
	}
	if as.UID != "" {
		if err := ask("authentication.k8s.io", "uids", "", "", as.UID); err != nil {
			return err
		}
	}
	for key, values := range as.Extra {
		for _, v := range values {
			if err := ask("authentication.k8s.io", "userextras", key, "", v); err != nil {
				return err
			}
		}
	}
	return nil
}

func serviceAccount(user string) (namespace, name string, ok bool) {
	rest, ok := strings.CutPrefix(user, "system:serviceaccount:")
	if !ok {
		return "", "", false
	}
	namespace, name, ok = strings.Cut(rest, ":")
	return namespace, name, ok && namespace != "" && name != ""
}

// complete gives the impersonated user the groups that come with the name.
func complete(u *resource.User) *resource.User {
	if namespace, _, ok := serviceAccount(u.Name); ok && len(u.Groups) == 0 {
		u.Groups = authn.ServiceAccountGroups(namespace)
	}
	if u.Name == resource.Anonymous {
		if !slices.Contains(u.Groups, resource.GroupUnauthenticated) {
			u.Groups = append(u.Groups, resource.GroupUnauthenticated)
		}
		return u
	}
	return authenticated(u)
}
