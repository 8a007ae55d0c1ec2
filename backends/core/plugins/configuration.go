package plugins

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"sigs.k8s.io/yaml"

	"portico/resource/admission"
)

// configurations are the configurations of plugins by name, as they stand in the file or in the
// files that it names.
type configurations map[string][]byte

// readConfigurations reads an AdmissionConfiguration of apiserver.config.k8s.io. Unknown fields,
// and plugins that do not exist or have no configuration, are errors. "" is none.
func readConfigurations(file string) (configurations, error) {
	table := all()
	return admission.ReadConfiguration(file, func(p *apiserver.AdmissionPluginConfiguration) error {
		at := slices.IndexFunc(table, func(r row) bool { return r.name == p.Name })
		switch {
		case at < 0:
			return fmt.Errorf("there is no plugin %q", p.Name)
		case table[at].make == nil:
			return fmt.Errorf("plugin %s: %s", p.Name, table[at].missing)
		case !table[at].configured && (p.Path != "" || p.Configuration != nil):
			return fmt.Errorf("plugin %s has no configuration", p.Name)
		}
		return nil
	})
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
