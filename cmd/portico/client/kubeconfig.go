package client

import (
	"cmp"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/klog/v2"

	"portico/cmd/internal/datadir"
	"portico/cmd/portico/cli"
)

// Open reads the kubeconfig and returns a client, which has sent no request yet.
func (f *Flags) Open(warnings io.Writer) (*Client, error) {
	if f.timeout < 0 {
		return nil, errors.New("--request-timeout must not be negative (0 means no limit)")
	}
	// client-go logs some errors that it also returns.
	klog.SetSlogLogger(slog.New(slog.DiscardHandler))
	rules := f.rules()
	raw, err := rules.Load()
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig: %w; name another one with --kubeconfig or $KUBECONFIG (portico up prints the path of its own)", err)
	}
	overrides := &clientcmd.ConfigOverrides{CurrentContext: f.context}
	cfg, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides).ClientConfig()
	switch {
	case clientcmd.IsEmptyConfig(err):
		return nil, fmt.Errorf("read kubeconfig: no cluster in %s; name another one with --kubeconfig or $KUBECONFIG (portico up prints the path of its own)",
			cmp.Or(rules.ExplicitPath, strings.Join(rules.Precedence, ", ")))
	case err != nil:
		return nil, fmt.Errorf("read kubeconfig: %w%s", err, otherContexts(raw, f.context))
	}
	client, err := New(cfg, f.timeout, warnings)
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	client.user = credentialsOf(raw, f.context)
	return client, nil
}

// rules say where the kubeconfig is; see Flags.
func (f *Flags) rules() *clientcmd.ClientConfigLoadingRules {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = f.kubeconfig
	if f.kubeconfig != "" || os.Getenv(clientcmd.RecommendedConfigPathEnvVar) != "" {
		return rules
	}
	if dir, err := datadir.Default(); err == nil && datadir.Holder(dir) != 0 {
		if own := filepath.Join(dir, "kubeconfig"); fileExists(own) {
			rules.ExplicitPath = own
		}
	}
	return rules
}

func fileExists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// Found reports whether there is a kubeconfig.
func (f *Flags) Found() bool {
	raw, err := f.rules().Load()
	return err != nil || len(raw.Contexts) > 0
}

// otherContexts lists the contexts if name is none of them.
func otherContexts(raw *api.Config, name string) string {
	if _, there := raw.Contexts[name]; name == "" || there {
		return ""
	}
	names := slices.Sorted(maps.Keys(raw.Contexts))
	return "; contexts: " + cli.OrNone(cli.SomeNames(names))
}

// credentials describe the user of a kubeconfig in messages.
type credentials struct {
	user, file string
	notAfter   time.Time // of the client certificate; zero without one
}

func credentialsOf(raw *api.Config, context string) (c credentials) {
	if context == "" {
		context = raw.CurrentContext
	}
	if at := raw.Contexts[context]; at != nil {
		c.user = at.AuthInfo
	}
	info := raw.AuthInfos[c.user]
	if info == nil {
		return c
	}
	c.file = info.LocationOfOrigin
	data := info.ClientCertificateData
	if len(data) == 0 && info.ClientCertificate != "" {
		data, _ = os.ReadFile(info.ClientCertificate) // an error is reported when the client is made
	}
	if block, _ := pem.Decode(data); block != nil {
		if cert, err := x509.ParseCertificate(block.Bytes); err == nil {
			c.notAfter = cert.NotAfter
		}
	}
	return c
}

// refused returns why a gateway may have refused the credentials, and a remedy.
func (c *credentials) refused(host string) string {
	user := "the credentials in the kubeconfig"
	if c.user != "" && c.file != "" {
		user = fmt.Sprintf("user %q of %s", c.user, c.file)
	}
	if !c.notAfter.IsZero() && time.Now().After(c.notAfter) {
		return fmt.Sprintf("the client certificate of %s expired at %s; make another one with portico certs kubeconfig, or use the one that portico up writes at every start",
			user, c.notAfter.Local().Format(time.RFC3339))
	}
	return fmt.Sprintf("%s does not know %s; is it a kubeconfig of this gateway, and its certificate or token valid? --kubeconfig and --context choose others", host, user)
}
