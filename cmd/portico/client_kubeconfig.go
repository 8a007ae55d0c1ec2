package main

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// open reads the configuration. Nothing is sent yet.
func (f *clientFlags) open() (*gatewayClient, error) {
	if f.timeout < 0 {
		return nil, errors.New("--request-timeout must not be negative (0 means no limit)")
	}
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = f.kubeconfig
	raw, err := rules.Load()
	if err != nil {
		return nil, unreadKubeconfig(rules, err)
	}
	overrides := &clientcmd.ConfigOverrides{CurrentContext: f.context}
	cfg, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides).ClientConfig()
	switch {
	case clientcmd.IsEmptyConfig(err):
		return nil, errors.New(`read kubeconfig: none found; name one with --kubeconfig or $KUBECONFIG (portico up prints the path of its own)`)
	case err != nil:
		return nil, fmt.Errorf("read kubeconfig: %w%s", err, otherContexts(raw, f.context))
	}
	cfg.UserAgent = userAgent
	transport, err := rest.TransportFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	host, _, err := rest.DefaultServerUrlFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	return &gatewayClient{
		host: strings.TrimSuffix(host.String(), "/"), timeout: f.timeout, transport: transport, who: credentialsOf(raw, f.context),
	}, nil
}

// unreadKubeconfig is the error of files that cannot be read. It names the file, and
// leaves out Go types.
func unreadKubeconfig(rules *clientcmd.ClientConfigLoadingRules, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf(`read kubeconfig: %w; name another one with --kubeconfig or $KUBECONFIG (portico up prints the path of its own)`, err)
	}
	files := rules.GetLoadingPrecedence()
	if rules.ExplicitPath != "" {
		files = []string{rules.ExplicitPath}
	}
	for _, file := range files {
		data, readErr := os.ReadFile(file)
		if readErr != nil && !errors.Is(readErr, fs.ErrNotExist) {
			return fmt.Errorf("read kubeconfig: %w", readErr)
		}
		if _, loadErr := clientcmd.Load(data); readErr == nil && loadErr != nil {
			why := ""
			if text := loadErr.Error(); !strings.Contains(text, "Go value of type") && !strings.Contains(text, "Go struct") {
				why = ": " + oneLine(text)
			}
			return fmt.Errorf("read kubeconfig %s: not YAML or JSON of kind Config%s; name another one with --kubeconfig or $KUBECONFIG", file, why)
		}
	}
	return fmt.Errorf("read kubeconfig: %w", err)
}

// otherContexts names the contexts that exist, if name does not.
func otherContexts(raw *api.Config, name string) string {
	if _, there := raw.Contexts[name]; name == "" || there {
		return ""
	}
	names := slices.Sorted(maps.Keys(raw.Contexts))
	return "; contexts: " + orNone(someNames(names))
}

// credentials are the user of a kubeconfig, for messages.
type credentials struct {
	user, file string
	// notAfter is the end of the client certificate; zero: there is none.
	notAfter time.Time
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
		data, _ = os.ReadFile(info.ClientCertificate) // one that cannot be read is an error elsewhere
	}
	if block, _ := pem.Decode(data); block != nil {
		if cert, err := x509.ParseCertificate(block.Bytes); err == nil {
			c.notAfter = cert.NotAfter
		}
	}
	return c
}

// refused says why a gateway may refuse the credentials, and how to resolve it.
func (c *credentials) refused(host string) string {
	who := "the credentials in the kubeconfig"
	if c.user != "" && c.file != "" {
		who = fmt.Sprintf("user %q of %s", c.user, c.file)
	}
	if !c.notAfter.IsZero() && time.Now().After(c.notAfter) {
		return fmt.Sprintf("the client certificate of %s expired at %s; make another one with portico certs kubeconfig, or use the one that portico up writes at every start",
			who, c.notAfter.Local().Format(time.RFC3339))
	}
	return fmt.Sprintf("%s does not know %s; is it a kubeconfig of this gateway, and its certificate or token valid? --kubeconfig and --context choose others", host, who)
}
