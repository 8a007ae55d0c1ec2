package plugins

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apiserver/pkg/apis/apiserver"
	eventratelimitv1alpha1 "k8s.io/kubernetes/plugin/pkg/admission/eventratelimit/apis/eventratelimit/v1alpha1"
	podtolerationrestrictionv1alpha1 "k8s.io/kubernetes/plugin/pkg/admission/podtolerationrestriction/apis/podtolerationrestriction/v1alpha1"
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
		case !table[at].exists():
			return fmt.Errorf("plugin %s: %s", p.Name, table[at].missing)
		case !table[at].configured && (p.Path != "" || p.Configuration != nil):
			return fmt.Errorf("plugin %s has no configuration", p.Name)
		}
		return nil
	})
}

// checkConfiguration refuses what kube-apiserver ignores in the configuration of a plugin: unknown fields,
// and node selectors that are malformed.
func checkConfiguration(plugin string, data []byte) error {
	switch plugin {
	case "EventRateLimit":
		return yaml.UnmarshalStrict(data, &eventratelimitv1alpha1.Configuration{})
	case "PodTolerationRestriction":
		return yaml.UnmarshalStrict(data, &podtolerationrestrictionv1alpha1.Configuration{})
	case "PodNodeSelector":
		var config struct {
			Selectors map[string]string `json:"podNodeSelectorPluginConfig"`
		}
		if err := yaml.UnmarshalStrict(data, &config); err != nil {
			return err
		}
		for name, selector := range config.Selectors {
			if _, err := labels.ConvertSelectorToLabelsMap(selector); err != nil {
				return fmt.Errorf("podNodeSelectorPluginConfig[%q]: %w", name, err)
			}
		}
	}
	return nil
}
