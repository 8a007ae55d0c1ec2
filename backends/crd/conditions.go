package crd

import (
	"fmt"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/apiserver/pkg/util/webhook"
)

// updateStatus sets the status of a definition by its spec and the other definitions of
// its group, and reports whether it changed. Peers of the same name and those without
// names are ignored. A definition whose names are free is established at once, as no
// other server has to serve it first.
func updateStatus(crd *apiextensionsv1.CustomResourceDefinition, peers []*apiextensionsv1.CustomResourceDefinition, now time.Time) (changed bool) {
	accepted, conflict := acceptNames(crd, peers)
	if !reflect.DeepEqual(accepted, crd.Status.AcceptedNames) {
		crd.Status.AcceptedNames, changed = accepted, true
	}
	if conflict == nil {
		conflict = &apiextensionsv1.CustomResourceDefinitionCondition{
			Status: apiextensionsv1.ConditionTrue, Reason: "NoConflicts", Message: "no conflicts found",
		}
	}
	conflict.Type = apiextensionsv1.NamesAccepted
	changed = setCondition(crd, *conflict, now) || changed
	if established := establish(crd); established != nil {
		changed = setCondition(crd, *established, now) || changed
	}
	if approval := approvalCondition(crd); approval != nil {
		changed = setCondition(crd, *approval, now) || changed
	}
	return updateTruncation(crd, now) || changed
}

// establish returns the condition Established if it has to change. An established
// definition stays established.
func establish(crd *apiextensionsv1.CustomResourceDefinition) *apiextensionsv1.CustomResourceDefinitionCondition {
	if isEstablished(crd) {
		return nil
	}
	c := &apiextensionsv1.CustomResourceDefinitionCondition{
		Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionTrue,
		Reason: "InitialNamesAccepted", Message: "the initial names have been accepted",
	}
	switch conversion := crd.Spec.Conversion; {
	case !namesAccepted(crd):
		c.Status, c.Reason, c.Message = apiextensionsv1.ConditionFalse, "NotAccepted", "not all names are accepted"
	case conversion != nil && conversion.Webhook != nil && conversion.Webhook.ClientConfig != nil &&
		len(webhook.ValidateCABundle(nil, conversion.Webhook.ClientConfig.CABundle)) > 0:
		c.Status, c.Reason, c.Message = apiextensionsv1.ConditionFalse, "InvalidCABundle", "The conversion webhook CABundle is invalid"
	}
	return c
}

// approvalCondition says whether a definition in a group of Kubernetes has the annotation
// of its approval; nil for other groups.
func approvalCondition(crd *apiextensionsv1.CustomResourceDefinition) *apiextensionsv1.CustomResourceDefinitionCondition {
	if !isProtected(crd.Spec.Group) {
		return nil
	}
	const where = ", see https://github.com/kubernetes/enhancements/pull/1111"
	name := apiextensionsv1.KubeAPIApprovedAnnotation
	value := crd.Annotations[name]
	c := &apiextensionsv1.CustomResourceDefinitionCondition{
		Type: apiextensionsv1.KubernetesAPIApprovalPolicyConformant, Status: apiextensionsv1.ConditionFalse,
	}
	at, err := url.ParseRequestURI(value)
	switch {
	case value == "":
		c.Reason, c.Message = "MissingAnnotation", fmt.Sprintf("protected groups must have approval annotation %q", name)+where
	case strings.HasPrefix(value, "unapproved"):
		c.Reason, c.Message = "UnapprovedAnnotation", fmt.Sprintf("not approved: %q", value)
	case err == nil && at.Host != "" && at.Scheme != "":
		c.Status, c.Reason, c.Message = apiextensionsv1.ConditionTrue, "ApprovedAnnotation", "approved in "+value
	default:
		c.Reason, c.Message = "InvalidAnnotation",
			fmt.Sprintf("protected groups must have approval annotation %q with either a URL or a reason starting with \"unapproved\"", name)+where
	}
	return c
}

func isProtected(group string) bool {
	for _, domain := range []string{"k8s.io", "kubernetes.io"} {
		if group == domain || strings.HasSuffix(group, "."+domain) {
			return true
		}
	}
	return false
}

