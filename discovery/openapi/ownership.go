package openapi

import (
	"encoding/json"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"portico/resource/rest"
)

// Ownership returns what field ownership of a kind made of Go types is tracked
// with: the schemas that its OpenAPI document has. It is built when it is first
// asked for.
func Ownership(k *rest.Kind) func() (managedfields.TypeConverter, error) {
	return sync.OnceValues(func() (managedfields.TypeConverter, error) {
		models := map[string]*spec.Schema{}
		for _, version := range k.Versions {
			b := newBuilder(version)
			b.model(k)
			for name, s := range b.schemas.byName {
				data, err := json.Marshal(s)
				if err != nil {
					return nil, fmt.Errorf("encode schema of %s: %w", name, err)
				}
				model := &spec.Schema{}
				if err := json.Unmarshal(data, model); err != nil {
					return nil, fmt.Errorf("decode schema of %s: %w", name, err)
				}
				models[name] = model
			}
		}
		return managedfields.NewTypeConverter(models, false)
	})
}
