package authn

import (
	"context"
	"crypto/subtle"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"time"

	"portico/resource"
)

// Bootstrap tokens, by which nodes join a cluster: ID.SECRET, in a Secret bootstrap-token-ID of
// the namespace kube-system and of the type BootstrapSecretType. Rules and names are kubeadm's.

// The Secrets of bootstrap tokens, and keys of their data.
const (
	BootstrapSecretType = "bootstrap.kubernetes.io/token"
	bootstrapPrefix     = "bootstrap-token-"

	bootstrapID, bootstrapSecret        = "token-id", "token-secret"
	bootstrapExpiration                 = "expiration"
	bootstrapAuthentication             = "usage-bootstrap-authentication"
	bootstrapSigning                    = "usage-bootstrap-signing"
	bootstrapGroups                     = "auth-extra-groups"
	bootstrapUserPrefix, bootstrapGroup = "system:bootstrap:", "system:bootstrappers"
)

var (
	bootstrapToken      = regexp.MustCompile(`^([a-z0-9]{6})\.([a-z0-9]{16})$`)
	bootstrapExtraGroup = regexp.MustCompile(`^system:bootstrappers:[a-z0-9:-]{0,255}[a-z0-9]$`)
)

// BootstrapSecret is a Secret of a bootstrap token.
type BootstrapSecret struct {
	Name, Type string
	Data       map[string][]byte
	// Terminating: it is being deleted.
	Terminating bool
}

// BootstrapTokens authenticates bootstrap tokens as system:bootstrap:ID, of the group
// system:bootstrappers and those of auth-extra-groups. secret returns the Secret of a name in
// kube-system, nil if there is none. As by kube-apiserver, no invalid token is an error: other
// authenticators may claim it. Why it is not claimed is logged.
func BootstrapTokens(secret func(ctx context.Context, name string) (*BootstrapSecret, error)) TokenAuthenticator {
	return bootstrapTokens{secret, time.Now}
}

type bootstrapTokens struct {
	secret func(ctx context.Context, name string) (*BootstrapSecret, error)
	now    func() time.Time
}

func (b bootstrapTokens) AuthenticateToken(ctx context.Context, token string) (*resource.User, bool, error) {
	parts := bootstrapToken.FindStringSubmatch(token)
	if parts == nil {
		return nil, false, nil
	}
	id, given := parts[1], parts[2]
	s, err := b.secret(ctx, bootstrapPrefix+id)
	if s == nil || err != nil {
		return nil, false, err
	}
	groups, why := s.groups()
	switch {
	case s.Terminating:
		why = "is being deleted"
	case s.Type != BootstrapSecretType:
		why = "has not the type " + BootstrapSecretType
	case subtle.ConstantTimeCompare(s.Data[bootstrapSecret], []byte(given)) == 0:
		why = "has another " + bootstrapSecret
	case string(s.Data[bootstrapID]) != id:
		why = "has another " + bootstrapID
	case s.Expired(b.now()):
		why = "has expired"
	case string(s.Data[bootstrapAuthentication]) != "true":
		why = "is not for authentication"
	}
	if why != "" {
		slog.DebugContext(ctx, "the Secret of a bootstrap token "+why, "secret", s.Name)
		return nil, false, nil
	}
	return WithAuthenticated(&resource.User{Name: bootstrapUserPrefix + id, Groups: groups}), true, nil
}

// groups returns the groups of the token's user, sorted, or what is wrong with them.
func (s *BootstrapSecret) groups() (groups []string, wrong string) {
	groups = []string{bootstrapGroup}
	if extra := string(s.Data[bootstrapGroups]); extra != "" {
		for group := range strings.SplitSeq(extra, ",") {
			if !bootstrapExtraGroup.MatchString(group) {
				return nil, fmt.Sprintf("has an invalid group %q in %s", group, bootstrapGroups)
			}
			groups = append(groups, group)
		}
	}
	slices.Sort(groups)
	return slices.Compact(groups), ""
}

// Expiration returns when the token ends; the zero time if it does not. One that cannot be read
// has ended.
func (s *BootstrapSecret) Expiration() (end time.Time) {
	text := string(s.Data[bootstrapExpiration])
	if text == "" {
		return end
	}
	end, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Unix(0, 0)
	}
	return end
}

// Expired reports whether the token has ended.
func (s *BootstrapSecret) Expired(now time.Time) bool {
	end := s.Expiration()
	return !end.IsZero() && !now.Before(end)
}

// Signing returns the parts of a token that signs ConfigMap cluster-info; ok is false for any
// other, and for one that has expired.
func (s *BootstrapSecret) Signing(now time.Time) (id, secret string, ok bool) {
	id, secret = string(s.Data[bootstrapID]), string(s.Data[bootstrapSecret])
	ok = s.Type == BootstrapSecretType && s.Name == bootstrapPrefix+id && len(id) == 6 && secret != "" && !s.Expired(now) &&
		string(s.Data[bootstrapSigning]) == "true"
	return id, secret, ok
}
