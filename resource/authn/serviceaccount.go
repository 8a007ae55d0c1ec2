package authn

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"

	"portico/resource"
)

// nbfLeeway is how far ahead the clock of a token's issuer may be. Expiry has no leeway.
const nbfLeeway = time.Minute

// ServiceAccountConfig configures the verification of service-account tokens.
type ServiceAccountConfig struct {
	// Issuers are the accepted iss of the tokens; others are not claimed. Required.
	Issuers []string
	// Keys returns the keys that verify signatures. Required.
	Keys func() []PublicKey
	// Audiences of this API server; a token must be for one of them. Empty: the issuers.
	Audiences []string
	// Lookup returns whether the service account exists, and its uid; one past its deletion time
	// and grace does not exist. claimed is the uid in a token issued in the last minute, and "" for
	// other tokens. If a cached account has another uid than claimed, Lookup must read the account:
	// it may have been deleted and created again. Results are cached, see Changed. If Lookup is nil,
	// every service account exists.
	Lookup func(ctx context.Context, namespace, name, claimed string) (uid string, found bool, err error)
	// Bound returns the same for the Pod, Secret or Node that a token is bound to
	// (namespace is "" for a Node). An object past its deletion time and grace does not
	// exist. nil: bound tokens are invalid.
	Bound func(ctx context.Context, kind, namespace, name string) (uid string, found bool, err error)
	// Secret returns a Secret of a token without expiry (legacytoken.go); nil if it does not
	// exist or is being deleted. nil: such tokens are not claimed.
	Secret func(ctx context.Context, namespace, name string) (*TokenSecret, error)
	// Unchecked accepts tokens without expiry by their signature alone, whether or not the Secret
	// and the service account exist.
	Unchecked bool
	// Metrics registers metrics of the cache; nil: none.
	Metrics prometheus.Registerer
}

// ServiceAccountTokens authenticates the service-account tokens of a [Signer]
// (docs/wire.md 7.4). Safe for concurrent use.
type ServiceAccountTokens struct {
	cfg    ServiceAccountConfig
	parser *jwt.Parser
	cache  *tokenCache
	counts *tokenMetrics
	now    func() time.Time
}

// ServiceAccounts returns an authenticator of service-account tokens.
func ServiceAccounts(cfg ServiceAccountConfig) *ServiceAccountTokens {
	if len(cfg.Audiences) == 0 {
		cfg.Audiences = cfg.Issuers
	}
	return &ServiceAccountTokens{
		cfg: cfg,
		parser: jwt.NewParser(
			jwt.WithValidMethods([]string{"RS256", "ES256", "ES384", "ES512"}),
			jwt.WithoutClaimsValidation(), // see checkTime: clients know the messages
		),
		cache:  newTokenCache(),
		counts: newTokenMetrics(cfg.Metrics),
		now:    time.Now,
	}
}

// AuthenticateToken implements TokenAuthenticator. It reports the audiences of the
// token to a caller that used [WithAudiences].
func (s *ServiceAccountTokens) AuthenticateToken(ctx context.Context, token string) (*resource.User, bool, error) {
	wanted, asked := s.cfg.Audiences, AudiencesFrom(ctx)
	if asked != nil && len(asked.Wanted) > 0 {
		wanted = asked.Wanted
	}
	now, key := s.now(), tokenKey(token, wanted)
	result, cached := s.cache.get(key, now)
	if cached {
		s.counts.cached()
	} else {
		result = s.verify(ctx, token, wanted, now)
		s.counts.verified(result.err)
		s.cache.put(key, result, now)
	}
	if asked != nil {
		asked.Matched = result.audiences
	}
	result.notes.addTo(ctx)
	return result.user, result.user != nil, result.err
}

// Changed has the tokens checked again that depend on an object, by their next use. It is called
// after the object was deleted or changed, when Lookup, Bound and Secret see that.
func (s *ServiceAccountTokens) Changed(o Object) { s.cache.changed(o) }

// Follow sets whether Changed is called for the changes of a kind from now on; while it is not,
// results that depend on objects of that kind are cached for a second. All of them are checked
// again by their next use.
func (s *ServiceAccountTokens) Follow(kind string, reported bool) { s.cache.follow(kind, reported) }

