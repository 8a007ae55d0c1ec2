package authn

import (
	"github.com/golang-jwt/jwt/v5"
)

// Names that service accounts go by as users.
const (
	serviceAccountPrefix       = "system:serviceaccount:"
	groupServiceAccounts       = "system:serviceaccounts"
	groupServiceAccountsPrefix = "system:serviceaccounts:"
)

// tokenClaims are the contents of a service-account token (docs/wire.md 7.4).
type tokenClaims struct {
	jwt.RegisteredClaims
	Private privateClaims `json:"kubernetes.io"`
}

// privateClaims are the service account of a token and the object that it is bound
// to.
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

// ServiceAccountUser returns the name that a service account has as a user.
func ServiceAccountUser(namespace, name string) string {
	return serviceAccountPrefix + namespace + ":" + name
}

// ServiceAccountGroups returns the groups of every service account of a
// namespace, without system:authenticated.
func ServiceAccountGroups(namespace string) []string {
	return []string{groupServiceAccounts, groupServiceAccountsPrefix + namespace}
}
