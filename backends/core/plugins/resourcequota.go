package plugins

import (
	"bytes"
	"fmt"

	upstream "k8s.io/apiserver/pkg/admission/plugin/resourcequota"
	"k8s.io/apiserver/pkg/admission/plugin/resourcequota/apis/resourcequota/validation"

	corequota "portico/backends/core/quota"
	"portico/resource/admission/quota"
	"portico/resource/rest"
)

// newResourceQuota charges writes to the quotas of their namespace.
func newResourceQuota(cfg *Config) (rest.Admission, error) {
	quotas := cfg.Quotas
	if quotas == nil {
		quotas = quota.Stored(cfg.Resource("", "resourcequotas"))
	}
	out := quota.Config{
		Quotas: quotas, Ignored: corequota.Ignored(), Stop: cfg.Stop,
		Evaluators: corequota.Evaluators(corequota.Config{Objects: corequota.Stored(cfg.Resource)}),
	}
	if file := cfg.files[quota.Name]; file != nil {
		limited, err := upstream.LoadConfiguration(bytes.NewReader(file))
		if err != nil {
			return nil, fmt.Errorf("read the configuration: %w", err)
		}
		if err := validation.ValidateConfiguration(limited).ToAggregate(); err != nil {
			return nil, err
		}
		out.Limited = limited
	}
	return quota.New(out), nil
}
