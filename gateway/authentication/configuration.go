package authentication

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/apis/apiserver/install"
	"k8s.io/apiserver/pkg/apis/apiserver/validation"
	"k8s.io/apiserver/pkg/authentication/cel"
	"k8s.io/apiserver/plugin/pkg/authenticator/token/oidc"

	"portico/resource/egress"
)

// OIDC is one issuer of tokens by flags, with kube-apiserver's names and rules.
type OIDC struct {
	// IssuerURL and ClientID are the issuer and the audience of tokens. "": no tokens are accepted.
	IssuerURL, ClientID string
	// CAFile has the CAs of the provider's certificate; "": those of the system. It is read once.
	CAFile string
	// UsernameClaim is the claim of the user's name. Before it stands UsernamePrefix; "" is the
	// issuer and "#" unless the claim is email, and "-" nothing.
	UsernameClaim, UsernamePrefix string
	// GroupsClaim is the claim of groups, "" for none, and GroupsPrefix stands before each.
	GroupsClaim, GroupsPrefix string
	// SigningAlgs are the accepted algorithms of signatures.
	SigningAlgs []string
	// RequiredClaims are values that claims of a token must have.
	RequiredClaims map[string]string
}

// maxConfiguration bounds the file of the configuration, in bytes.
const maxConfiguration = 4 << 20

// codecs read an AuthenticationConfiguration in all its versions; unknown and duplicate fields
// are errors.
var codecs = func() serializer.CodecFactory {
	scheme := runtime.NewScheme()
	install.Install(scheme)
	return serializer.NewCodecFactory(scheme, serializer.EnableStrict)
}()

// configuration returns the valid configuration of the file or of the flags, which is empty without
// both, and the text of the file.
func (cfg *Config) configuration(accounts []string) (c *apiserver.AuthenticationConfiguration, text string, err error) {
	switch {
	case cfg.ConfigFile != "":
		if c, text, err = read(cfg.ConfigFile); err != nil {
			return nil, "", fmt.Errorf("failed to load authentication configuration from file %q: %w", cfg.ConfigFile, err)
		}
	case cfg.OIDC.IssuerURL != "":
		if c, err = cfg.OIDC.configuration(); err != nil {
			return nil, "", err
		}
	default:
		return &apiserver.AuthenticationConfiguration{}, "", nil
	}
	if err := validate(c, accounts, cfg.Egress); err != nil {
		err = fmt.Errorf("invalid authentication configuration: %w", err)
		if cfg.ConfigFile != "" {
			err = fmt.Errorf("--authentication-config=%s: %w", cfg.ConfigFile, err)
		}
		return nil, "", err
	}
	return c, text, nil
}

// read returns the configuration in a file and its text.
func read(path string) (*apiserver.AuthenticationConfiguration, string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, "", err
	}
	if info.Size() > maxConfiguration {
		return nil, "", fmt.Errorf("it has %d bytes, and at most %d are read", info.Size(), maxConfiguration)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, "", err
	}
	configuration, err := decode(data)
	return configuration, string(data), err
}

func decode(data []byte) (*apiserver.AuthenticationConfiguration, error) {
	if len(data) == 0 {
		return nil, errors.New("empty config data")
	}
	o, err := runtime.Decode(codecs.UniversalDecoder(), data)
	if err != nil {
		return nil, err
	}
	configuration, ok := o.(*apiserver.AuthenticationConfiguration)
	if !ok {
		return nil, fmt.Errorf("expected AuthenticationConfiguration, got %T", o)
	}
	return configuration, nil
}

// validate checks a configuration by kube-apiserver's rules. Issuers of service-account tokens
// cannot be issuers of others, and an issuer needs the egress that it names.
func validate(c *apiserver.AuthenticationConfiguration, accounts []string, via egress.Selector) error {
	errs := validation.ValidateAuthenticationConfiguration(cel.NewDefaultCompiler(), c, accounts)
	for i, jwt := range c.JWT {
		if kind := jwt.Issuer.EgressSelectorType; kind != "" && dialer(kind, via) == nil {
			errs = append(errs, field.Invalid(field.NewPath("jwt").Index(i).Child("issuer", "egressSelectorType"), kind,
				"--egress-selector-config-file names no proxy for it: add it there, or remove the field"))
		}
	}
	return errs.ToAggregate()
}

// configuration returns the issuer of the flags as a configuration.
func (o *OIDC) configuration() (*apiserver.AuthenticationConfiguration, error) {
	for _, algorithm := range o.SigningAlgs {
		if known := oidc.AllValidSigningAlgorithms(); !slices.Contains(known, algorithm) {
			return nil, fmt.Errorf("--oidc-signing-algs: unsupported signing alg: %q; take some of %q", algorithm, known)
		}
	}
	prefix := o.UsernamePrefix
	switch {
	case prefix == "-":
		prefix = ""
	case prefix == "" && o.UsernameClaim != "email":
		prefix = o.IssuerURL + "#"
	}
	jwt := apiserver.JWTAuthenticator{
		Issuer:        apiserver.Issuer{URL: o.IssuerURL, Audiences: []string{o.ClientID}},
		ClaimMappings: apiserver.ClaimMappings{Username: apiserver.PrefixedClaimOrExpression{Prefix: &prefix, Claim: o.UsernameClaim}},
	}
	if o.GroupsClaim != "" {
		jwt.ClaimMappings.Groups = apiserver.PrefixedClaimOrExpression{Prefix: &o.GroupsPrefix, Claim: o.GroupsClaim}
	}
	if o.CAFile != "" {
		ca, err := os.ReadFile(o.CAFile)
		if err != nil {
			return nil, fmt.Errorf("--oidc-ca-file: %w", err)
		}
		jwt.Issuer.CertificateAuthority = string(ca)
	}
	for claim, value := range o.RequiredClaims {
		jwt.ClaimValidationRules = append(jwt.ClaimValidationRules, apiserver.ClaimValidationRule{Claim: claim, RequiredValue: value})
	}
	return &apiserver.AuthenticationConfiguration{JWT: []apiserver.JWTAuthenticator{jwt}}, nil
}
