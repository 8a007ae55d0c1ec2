package crd

import (
	"fmt"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/version"
)

// settle brings the status of a definition in line with its specification and
// with the other definitions of its group, and reports whether that changed
// anything. Of peers, those of the same name and those that hold no names are
// passed over. With one server nothing has to be waited for: a definition whose
// names are free is established at once.
func settle(crd *apiextensionsv1.CustomResourceDefinition, peers []*apiextensionsv1.CustomResourceDefinition, now time.Time) (changed bool) {
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
	return changed
}

// acceptNames returns the names that a definition may have: those it asks for
// as far as no other definition of the group has them, otherwise those that it
// has already. The condition says what is in the way; nil: nothing.
func acceptNames(crd *apiextensionsv1.CustomResourceDefinition, peers []*apiextensionsv1.CustomResourceDefinition) (apiextensionsv1.CustomResourceDefinitionNames, *apiextensionsv1.CustomResourceDefinitionCondition) {
	resources, kinds := sets.New[string](), sets.New[string]()
	for _, p := range peers {
		if p.Name == crd.Name || p.Spec.Group != crd.Spec.Group {
			continue
		}
		names := p.Status.AcceptedNames
		resources.Insert(names.Plural, names.Singular).Insert(names.ShortNames...)
		kinds.Insert(names.Kind, names.ListKind)
	}
	want, have := crd.Spec.Names, crd.Status.AcceptedNames
	var conflict *apiextensionsv1.CustomResourceDefinitionCondition
	refuse := func(reason string, taken ...string) {
		for i, name := range taken {
			taken[i] = fmt.Sprintf("%q is already in use", name)
		}
		text := strings.Join(taken, ", ")
		if len(taken) > 1 {
			text = "[" + text + "]"
		}
		conflict = &apiextensionsv1.CustomResourceDefinitionCondition{Status: apiextensionsv1.ConditionFalse, Reason: reason, Message: text}
	}
	take := func(to *string, name, reason string, used sets.Set[string]) {
		if name != *to && used.Has(name) {
			refuse(reason, name)
			return
		}
		*to = name
	}
	accepted := *have.DeepCopy()
	take(&accepted.Plural, want.Plural, "PluralConflict", resources)
	take(&accepted.Singular, want.Singular, "SingularConflict", resources)
	var taken []string
	for _, name := range want.ShortNames {
		if !slices.Contains(have.ShortNames, name) && resources.Has(name) {
			taken = append(taken, name)
		}
	}
	if len(taken) > 0 {
		refuse("ShortNamesConflict", taken...)
	} else {
		accepted.ShortNames = slices.Clone(want.ShortNames)
	}
	take(&accepted.Kind, want.Kind, "KindConflict", kinds)
	take(&accepted.ListKind, want.ListKind, "ListKindConflict", kinds)
	accepted.Categories = slices.Clone(want.Categories)
	return accepted, conflict
}

// establish returns the condition Established if it has to change: once
// established, a definition stays so.
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
	case conversion != nil && conversion.Webhook != nil && conversion.Webhook.ClientConfig != nil && !validBundle(conversion.Webhook.ClientConfig.CABundle):
		c.Status, c.Reason, c.Message = apiextensionsv1.ConditionFalse, "InvalidCABundle", "The conversion webhook CABundle is invalid"
	}
	return c
}

// approvalCondition says whether a definition in a group of Kubernetes' own
// shows that it may be there; nil for other groups.
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

// setCondition sets a condition and reports whether that changed anything. The
// time of transition changes with the status only.
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

// isServed reports whether a definition's objects can be reached: as soon as
// its names are accepted, and from when it was established once (contract 9.4).
func isServed(crd *apiextensionsv1.CustomResourceDefinition) bool {
	names := crd.Status.AcceptedNames
	return (namesAccepted(crd) || isEstablished(crd)) && names.Plural != "" && names.Kind != "" && storageVersion(crd) != ""
}

// servedVersions returns the served versions as discovery orders them: stable
// ones first, then beta, then alpha, higher numbers before lower ones.
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

// storageVersion returns the version that objects are stored in; "" if there is
// none, which validation does not let pass.
func storageVersion(crd *apiextensionsv1.CustomResourceDefinition) string {
	for _, v := range crd.Spec.Versions {
		if v.Storage {
			return v.Name
		}
	}
	return ""
}
