package attack

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// mark is in each value by which an attack names another user, and in no other value.
const mark = "mallory"

// only returns an error unless a server got at most one request, with that user, the groups
// and extras of an ordinary certificate, and no forged value.
func only(user string, seen []*request) error {
	if len(seen) > 1 {
		return fmt.Errorf("%d requests reached the server: %v", len(seen), seen)
	}
	for _, r := range seen {
		if err := names(user, r); err != nil {
			return fmt.Errorf("%w in\n%s", err, r)
		}
		if strings.Contains(strings.ToLower(r.String()), mark) {
			return fmt.Errorf("what was forged reached the server:\n%s", r)
		}
	}
	return nil
}

// confined returns an error if an answer of a server over HTTP/1.1 is a page of the gateway's origin for a browser, or sets a
// cookie there.
func confined(a answer) error {
	policy := a.header.Get("Content-Security-Policy")
	if a.code == 200 && (!strings.HasPrefix(policy, "sandbox ") || strings.Contains(policy, "allow-same-origin") ||
		a.header.Get("X-Content-Type-Options") != "nosniff" || a.header["Set-Cookie"] != nil) {
		return fmt.Errorf("the answer has the header %v", a.header)
	}
	return nil
}

// identityHeaders are the headers of the user in requests of the gateway, with the number
// of values for a user of a certificate without groups.
var identityHeaders = map[string]int{
	"x-remote-user": 1, "x-remote-group": 1, "x-remote-extra-authentication.kubernetes.io%2fcredential-id": 1,
}

// names returns an error unless the request has that user and no other.
func names(user string, r *request) error {
	got := map[string]int{}
	for name, values := range r.header {
		folded := strings.Map(func(c rune) rune {
			if c >= 'a' && c <= 'z' || c >= '0' && c <= '9' {
				return c
			}
			return '-'
		}, strings.ToLower(name))
		switch {
		case folded == "authorization", folded == "cookie", strings.HasPrefix(folded, "impersonate-"), strings.Contains(strings.Join(values, ","), "base64url.bearer"):
			return fmt.Errorf("%s travelled on", name)
		case strings.HasPrefix(folded, "x-remote-"):
			got[strings.ToLower(name)] += len(values)
		}
	}
	if !maps.Equal(got, identityHeaders) {
		return fmt.Errorf("the user's headers are %v, want %v", got, identityHeaders)
	}
	if got := r.header["X-Remote-User"]; !slices.Equal(got, []string{user}) {
		return fmt.Errorf("the user is %q, want %q", got, user)
	}
	if got := r.header["X-Remote-Group"]; !slices.Equal(got, []string{"system:authenticated"}) {
		return fmt.Errorf("the groups are %q", got)
	}
	for name := range r.trailer {
		if strings.HasPrefix(strings.ToLower(strings.ReplaceAll(name, "_", "-")), "x-remote-") {
			return fmt.Errorf("the trailer %s arrived", name)
		}
	}
	return nil
}
