package authentication

import (
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
)

// A configuration that could not work is refused at start with kube-apiserver's message.
func TestInvalidConfigurations(t *testing.T) {
	t.Parallel()
	const (
		issuer   = "{issuer: {url: https://a.example, audiences: [x]}, claimMappings: {username: {claim: sub, prefix: ''}}}"
		mappings = "claimMappings: {username: {claim: sub, prefix: ''}}"
	)
	of := func(jwt string) string {
		return "kind: AuthenticationConfiguration\napiVersion: apiserver.config.k8s.io/v1\njwt: [" + jwt + "]\n"
	}
	fields := func(issuer, more string) string { return of("{issuer: {" + issuer + "}, " + more + "}") }
	const url = "url: https://a.example, audiences: [x]"
	username := func(u string) string { return fields(url, "claimMappings: {username: {"+u+"}}") }
	extra := func(key, value string) string {
		return fields(url, "claimMappings: {username: {claim: sub, prefix: ''}, extra: [{key: '"+key+"', valueExpression: '"+value+"'}]}")
	}
	for _, tc := range []struct{ text, want string }{
		{"", "empty config data"},
		{"kind: Other\napiVersion: apiserver.config.k8s.io/v1\n", `no kind "Other" is registered`},
		{"kind: AuthorizationConfiguration\napiVersion: apiserver.config.k8s.io/v1\n", "expected AuthenticationConfiguration"},
		{"kind: AuthenticationConfiguration\napiVersion: apiserver.config.k8s.io/v9\n", "v9"},
		{of(issuer) + "jwts: []\n", `unknown field "jwts"`},
		{of(issuer) + "jwt: []\n", "jwt"},
		{of(issuer + ", " + issuer), `jwt[1].issuer.url: Duplicate value: "https://a.example"`},
		{of("{issuer: {" + url + ", discoveryURL: https://d.example}, " + mappings + "}, {issuer: {url: https://b.example, audiences: [x], discoveryURL: https://d.example}, " + mappings + "}"), "jwt[1].issuer.discoveryURL: Duplicate value"},
		{fields("audiences: [x]", mappings), "jwt[0].issuer.url: Required value"},
		{fields("url: http://a.example, audiences: [x]", mappings), "URL scheme must be https"},
		{fields("url: 'https://u:p@a.example', audiences: [x]", mappings), "URL must not contain a username or password"},
		{fields("url: 'https://a.example?q=1', audiences: [x]", mappings), "URL must not contain a query"},
		{fields("url: 'https://a.example#f', audiences: [x]", mappings), "URL must not contain a fragment"},
		{fields("url: https://accounts.example, audiences: [x]", mappings), "URL must not overlap with disallowed issuers: [https://accounts.example]"},
		{fields(url+", discoveryURL: https://a.example/", mappings), "discoveryURL must be different from URL"},
		{fields("url: https://a.example", mappings), "jwt[0].issuer.audiences: Required value"},
		{fields("url: https://a.example, audiences: ['']", mappings), "jwt[0].issuer.audiences[0]: Required value"},
		{fields("url: https://a.example, audiences: [x, x], audienceMatchPolicy: MatchAny", mappings), "jwt[0].issuer.audiences[1]: Duplicate value"},
		{fields("url: https://a.example, audiences: [x, z]", mappings), "audienceMatchPolicy must be MatchAny for multiple audiences"},
		{fields(url+", certificateAuthority: none", mappings), "jwt[0].issuer.certificateAuthority: Invalid value"},
		{fields(url+", egressSelectorType: cluster", mappings), `jwt[0].issuer.egressSelectorType: Invalid value: "cluster": --egress-selector-config-file names no proxy for it`},
		{username(""), "jwt[0].claimMappings.username: Required value: claim or expression is required"},
		{username("claim: sub, expression: claims.sub"), "claim and expression can't both be set"},
		{username("claim: sub"), "jwt[0].claimMappings.username.prefix: Required value"},
		{username("expression: claims.sub, prefix: x"), "prefix"},
		{username("expression: foo.bar"), "compilation failed"},
		{username("expression: claims.email"), "claims.email_verified must be used"},
		{extra("", "claims.x"), "jwt[0].claimMappings.extra[0].key: Required value"},
		{extra("team", "claims.x"), "must be a domain-prefixed path"},
		{extra("example.org/Team", "claims.x"), "must be lowercase"},
		{extra("a.kubernetes.io/team", "claims.x"), "are reserved for Kubernetes use"},
		{extra("example.org/team", ""), "valueExpression: Required value"},
		{fields(url, mappings+", claimValidationRules: [{}]"), "jwt[0].claimValidationRules[0]: Required value: claim or expression is required"},
		{fields(url, mappings+", claimValidationRules: [{expression: claims.sub, requiredValue: x}]"), "may not be specified when expression is set"},
		{fields(url, mappings+", claimValidationRules: [{expression: '1 + 1'}]"), "must evaluate to bool"},
		{fields(url, mappings+", userValidationRules: [{expression: ''}]"), "jwt[0].userValidationRules[0].expression: Required value"},
		{fields(url, mappings+", userValidationRules: [{expression: user.username}]"), "must evaluate to bool"},
		{of("") + "anonymous: {enabled: false, conditions: [{path: /livez}]}\n", "enabled should be set to true when conditions are defined"},
		{of("") + "anonymous: {enabled: true}\n", "--anonymous-auth flag cannot be set"},
	} {
		path := filepath.Join(t.TempDir(), "authentication.yaml")
		write(t, path, tc.text)
		cfg := Config{ConfigFile: path, ServiceAccounts: ServiceAccounts{Issuers: []string{"https://accounts.example"}}, AnonymousAuth: true, AnonymousSet: true}
		_, err := New(cfg, Dependencies{Logger: slog.New(slog.DiscardHandler)})
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s\n%v, want an error with %q", tc.text, err, tc.want)
		}
	}
}

// Every version of the file that kube-apiserver reads is read.
func TestVersionsOfTheConfiguration(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"v1", "v1beta1", "v1alpha1"} {
		if _, err := decode([]byte("kind: AuthenticationConfiguration\napiVersion: apiserver.config.k8s.io/" + version + "\n")); err != nil {
			t.Errorf("%s: %v", version, err)
		}
	}
}
