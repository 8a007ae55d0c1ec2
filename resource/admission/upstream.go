package admission

import (
	"k8s.io/apiserver/pkg/admission"

	"portico/resource/rest"
)

// Upstream returns a write in the form of k8s.io/apiserver, for its plugins and their errors.
func Upstream(a *rest.Attributes) admission.Attributes { return NewAttributes(a) }
