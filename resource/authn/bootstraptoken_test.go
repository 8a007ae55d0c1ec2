package authn

import (
	"context"
	"errors"
	"reflect"
	"testing"
	"time"

	"portico/resource"
)

// A bootstrap token is good for the user of its id by what its Secret says; any other token is not
// claimed, so that other authenticators are asked.
func TestBootstrapTokens(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	good := func() *BootstrapSecret {
		return &BootstrapSecret{Name: "bootstrap-token-abc123", Type: "bootstrap.kubernetes.io/token", Data: map[string][]byte{
			"token-id": []byte("abc123"), "token-secret": []byte("0123456789abcdef"), "usage-bootstrap-authentication": []byte("true"),
		}}
	}
	set := func(key, value string) func(*BootstrapSecret) {
		return func(s *BootstrapSecret) { s.Data[key] = []byte(value) }
	}
	const token = "abc123.0123456789abcdef"
	all := []string{"system:bootstrappers", resource.GroupAuthenticated}
	for name, c := range map[string]struct {
		token  string
		change func(*BootstrapSecret)
		groups []string // nil: it is not claimed
	}{
		"good":                  {token, nil, all},
		"another secret":        {"abc123.0123456789abcdee", nil, nil},
		"another id":            {"abc124.0123456789abcdef", nil, nil},
		"short":                 {"abc123.0123456789abcde", nil, nil},
		"long":                  {token + "0", nil, nil},
		"upper case":            {"ABC123.0123456789abcdef", nil, nil},
		"a line's end":          {token + "\n", nil, nil},
		"no token":              {"abc123", nil, nil},
		"another type":          {token, func(s *BootstrapSecret) { s.Type = "Opaque" }, nil},
		"no data":               {token, func(s *BootstrapSecret) { s.Data = nil }, nil},
		"terminating":           {token, func(s *BootstrapSecret) { s.Terminating = true }, nil},
		"another id in it":      {token, set("token-id", "abc124"), nil},
		"not expired":           {token, set("expiration", "2026-01-02T03:04:06Z"), all},
		"not expired elsewhere": {token, set("expiration", "2026-01-02T04:04:06+01:00"), all},
		"expired":               {token, set("expiration", "2026-01-02T03:04:05Z"), nil},
		"an unreadable end":     {token, set("expiration", "tomorrow"), nil},
		"not for it":            {token, set("usage-bootstrap-authentication", "True"), nil},
		"for signing": {token, func(s *BootstrapSecret) {
			delete(s.Data, "usage-bootstrap-authentication")
			set("usage-bootstrap-signing", "true")(s)
		}, nil},
		"more groups":         {token, set("auth-extra-groups", "system:bootstrappers:b,system:bootstrappers:a"), []string{"system:bootstrappers", "system:bootstrappers:a", "system:bootstrappers:b", resource.GroupAuthenticated}},
		"a group twice":       {token, set("auth-extra-groups", "system:bootstrappers:a,system:bootstrappers:a"), []string{"system:bootstrappers", "system:bootstrappers:a", resource.GroupAuthenticated}},
		"a foreign group":     {token, set("auth-extra-groups", "system:bootstrappers:a,system:masters"), nil},
		"an empty group":      {token, set("auth-extra-groups", "system:bootstrappers:a,"), nil},
		"a group with an end": {token, set("auth-extra-groups", "system:bootstrappers:a\n"), nil},
	} {
		s := good()
		if c.change != nil {
			c.change(s)
		}
		a := BootstrapTokens(func(_ context.Context, name string) (*BootstrapSecret, error) {
			if name != s.Name {
				return nil, nil
			}
			return s, nil
		}).(bootstrapTokens)
		a.now = func() time.Time { return now }
		user, claimed, err := a.AuthenticateToken(t.Context(), c.token)
		var want *resource.User
		if c.groups != nil {
			want = &resource.User{Name: "system:bootstrap:abc123", Groups: c.groups}
		}
		if err != nil || claimed != (want != nil) || !reflect.DeepEqual(user, want) {
			t.Errorf("%s: %+v, %v, %v, want %+v", name, user, claimed, err, want)
		}
	}
	away := BootstrapTokens(func(context.Context, string) (*BootstrapSecret, error) { return nil, errors.New("away") })
	if _, claimed, err := away.AuthenticateToken(t.Context(), token); claimed || err == nil {
		t.Error("a lookup that failed is no error")
	}
}

// A token signs what its Secret says, whatever it is for besides.
func TestSigningTokens(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		secret string
		change func(*BootstrapSecret)
		ok     bool
	}{
		"good":       {"bootstrap-token-abc123", func(*BootstrapSecret) {}, true},
		"other name": {"bootstrap-token-abc124", func(*BootstrapSecret) {}, false},
		"expired":    {"bootstrap-token-abc123", func(s *BootstrapSecret) { s.Data["expiration"] = []byte("2020-01-01T00:00:00Z") }, false},
		"not for it": {"bootstrap-token-abc123", func(s *BootstrapSecret) { delete(s.Data, "usage-bootstrap-signing") }, false},
		"no secret":  {"bootstrap-token-abc123", func(s *BootstrapSecret) { delete(s.Data, "token-secret") }, false},
		"other type": {"bootstrap-token-abc123", func(s *BootstrapSecret) { s.Type = "Opaque" }, false},
	} {
		s := &BootstrapSecret{Name: c.secret, Type: BootstrapSecretType, Data: map[string][]byte{
			"token-id": []byte("abc123"), "token-secret": []byte("0123456789abcdef"), "usage-bootstrap-signing": []byte("true"),
		}}
		c.change(s)
		if id, secret, ok := s.Signing(time.Now()); ok != c.ok || ok && id+"."+secret != "abc123.0123456789abcdef" {
			t.Errorf("%s: %s %s %v", name, id, secret, ok)
		}
	}
}
