package authn

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
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

// legacy reports whether a token is one of a Secret. issuer is that of other tokens; if it is
// the same, the claims decide.
func (c *tokenClaims) legacy(issuer string) bool {
	return c.Issuer == legacyIssuer && (issuer != legacyIssuer || c.SecretName != "")
}

// verifyLegacy checks a token of a Secret. Its signature has been verified.
func (s *ServiceAccountTokens) verifyLegacy(ctx context.Context, token string, claims *tokenClaims, wanted []string, now time.Time) tokenResult {
	fail := func(err error) tokenResult { return tokenResult{err: err} }
	p := &claims.legacyClaims
	switch {
	case p.Namespace == "" || p.SecretName == "" || p.AccountName == "" || p.AccountUID == "":
		return fail(errors.New("service account token names no secret or no service account"))
	case claims.Subject != serviceaccount.MakeUsername(p.Namespace, p.AccountName):
		return fail(fmt.Errorf("service account token is of %s/%s, but its subject is %q", p.Namespace, p.AccountName, claims.Subject))
	case claims.ExpiresAt != nil && !now.Before(claims.ExpiresAt.Time):
		return fail(errors.New("service account token has expired"))
	case s.cfg.Secret == nil:
		return fail(errors.New("service account token is of a secret, which this server cannot look up"))
	}
	audiences := []string(claims.Audience)
	if len(audiences) == 0 { // it is for this server
		audiences = s.cfg.Audiences
	}
	matched := intersect(wanted, audiences)
	if len(matched) == 0 {
		return fail(fmt.Errorf("token audiences %q is invalid for the target audiences %q", audiences, wanted))
	}
	secret, err := s.cfg.Secret(ctx, p.Namespace, p.SecretName)
	switch {
	case err != nil:
		return fail(fmt.Errorf("look up secret of service account token: %w", err))
	case secret == nil:
		return fail(errInvalidated)
	case subtle.ConstantTimeCompare(secret.Token, []byte(token)) == 0:
		return fail(errors.New("service account token does not match that of its secret"))
	}
	claims.Private = privateClaims{Namespace: p.Namespace, ServiceAccount: claimRef{Name: p.AccountName, UID: p.AccountUID}}
	if err := s.checkLive(ctx, &claims.Private); err != nil {
		return fail(err)
	}
	if secret.Used != nil {
		secret.Used(ctx)
	}
	if secret.InvalidSince != "" {
		return fail(fmt.Errorf("the token in secret %s/%s for service account %s/%s has been marked invalid. Use tokens from the TokenRequest API or manually created secret-based tokens, "+
			"or remove the '%s' label from the secret to temporarily allow use of this token", p.Namespace, p.SecretName, p.Namespace, p.AccountName, LabelInvalidSince))
	}
	return tokenResult{user: claims.user(), audiences: matched, expires: now.Add(validTTL)}
}
