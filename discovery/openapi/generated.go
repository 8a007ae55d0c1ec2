package openapi

import (
	"strings"
	"sync"

	"k8s.io/kube-aggregator/pkg/generated/openapi"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// aggregatorModels is how the models of APIService begin. Its types, unlike all others,
// do not describe themselves: their module has the descriptions in generated
// definitions only.
const aggregatorModels = "io.k8s.kube-aggregator.pkg.apis.apiregistration."

// generatedDocs are the descriptions of these models, by model name and field; that of
// the type itself is "".
var generatedDocs = sync.OnceValue(func() map[string]map[string]string {
	out := map[string]map[string]string{}
	for name, d := range openapi.GetOpenAPIDefinitions(func(string) spec.Ref { return spec.Ref{} }) {
		if !strings.HasPrefix(name, aggregatorModels) {
			continue
		}
		docs := map[string]string{"": d.Schema.Description}
		for field, s := range d.Schema.Properties {
			docs[field] = s.Description
		}
		out[name] = docs
	}
	return out
})
