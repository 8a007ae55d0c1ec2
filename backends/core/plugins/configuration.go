package plugins

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/apis/apiserver/install"
	"sigs.k8s.io/yaml"
)

// configurations are the configurations of plugins by name, as they stand in the file or in the
// files that it names.
type configurations map[string][]byte

// readConfigurations reads an AdmissionConfiguration of apiserver.config.k8s.io. Unknown fields,
// and plugins that do not exist or have no configuration, are errors. "" is none.
func readConfigurations(file string) (configurations, error) {
	if file == "" {
		return nil, nil
	}
	fail := func(err error) (configurations, error) {
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
	out := configurations{}
	for i := range cfg.Plugins {
		p := &cfg.Plugins[i]
		if err := out.add(p, filepath.Dir(file)); err != nil {
			return fail(fmt.Errorf("plugins[%d]: %w", i, err))
		}
	}
	return out, nil
}

// add adds the configuration of one plugin. Relative paths are below the folder dir.
func (c configurations) add(p *apiserver.AdmissionPluginConfiguration, dir string) error {
	table := all()
	at := slices.IndexFunc(table, func(r row) bool { return r.name == p.Name })
	switch {
	case at < 0:
		return fmt.Errorf("there is no plugin %q", p.Name)
	case table[at].make == nil:
		return fmt.Errorf("plugin %s: %s", p.Name, table[at].missing)
	case !table[at].configured && (p.Path != "" || p.Configuration != nil):
		return fmt.Errorf("plugin %s has no configuration", p.Name)
	case c[p.Name] != nil:
		return fmt.Errorf("plugin %s is configured twice", p.Name)
	case p.Configuration != nil:
		c[p.Name] = p.Configuration.Raw
	case p.Path != "":
		path := p.Path
		if !filepath.IsAbs(path) {
			path = filepath.Join(dir, path)
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return fmt.Errorf("plugin %s: %w", p.Name, err)
		}
		c[p.Name] = data
	}
	return nil
}

// decode decodes the configuration of a plugin; unknown fields are errors. A plugin without a
// configuration leaves into as it is.
func (c configurations) decode(plugin string, into any) error {
	data, ok := c[plugin]
	if !ok {
		return nil
	}
	if err := yaml.UnmarshalStrict(data, into); err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	return nil
}

// decodeKind is decode for a configuration of kind Configuration in a version. kind is that of
// into.
func (c configurations) decodeKind(plugin, apiVersion string, kind *metav1.TypeMeta, into any) error {
	if err := c.decode(plugin, into); err != nil {
		return err
	}
	if _, ok := c[plugin]; ok && (kind.APIVersion != apiVersion || kind.Kind != "Configuration") {
		return fmt.Errorf("configuration: expected kind Configuration of %s, found %q of %q", apiVersion, kind.Kind, kind.APIVersion)
	}
	return nil
}
