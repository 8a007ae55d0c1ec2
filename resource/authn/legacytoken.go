package authn

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
)

// Tokens of Secrets of the type kubernetes.io/service-account-token. They do not expire: they
// are good as long as the Secret has them and the service account exists.

const (
	// legacyIssuer is the issuer of these tokens, whatever that of others is.
	legacyIssuer = "kubernetes/serviceaccount"
	// LabelLastUsed of a Secret is the day on which its token was used last, as DayFormat.
	LabelLastUsed = "kubernetes.io/legacy-token-last-used"
	// DayFormat is the format of days in labels of Secrets (UTC).
	DayFormat = "2006-01-02"
	// LabelInvalidSince marks a Secret with a token that is no longer accepted. Its value is a date.
	LabelInvalidSince = "kubernetes.io/legacy-token-invalid-since"
	// LegacyTokenTrackingConfigMap is a ConfigMap in kube-system. Its key LegacyTokenTrackingKey has the
	// day, as DayFormat, on which servers began to set LabelLastUsed.
	LegacyTokenTrackingConfigMap, LegacyTokenTrackingKey = "kube-apiserver-legacy-service-account-token-tracking", "since"
)

// legacyClaims are the contents of a token of a Secret, besides issuer and subject.
type legacyClaims struct {
	Namespace   string `json:"kubernetes.io/serviceaccount/namespace,omitempty"`
	SecretName  string `json:"kubernetes.io/serviceaccount/secret.name,omitempty"`
	AccountName string `json:"kubernetes.io/serviceaccount/service-account.name,omitempty"`
	AccountUID  string `json:"kubernetes.io/serviceaccount/service-account.uid,omitempty"`
}

// TokenSecret is what of a Secret decides about its token.
type TokenSecret struct {
	// Token is data.token.
	Token []byte
	// InvalidSince is the value of LabelInvalidSince.
	InvalidSince string
	// Listed reports whether a service account of the namespace lists the Secret, as it does if
	// the Secret was made with it; nil: none does.
	Listed func(ctx context.Context, account string) bool
	// Used is called when the token is accepted or refused by its label; nil: nothing is.
	Used func(ctx context.Context)
}

// SignLegacy makes the token of a Secret for a service account. It has no expiry.
func (s *Signer) SignLegacy(namespace, secret, account, uid string) (string, error) {
	if namespace == "" || secret == "" || account == "" || uid == "" {
		return "", errors.New("sign token: namespace, secret and service account are required")
	}
	return s.sign(tokenClaims{
		RegisteredClaims: jwt.RegisteredClaims{Issuer: legacyIssuer, Subject: serviceaccount.MakeUsername(namespace, account)},
		legacyClaims:     legacyClaims{Namespace: namespace, SecretName: secret, AccountName: account, AccountUID: uid},
	})
}

// legacy reports whether a token is one of a Secret. issuers are those of other tokens; if its own
// is among them, the claims decide.
func (c *tokenClaims) legacy(issuers []string) bool {
	return c.Issuer == legacyIssuer && (c.SecretName != "" || !slices.Contains(issuers, legacyIssuer))
}

// verifyLegacy checks a token of a Secret. Its signature has been verified.
func (s *ServiceAccountTokens) verifyLegacy(ctx context.Context, token string, claims *tokenClaims, wanted []string, now time.Time) tokenResult {
	if err := claims.checkLegacy(now); err != nil {
		return tokenResult{err: err}
	}
	audiences, notes := []string(claims.Audience), &Notes{}
	if len(audiences) == 0 { // it is for this server
		audiences = s.cfg.Audiences
		notes.annotate("authentication.k8s.io/legacy-token", claims.Subject)
		s.counts.legacy.Inc()
	}
	matched := intersect(wanted, audiences)
	if len(matched) == 0 {
		return tokenResult{err: fmt.Errorf("token audiences %q is invalid for the target audiences %q", audiences, wanted)}
	}
	p := &claims.legacyClaims
	claims.Private = privateClaims{Namespace: p.Namespace, ServiceAccount: claimRef{Name: p.AccountName, UID: p.AccountUID}}
	result := tokenResult{user: claims.user(), audiences: matched, notes: notes, expires: now.Add(validTTL)}
	if s.cfg.Unchecked {
		return result
	}
	result.lookup = s.cache.begin(append(claims.Private.objects(), Object{"Secret", p.Namespace, p.SecretName}))
	if result.err = s.checkLegacySecret(ctx, token, claims, notes); result.err != nil {
		result.user, result.audiences, result.notes = nil, nil, nil
	}
	return result
}

// checkLegacy checks the claims of a token of a Secret.
func (c *tokenClaims) checkLegacy(now time.Time) error {
	p := &c.legacyClaims
	for _, required := range []struct{ name, value string }{
		{"sub", c.Subject}, {"namespace", p.Namespace}, {"secretName", p.SecretName}, {"serviceAccountName", p.AccountName}, {"serviceAccountUID", p.AccountUID},
	} {
		if required.value == "" {
			return fmt.Errorf("%s claim is missing", required.name)
		}
	}
	switch {
	case c.Subject != serviceaccount.MakeUsername(p.Namespace, p.AccountName):
		return errors.New("sub claim is invalid")
	case c.ExpiresAt != nil && !now.Before(c.ExpiresAt.Time):
		return errors.New("service account token has expired")
	}
	return nil
}

// checkLegacySecret checks that the Secret has the token and that the service account exists.
func (s *ServiceAccountTokens) checkLegacySecret(ctx context.Context, token string, claims *tokenClaims, notes *Notes) error {
	p := &claims.legacyClaims
	if s.cfg.Secret == nil {
		return errors.New("service account token is of a secret, which this server cannot look up")
	}
	secret, err := s.cfg.Secret(ctx, p.Namespace, p.SecretName)
	switch {
	case err != nil:
		return fmt.Errorf("look up secret of service account token: %w", err)
	case secret == nil:
		//lint:ignore ST1005 kube-apiserver's text
		return errors.New("Token has been invalidated")
	case subtle.ConstantTimeCompare(secret.Token, []byte(token)) == 0:
		//lint:ignore ST1005 kube-apiserver's text
		return errors.New("Token does not match server's copy")
	}
	if err := s.checkLive(ctx, &claims.Private, false); err != nil {
		return err
	}
	if secret.Used != nil {
		secret.Used(ctx)
	}
	if secret.InvalidSince != "" {
		s.counts.invalidatedLegacy.Inc()
		return fmt.Errorf("the token in secret %s/%s for service account %s/%s has been marked invalid. Use tokens from the TokenRequest API or manually created secret-based tokens, "+
			"or remove the '%s' label from the secret to temporarily allow use of this token", p.Namespace, p.SecretName, p.Namespace, p.AccountName, LabelInvalidSince)
	}
	if secret.Listed != nil && secret.Listed(ctx, p.AccountName) {
		s.counts.automatic.Inc()
		notes.annotate("authentication.k8s.io/legacy-token-autogenerated-secret", p.SecretName)
		notes.Warnings = []string{"Use tokens from the TokenRequest API or manually created secret-based tokens instead of auto-generated secret-based tokens."}
		return nil
	}
	s.counts.manual.Inc()
	notes.annotate("authentication.k8s.io/legacy-token-manual-secret", p.SecretName)
	return nil
}
