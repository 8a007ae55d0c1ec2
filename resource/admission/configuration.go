package admission

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/config"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/apis/apiserver/install"
	webhookutil "k8s.io/apiserver/pkg/util/webhook"
)

// ReadConfiguration reads an AdmissionConfiguration of apiserver.config.k8s.io. It returns the configurations of plugins
// by name, as they stand in the file or in the files that it names. Unknown fields are errors, and what check refuses. ""
// is no file.
func ReadConfiguration(file string, check func(*apiserver.AdmissionPluginConfiguration) error) (map[string][]byte, error) {
	if file == "" {
		return nil, nil
	}
	fail := func(err error) (map[string][]byte, error) {
		return nil, fmt.Errorf("--admission-control-config-file=%s: %w", file, err)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		var path *os.PathError
		if errors.As(err, &path) {
			err = path.Err
		}
		return fail(err)
	}
	scheme := runtime.NewScheme()
	install.Install(scheme)
	decoded, err := runtime.Decode(serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDecoder(), data)
	if err != nil {
		return fail(err)
	}
	cfg, ok := decoded.(*apiserver.AdmissionConfiguration)
	if !ok {
		return fail(fmt.Errorf("expected an AdmissionConfiguration, found a %s", decoded.GetObjectKind().GroupVersionKind().Kind))
	}
	out := map[string][]byte{}
	for i := range cfg.Plugins {
		p := &cfg.Plugins[i]
		err := check(p)
		if err == nil {
			err = addConfiguration(out, p, filepath.Dir(file))
		}
		if err != nil {
			return fail(fmt.Errorf("plugins[%d]: %w", i, err))
		}
	}
	return out, nil
}

// addConfiguration adds the configuration of one plugin. Relative paths are below the folder dir.
func addConfiguration(to map[string][]byte, p *apiserver.AdmissionPluginConfiguration, dir string) error {
	switch {
	case to[p.Name] != nil:
		return fmt.Errorf("plugin %s is configured twice", p.Name)
	case p.Configuration != nil:
		to[p.Name] = p.Configuration.Raw
	case p.Path != "":
		path := p.Path
		if !filepath.IsAbs(path) {
			path = filepath.Join(dir, path)
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return fmt.Errorf("plugin %s: %w", p.Name, err)
		}
		to[p.Name] = data
	}
	return nil
}

// WebhookCredentials finds the credentials for a webhook by its host, as kube-apiserver, in the kubeconfig that a
// WebhookAdmissionConfiguration names. It reads the kubeconfig. nil is no configuration, and no webhook gets any.
func WebhookCredentials(configuration []byte) (webhookutil.AuthenticationInfoResolver, error) {
	cfg, err := config.LoadConfig(readerOf(configuration))
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	resolver, err := webhookutil.NewDefaultAuthenticationInfoResolver(cfg.KubeConfigFile)
	if err != nil {
		return nil, fmt.Errorf("configuration: kubeConfigFile: %w", err)
	}
	return resolver, nil
}

// CheckConfiguration returns what is wrong with the credentials for webhooks in an AdmissionConfiguration.
func CheckConfiguration(file string) error {
	_, _, err := readConfiguration(file)
	return err
}

// readConfiguration reads the configurations of plugins, and the credentials for webhooks that they name, by plugin.
func readConfiguration(file string) (configured map[string][]byte, credentials map[string]webhookutil.AuthenticationInfoResolver, err error) {
	// The core server checks the other plugins, which it has.
	configured, err = ReadConfiguration(file, func(*apiserver.AdmissionPluginConfiguration) error { return nil })
	if err != nil {
		return nil, nil, err
	}
	credentials = map[string]webhookutil.AuthenticationInfoResolver{}
	for _, plugin := range []string{PluginMutatingWebhooks, PluginValidatingWebhooks} {
		if credentials[plugin], err = WebhookCredentials(configured[plugin]); err != nil {
			return nil, nil, fmt.Errorf("--admission-control-config-file=%s: plugin %s: %w", file, plugin, err)
		}
	}
	return configured, credentials, nil
}
