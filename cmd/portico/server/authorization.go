package server

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"portico/gateway/authorization"
)

const (
	flagModes      = "authorization-mode"
	prefixWebhooks = "authorization-webhook-"
)

// AddAuthorization adds the flags of the gateway's authorizers, which have kube-apiserver's names.
func AddAuthorization(fs *pflag.FlagSet, cfg *authorization.Config) {
	fs.StringSliceVar(&cfg.Modes, flagModes, []string{"RBAC"}, "comma-separated `types` of authorizers, in order: RBAC, Node, Webhook, AlwaysAllow, AlwaysDeny")
	fs.StringVar(&cfg.ConfigFile, "authorization-config", "", "AuthorizationConfiguration `file`, as for kube-apiserver, instead of --authorization-mode and --authorization-webhook-*; read again when it changes (default: none)")
	fs.StringVar(&cfg.WebhookConfigFile, prefixWebhooks+"config-file", "", "kubeconfig `file` of the webhook of the mode Webhook")
	fs.StringVar(&cfg.WebhookVersion, prefixWebhooks+"version", "v1beta1", "`version` of the SubjectAccessReviews for the webhook: v1 or v1beta1")
	fs.DurationVar(&cfg.WebhookCacheAuthorizedTTL, prefixWebhooks+"cache-authorized-ttl", 5*time.Minute, "`time` to keep what the webhook allows")
	fs.DurationVar(&cfg.WebhookCacheUnauthorizedTTL, prefixWebhooks+"cache-unauthorized-ttl", 30*time.Second, "`time` to keep what the webhook does not allow")
}

// checkAuthorization refuses flags that would have no effect, and configurations that are wrong.
func checkAuthorization(fs *pflag.FlagSet, cfg *authorization.Config) error {
	var given []string
	fs.Visit(func(f *pflag.Flag) {
		if f.Name == flagModes || strings.HasPrefix(f.Name, prefixWebhooks) {
			given = append(given, f.Name)
		}
	})
	webhooks := slices.ContainsFunc(given, func(name string) bool { return name != flagModes })
	switch {
	case cfg.ConfigFile != "" && len(given) > 0:
		return fmt.Errorf("--%s has no effect beside --authorization-config: say it in the file", given[0])
	case cfg.ConfigFile == "" && len(cfg.Modes) == 0:
		return errors.New("--authorization-mode needs at least one mode, as in --authorization-mode=Node,RBAC")
	case webhooks && !slices.Contains(cfg.Modes, "Webhook"):
		return fmt.Errorf("--%s without --authorization-mode=Webhook: no webhook is called", given[len(given)-1])
	}
	all, err := cfg.AllowsAll()
	if anonymous := fs.Lookup("anonymous-auth"); err == nil && all && anonymous.Changed && anonymous.Value.String() == "true" {
		err = errors.New("--anonymous-auth is not allowed with the AlwaysAllow authorizer: use a different authorizer, or leave it out")
	}
	return err
}
