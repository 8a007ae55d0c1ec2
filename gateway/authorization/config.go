package authorization

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	apiserver "k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/apis/apiserver/load"
	"k8s.io/apiserver/pkg/apis/apiserver/validation"
	authorizationcel "k8s.io/apiserver/pkg/authorization/cel"
)

// The types of authorizers beside apiserver.TypeWebhook.
const (
	typeRBAC        apiserver.AuthorizerType = "RBAC"
	typeNode        apiserver.AuthorizerType = "Node"
	typeAlwaysAllow apiserver.AuthorizerType = "AlwaysAllow"
	typeAlwaysDeny  apiserver.AuthorizerType = "AlwaysDeny"
	typeABAC        apiserver.AuthorizerType = "ABAC"
)

// types are those that a chain may have.
var types = []string{string(typeAlwaysAllow), string(typeAlwaysDeny), string(apiserver.TypeWebhook), string(typeRBAC), string(typeNode)}

// Config is the configuration of the chain, by the flags of kube-apiserver.
type Config struct {
	// ConfigFile is an AuthorizationConfiguration, read again when it changes. If it is set, the
	// fields below are not used.
	ConfigFile string
	// Modes are the types of the authorizers, in order. Default RBAC.
	Modes []string
	// WebhookConfigFile is the kubeconfig of the webhook of the mode Webhook, WebhookVersion that of
	// its SubjectAccessReviews (default v1beta1), and the TTLs are how long its decisions are
	// kept; 0: they are not.
	WebhookConfigFile, WebhookVersion                      string
	WebhookCacheAuthorizedTTL, WebhookCacheUnauthorizedTTL time.Duration
}

// Check returns an error if the configuration is wrong, without using anything of a gateway.
func (c *Config) Check() error {
	compiler := authorizationcel.NewDefaultCompiler()
	cfg, _, err := c.load(compiler)
	if err != nil {
		return err
	}
	for i := range cfg.Authorizers {
		if cfg.Authorizers[i].Type != apiserver.TypeWebhook {
			continue
		}
		if _, err := newWebhook(&cfg.Authorizers[i], compiler, nil); err != nil {
			return err
		}
	}
	return nil
}

// AllowsAll reports whether an authorizer allows everything.
func (c *Config) AllowsAll() (bool, error) { return c.has(typeAlwaysAllow) }

// AllowsNodes reports whether an authorizer is that of kubelets.
func (c *Config) AllowsNodes() (bool, error) { return c.has(typeNode) }

// has reports whether an authorizer is of a type.
func (c *Config) has(kind apiserver.AuthorizerType) (bool, error) {
	cfg, _, err := c.load(authorizationcel.NewDefaultCompiler())
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(cfg.Authorizers, func(a apiserver.AuthorizerConfiguration) bool { return a.Type == kind }), nil
}

// load returns the configuration of the file, with its content, or that of the other fields.
func (c *Config) load(compiler authorizationcel.Compiler) (*apiserver.AuthorizationConfiguration, []byte, error) {
	if c.ConfigFile == "" {
		cfg, err := c.ofModes()
		return cfg, nil, err
	}
	data, err := os.ReadFile(c.ConfigFile)
	if err != nil {
		return nil, nil, fmt.Errorf("--authorization-config: %w", err)
	}
	cfg, err := parse(data, compiler)
	if err != nil {
		return nil, nil, fmt.Errorf("--authorization-config=%s: %w", c.ConfigFile, err)
	}
	return cfg, data, nil
}

var errABAC = errors.New("ABAC is not supported: its file is read only at start; use RBAC or a webhook")

// parse returns the configuration of a file, which is valid for kube-apiserver.
func parse(data []byte, compiler authorizationcel.Compiler) (*apiserver.AuthorizationConfiguration, error) {
	cfg, err := load.LoadFromData(data)
	if err != nil {
		return nil, err
	}
	for _, c := range cfg.Authorizers {
		switch {
		case c.Type == typeABAC:
			return nil, errABAC
		case c.Webhook != nil && c.Webhook.ConnectionInfo.Type == apiserver.AuthorizationWebhookConnectionInfoTypeInCluster:
			return nil, fmt.Errorf("authorizer %q: connectionInfo.type %s is for servers in pods: use KubeConfigFile", c.Name, c.Webhook.ConnectionInfo.Type)
		}
	}
	if errs := validation.ValidateAuthorizationConfiguration(compiler, nil, cfg, sets.New(types...), sets.New(string(apiserver.TypeWebhook))); len(errs) > 0 {
		return nil, errs.ToAggregate()
	}
	for _, c := range cfg.Authorizers {
		if want := strings.ToLower(string(c.Type)); c.Type != apiserver.TypeWebhook && c.Name != want {
			return nil, fmt.Errorf("expected name %s for authorizer %s instead of %s", want, c.Type, c.Name)
		}
	}
	return cfg, nil
}

// webhookTimeout bounds a call of the webhook of the mode Webhook, as upstream.
const webhookTimeout = 30 * time.Second

// ofModes returns the configuration of the modes.
func (c *Config) ofModes() (*apiserver.AuthorizationConfiguration, error) {
	modes := c.Modes
	if len(modes) == 0 {
		modes = []string{string(typeRBAC)}
	}
	cfg := &apiserver.AuthorizationConfiguration{}
	for i, mode := range modes {
		next := apiserver.AuthorizerConfiguration{Type: apiserver.AuthorizerType(mode), Name: strings.ToLower(mode)}
		switch {
		case next.Type == typeABAC:
			return nil, fmt.Errorf("--authorization-mode: %w", errABAC)
		case !slices.Contains(types, mode):
			return nil, fmt.Errorf("--authorization-mode: %q is not a valid mode; the modes are %s", mode, strings.Join(types, ", "))
		case slices.Contains(modes[:i], mode):
			return nil, fmt.Errorf("--authorization-mode: %s is given twice", mode)
		case next.Type == apiserver.TypeWebhook:
			if c.WebhookConfigFile == "" {
				return nil, errors.New("--authorization-mode: Webhook needs --authorization-webhook-config-file")
			}
			next.Name, next.Webhook = "default", c.webhook()
		}
		cfg.Authorizers = append(cfg.Authorizers, next)
	}
	return cfg, nil
}

// webhook returns the configuration of the webhook of the mode Webhook.
func (c *Config) webhook() *apiserver.WebhookConfiguration {
	return &apiserver.WebhookConfiguration{
		AuthorizedTTL: metav1.Duration{Duration: c.WebhookCacheAuthorizedTTL}, CacheAuthorizedRequests: c.WebhookCacheAuthorizedTTL != 0,
		UnauthorizedTTL: metav1.Duration{Duration: c.WebhookCacheUnauthorizedTTL}, CacheUnauthorizedRequests: c.WebhookCacheUnauthorizedTTL != 0,
		Timeout: metav1.Duration{Duration: webhookTimeout}, FailurePolicy: apiserver.FailurePolicyNoOpinion, SubjectAccessReviewVersion: c.WebhookVersion,
		ConnectionInfo: apiserver.WebhookConnectionInfo{Type: apiserver.AuthorizationWebhookConnectionInfoTypeKubeConfigFile, KubeConfigFile: &c.WebhookConfigFile},
	}
}