// structuralCondition says why the schemas of a definition are not structural; nil if they
// are. Validation rejects such a definition, but an older one may be stored. It needs the
// schemas, which an outline does not have.
func structuralCondition(crd *apiextensionsv1.CustomResourceDefinition) *apiextensionsv1.CustomResourceDefinitionCondition {
	c := &apiextensionsv1.CustomResourceDefinitionCondition{Type: apiextensionsv1.NonStructuralSchema}
	var errs field.ErrorList
	if crd.Spec.PreserveUnknownFields {
		errs = append(errs, field.Invalid(field.NewPath("spec", "preserveUnknownFields"), true, "must be false"))
	}
	for i, v := range crd.Spec.Versions {
		if v.Schema == nil || v.Schema.OpenAPIV3Schema == nil {
			continue
		}
		in := &apiextensions.JSONSchemaProps{}
		err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(v.Schema.OpenAPIV3Schema, in, nil)
		var s *schema.Structural
		if err == nil {
			s, err = schema.NewStructural(in)
		}
		if err != nil {
			c.Status, c.Reason = apiextensionsv1.ConditionUnknown, "StructuralError"
			c.Message = fmt.Sprintf("failed to check validation schema for version %s: %v", v.Name, err)
			return c
		}
		errs = append(errs, schema.ValidateStructural(field.NewPath("spec", "versions").Index(i).Child("schema", "openAPIV3Schema"), s)...)
	}
	if len(errs) == 0 {
		return nil
	}
	c.Status, c.Reason, c.Message = apiextensionsv1.ConditionTrue, "Violations", errs.ToAggregate().Error()
	return c
}

// setCondition sets a condition and reports whether it changed. The transition time
// changes with the status only.
func setCondition(crd *apiextensionsv1.CustomResourceDefinition, c apiextensionsv1.CustomResourceDefinitionCondition, now time.Time) bool {
	c.LastTransitionTime = metav1.NewTime(now.UTC().Truncate(time.Second))
	old := findCondition(crd, c.Type)
	if old == nil {
		crd.Status.Conditions = append(crd.Status.Conditions, c)
		return true
	}
	if old.Status == c.Status && !old.LastTransitionTime.IsZero() {
		c.LastTransitionTime = old.LastTransitionTime
	}
	c.ObservedGeneration = old.ObservedGeneration
	if old.Status == c.Status && old.Reason == c.Reason && old.Message == c.Message && old.LastTransitionTime.Equal(&c.LastTransitionTime) {
		return false
	}
	*old = c
	return true
}

func findCondition(crd *apiextensionsv1.CustomResourceDefinition, kind apiextensionsv1.CustomResourceDefinitionConditionType) *apiextensionsv1.CustomResourceDefinitionCondition {
	at := slices.IndexFunc(crd.Status.Conditions, func(c apiextensionsv1.CustomResourceDefinitionCondition) bool { return c.Type == kind })
	if at < 0 {
		return nil
	}
	return &crd.Status.Conditions[at]
}

func removeCondition(crd *apiextensionsv1.CustomResourceDefinition, kind apiextensionsv1.CustomResourceDefinitionConditionType) {
	crd.Status.Conditions = slices.DeleteFunc(crd.Status.Conditions, func(c apiextensionsv1.CustomResourceDefinitionCondition) bool { return c.Type == kind })
}

func isTrue(crd *apiextensionsv1.CustomResourceDefinition, kind apiextensionsv1.CustomResourceDefinitionConditionType) bool {
	c := findCondition(crd, kind)
	return c != nil && c.Status == apiextensionsv1.ConditionTrue
}

func isEstablished(crd *apiextensionsv1.CustomResourceDefinition) bool {
	return isTrue(crd, apiextensionsv1.Established)
}

func namesAccepted(crd *apiextensionsv1.CustomResourceDefinition) bool {
	return isTrue(crd, apiextensionsv1.NamesAccepted)
}

// isServed reports whether a definition's objects are served: its names are accepted, or
// it was established before (docs/wire.md 9.4).
func isServed(crd *apiextensionsv1.CustomResourceDefinition) bool {
	names := crd.Status.AcceptedNames
	return (namesAccepted(crd) || isEstablished(crd)) && names.Plural != "" && names.Kind != "" && storageVersion(crd) != ""
}

// servedVersions returns the served versions in the order of discovery: stable versions
// first, then beta, then alpha; higher numbers before lower ones.
func servedVersions(crd *apiextensionsv1.CustomResourceDefinition) []string {
	var out []string
	for _, v := range crd.Spec.Versions {
		if v.Served {
			out = append(out, v.Name)
		}
	}
	slices.SortFunc(out, func(a, b string) int { return version.CompareKubeAwareVersionStrings(b, a) })
	return out
}

// storageVersion returns the version that objects are stored in; "" if there is none,
// which validation rejects.
func storageVersion(crd *apiextensionsv1.CustomResourceDefinition) string {
	for _, v := range crd.Spec.Versions {
		if v.Storage {
			return v.Name
		}
	}
	return ""
}