// verify checks a token that is not cached.
func (s *ServiceAccountTokens) verify(ctx context.Context, token string, wanted []string, now time.Time) tokenResult {
	var claims tokenClaims
	_, err := s.parser.ParseWithClaims(token, &claims, s.keysFor)
	switch {
	case errors.Is(err, errForeignToken), errors.Is(err, jwt.ErrTokenMalformed):
		return tokenResult{lasting: true}
	case err != nil:
		return tokenResult{err: fmt.Errorf("verify service account token: %w", err), lasting: true}
	}
	if claims.legacy(s.cfg.Issuers) {
		return s.verifyLegacy(ctx, token, &claims, wanted, now)
	}
	if err := claims.checkTime(now); err != nil {
		return tokenResult{err: err}
	}
	matched := intersect(wanted, claims.Audience)
	if len(matched) == 0 {
		return tokenResult{err: fmt.Errorf("token audiences %q is invalid for the target audiences %q", claims.Audience, wanted)}
	}
	if err := claims.checkNames(); err != nil {
		return tokenResult{err: err}
	}
	l := s.cache.begin(claims.Private.objects())
	recent := claims.IssuedAt != nil && now.Sub(claims.IssuedAt.Time) < recentlyIssued
	if err := s.checkLive(ctx, &claims.Private, recent); err != nil {
		return tokenResult{err: err, lookup: l}
	}
	return tokenResult{user: claims.user(), audiences: matched, notes: s.replaceable(&claims, now), expires: claims.ExpiresAt.Time, lookup: l}
}

// replaceable returns the notes about a token of extended lifetime: whether the client should have
// replaced it.
func (s *ServiceAccountTokens) replaceable(c *tokenClaims, now time.Time) *Notes {
	warn := c.Private.WarnAfter
	switch {
	case warn == nil || warn.Unix() == 0:
		return nil
	case !now.After(warn.Time):
		s.counts.projected.Inc()
		return nil
	}
	s.counts.stale.Inc()
	return &Notes{Annotations: map[string]string{
		"authentication.k8s.io/stale-token": fmt.Sprintf("subject: %s, seconds after warning threshold: %d", c.Subject, now.Unix()-warn.Unix()),
	}}
}

// errForeignToken reports a token of another issuer.
var errForeignToken = errors.New("the token is of another issuer")

// keysFor returns the keys that may have signed the token: those with its key id, if it has
// one, and its algorithm.
func (s *ServiceAccountTokens) keysFor(token *jwt.Token) (any, error) {
	if issuer, err := token.Claims.GetIssuer(); err != nil || !slices.Contains(s.cfg.Issuers, issuer) && (issuer != legacyIssuer || s.cfg.Secret == nil) {
		return nil, errForeignToken
	}
	id, _ := token.Header["kid"].(string)
	var set jwt.VerificationKeySet
	for _, key := range s.cfg.Keys() {
		if (id == "" || id == key.ID) && key.Algorithm == token.Method.Alg() {
			set.Keys = append(set.Keys, key.Key)
		}
	}
	if len(set.Keys) == 0 {
		return nil, errors.New("no key with this id and algorithm")
	}
	return set, nil
}

// tokenClaims are the contents of a service-account token (docs/wire.md 7.4).
type tokenClaims struct {
	jwt.RegisteredClaims
	Private privateClaims `json:"kubernetes.io,omitzero"`
	legacyClaims
}

// privateClaims are the service account of a token and its bound object.
type privateClaims struct {
	Namespace      string           `json:"namespace,omitempty"`
	ServiceAccount claimRef         `json:"serviceaccount"`
	Pod            *claimRef        `json:"pod,omitempty"`
	Secret         *claimRef        `json:"secret,omitempty"`
	Node           *claimRef        `json:"node,omitempty"`
	WarnAfter      *jwt.NumericDate `json:"warnafter,omitempty"`
}

type claimRef struct {
	Name string `json:"name"`
	UID  string `json:"uid,omitempty"`
}

func (c *tokenClaims) checkTime(now time.Time) error {
	switch {
	case c.ExpiresAt == nil:
		return errors.New("service account token has no expiry")
	case !now.Before(c.ExpiresAt.Time):
		return errors.New("service account token has expired")
	case c.NotBefore != nil && now.Add(nbfLeeway).Before(c.NotBefore.Time):
		return errors.New("service account token is not valid yet")
	case c.IssuedAt != nil && now.Add(nbfLeeway).Before(c.IssuedAt.Time):
		return errors.New("service account token is issued in the future")
	}
	return nil
}

