package authn

import (
	"errors"
	"net/http"
	"slices"
	"strings"

	"portico/resource"
)

// Authenticator returns the user of a request. Implementations are safe for concurrent
// use and change neither the request nor a user that they returned.
type Authenticator interface {
	// Authenticate returns the user and true if the request has a valid credential of this
	// kind; nil, false and no error if it has none; nil, false and an error if the credential
	// is invalid. The text of the error is for logs: clients get only "Unauthorized".
	Authenticate(r *http.Request) (user *resource.User, claimed bool, err error)
}

// Union calls the authenticators in order. The first that claims the request decides, also
// after the error of another one: a client may present a certificate of another CA and a
// valid token. If none claims it and one failed, Union returns the joined errors and does not
// call [Anonymous]. Every user but the anonymous one gets the group system:authenticated.
func Union(authenticators ...Authenticator) Authenticator { return union(authenticators) }

type union []Authenticator

func (u union) Authenticate(r *http.Request) (*resource.User, bool, error) {
	var errs []error
	for _, a := range u {
		if _, isAnonymous := a.(anonymous); isAnonymous && len(errs) > 0 {
			break
		}
		user, claimed, err := a.Authenticate(r)
		if claimed {
			return WithAuthenticated(user), true, nil
		}
		if err != nil {
			errs = append(errs, err)
		}
	}
	return nil, false, errors.Join(errs...)
}

// WithAuthenticated returns the user with the group system:authenticated: the user itself if
// it has the group or is not authenticated, else a copy.
func WithAuthenticated(u *resource.User) *resource.User {
	if u.Name == resource.Anonymous ||
		slices.Contains(u.Groups, resource.GroupAuthenticated) || slices.Contains(u.Groups, resource.GroupUnauthenticated) {
		return u
	}
	other := *u
	other.Groups = append(slices.Clip(u.Groups), resource.GroupAuthenticated)
	return &other
}

// Anonymous claims every request for the user system:anonymous of the group
// system:unauthenticated. With paths, it claims only requests for these paths and paths
// below them, such as health checks of a server behind a front proxy. It is the last one in
// a Union.
func Anonymous(paths ...string) Authenticator {
	return anonymous{paths: paths}
}

// AnonymousAt claims requests for exactly these paths as Anonymous does.
func AnonymousAt(paths ...string) Authenticator {
	return anonymous{paths: paths, exact: true}
}

// anonymousUser is shared between requests.
var anonymousUser = &resource.User{Name: resource.Anonymous, Groups: []string{resource.GroupUnauthenticated}}

// anonymous claims requests for paths, which are all of them if it is empty and exact is false.
type anonymous struct {
	paths []string
	exact bool
}

func (a anonymous) Authenticate(r *http.Request) (*resource.User, bool, error) {
	if len(a.paths) == 0 && !a.exact {
		return anonymousUser, true, nil
	}
	for _, path := range a.paths {
		if rest, found := strings.CutPrefix(r.URL.Path, path); found && (rest == "" || rest[0] == '/' && !a.exact) {
			return anonymousUser, true, nil
		}
	}
	return nil, false, nil
}
