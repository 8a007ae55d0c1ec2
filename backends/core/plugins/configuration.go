package plugins

import (
	"fmt"
	"slices"

	"k8s.io/apiserver/pkg/apis/apiserver"

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