// checkNames checks that a token names one service account.
func (c *tokenClaims) checkNames() error {
	p := &c.Private
	if p.Namespace == "" || p.ServiceAccount.Name == "" || p.ServiceAccount.UID == "" {
		return errors.New("service account token names no service account")
	}
	if c.Subject != serviceaccount.MakeUsername(p.Namespace, p.ServiceAccount.Name) {
		return fmt.Errorf("service account token is of %s/%s, but its subject is %q", p.Namespace, p.ServiceAccount.Name, c.Subject)
	}
	return nil
}

// recentlyIssued is how long after its issue a token may name an account that is newer than what is known
// of it.
const recentlyIssued = time.Minute

// checkLive checks that the service account and the bound object exist. recent: the token was issued
// within recentlyIssued.
func (s *ServiceAccountTokens) checkLive(ctx context.Context, p *privateClaims, recent bool) error {
	if s.cfg.Lookup != nil {
		claimed := ""
		if recent {
			claimed = p.ServiceAccount.UID
		}
		uid, found, err := s.cfg.Lookup(ctx, p.Namespace, p.ServiceAccount.Name, claimed)
		switch {
		case err != nil:
			return fmt.Errorf("look up service account: %w", err)
		case !found:
			return fmt.Errorf("serviceaccounts %q not found", p.ServiceAccount.Name)
		case uid != p.ServiceAccount.UID:
			return fmt.Errorf("service account UID (%s) does not match claim (%s)", uid, p.ServiceAccount.UID)
		}
	}
	kind, namespace, ref := p.bound()
	if ref == nil {
		return nil
	}
	if s.cfg.Bound == nil {
		return fmt.Errorf("service account token is bound to a %s, which this server cannot look up", kind)
	}
	uid, found, err := s.cfg.Bound(ctx, kind, namespace, ref.Name)
	switch {
	case err != nil:
		return fmt.Errorf("look up %s that the service account token is bound to: %w", kind, err)
	case !found:
		return errInvalidated
	case uid != ref.UID:
		kind = strings.ToLower(kind)
		return fmt.Errorf("%s UID (%s) does not match service account %s ref claim (%s)", kind, uid, kind, ref.UID)
	}
	return nil
}

// objects returns what the validity of the token depends on.
func (p *privateClaims) objects() []Object {
	out := []Object{{"ServiceAccount", p.Namespace, p.ServiceAccount.Name}}
	if kind, namespace, ref := p.bound(); ref != nil {
		out = append(out, Object{kind, namespace, ref.Name})
	}
	return out
}

// errInvalidated reports a token of a deleted service account or bound object.
var errInvalidated = errors.New("service account token has been invalidated")

// bound returns the object that the token is bound to: its deletion invalidates the token. nil:
// none. The node beside a pod is information only.
func (p *privateClaims) bound() (kind, namespace string, ref *claimRef) {
	switch {
	case p.Secret != nil:
		return "Secret", p.Namespace, p.Secret
	case p.Pod != nil:
		return "Pod", p.Namespace, p.Pod
	case p.Node != nil:
		return "Node", "", p.Node
	}
	return "", "", nil
}

// user returns the user of the service account (docs/wire.md 7.4).
func (c *tokenClaims) user() *resource.User {
	p := &c.Private
	u := &resource.User{
		Name:   serviceaccount.MakeUsername(p.Namespace, p.ServiceAccount.Name),
		UID:    p.ServiceAccount.UID,
		Groups: serviceaccount.MakeGroupNames(p.Namespace),
		Extra:  map[string][]string{},
	}
	if c.ID != "" {
		u.Extra[user.CredentialIDKey] = []string{"JTI=" + c.ID}
	}
	if p.Pod != nil && p.Pod.Name != "" && p.Pod.UID != "" {
		u.Extra[serviceaccount.PodNameKey], u.Extra[serviceaccount.PodUIDKey] = []string{p.Pod.Name}, []string{p.Pod.UID}
	}
	if p.Node != nil && p.Node.Name != "" {
		u.Extra[serviceaccount.NodeNameKey] = []string{p.Node.Name}
		if p.Node.UID != "" { // the node of a pod may not exist yet
			u.Extra[serviceaccount.NodeUIDKey] = []string{p.Node.UID}
		}
	}
	return WithAuthenticated(u)
}

// intersect returns the wanted audiences that the token has, in wanted's order.
func intersect(wanted, have []string) []string {
	var both []string
	for _, audience := range wanted {
		if slices.Contains(have, audience) {
			both = append(both, audience)
		}
	}
	return both
}
