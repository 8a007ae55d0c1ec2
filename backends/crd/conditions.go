package crd

import (
	"slices"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/apiserver/pkg/util/webhook"

	"portico/backends/crd/custom"
)

// updateStatus sets the status of a definition from its spec and the other definitions of
// its group, and reports whether it changed. Peers of the same name and those without
// accepted names are ignored. A definition with accepted names is established at once:
// no other server has to serve it first. all is the discovery of all definitions, or nil while
// the definition is written.
func updateStatus(crd *apiextensionsv1.CustomResourceDefinition, peers []*apiextensionsv1.CustomResourceDefinition, all *totals) (changed bool) {
	before := crd.Status.DeepCopy()
	accepted, conflict := acceptNames(crd, peers)
	crd.Status.AcceptedNames = accepted
	if conflict == nil {
		conflict = &apiextensionsv1.CustomResourceDefinitionCondition{
			Status: apiextensionsv1.ConditionTrue, Reason: "NoConflicts", Message: "no conflicts found",
		}
	}
	conflict.Type = apiextensionsv1.NamesAccepted
	apihelpers.SetCRDCondition(crd, *conflict)
	establish(crd)
	setApproval(crd)
	setTruncated(crd, all)
	return !apiequality.Semantic.DeepEqual(before, &crd.Status)
}

// establish sets the condition Established. An established definition stays established.
func establish(crd *apiextensionsv1.CustomResourceDefinition) {
	if isEstablished(crd) {
		return
	}
	c := apiextensionsv1.CustomResourceDefinitionCondition{
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
	apihelpers.SetCRDCondition(crd, c)
}

// setApproval sets the condition on the approval annotation of a definition in a group of
// Kubernetes.
func setApproval(crd *apiextensionsv1.CustomResourceDefinition) {
	if !apihelpers.IsProtectedCommunityGroup(crd.Spec.Group) {
		return
	}
	state, message := apihelpers.GetAPIApprovalState(crd.Annotations)
	c := apiextensionsv1.CustomResourceDefinitionCondition{
		Type: apiextensionsv1.KubernetesAPIApprovalPolicyConformant, Status: apiextensionsv1.ConditionFalse, Message: message,
	}
	switch state {
	case apihelpers.APIApproved:
		c.Status, c.Reason = apiextensionsv1.ConditionTrue, "ApprovedAnnotation"
	case apihelpers.APIApprovalMissing:
		c.Reason = "MissingAnnotation"
	case apihelpers.APIApprovalBypassed:
		c.Reason = "UnapprovedAnnotation"
	default:
		c.Reason = "InvalidAnnotation"
	}
	apihelpers.SetCRDCondition(crd, c)
}

func isEstablished(crd *apiextensionsv1.CustomResourceDefinition) bool {
	return apihelpers.IsCRDConditionTrue(crd, apiextensionsv1.Established)
}

func namesAccepted(crd *apiextensionsv1.CustomResourceDefinition) bool {
	return apihelpers.IsCRDConditionTrue(crd, apiextensionsv1.NamesAccepted)
}

// isServed reports whether a definition's objects are served: its names are accepted, or
// it was established before (docs/wire.md 9.4).
func isServed(crd *apiextensionsv1.CustomResourceDefinition) bool {
	names := crd.Status.AcceptedNames
	return (namesAccepted(crd) || isEstablished(crd)) && names.Plural != "" && names.Kind != "" && custom.StorageVersion(crd) != ""
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
