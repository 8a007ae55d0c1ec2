package crd

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/apiserver/pkg/util/webhook"

	"portico/backends/crd/custom"
)

// updateStatus sets the status of a definition from its spec and the other definitions of
// its group, and reports whether it changed. Peers of the same name and those without
// accepted names are ignored. all is the discovery of all definitions, or nil while
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
	return lacksStructural(crd) || !apiequality.Semantic.DeepEqual(before, &crd.Status)
}

// established returns the condition of a definition that is served everywhere (established.go).
func established() apiextensionsv1.CustomResourceDefinitionCondition {
	return apiextensionsv1.CustomResourceDefinitionCondition{
		Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionTrue,
		Reason: "InitialNamesAccepted", Message: "the initial names have been accepted",
	}
}

// establish sets the condition Established of a definition that is not: what it waits for. An established definition
// stays established.
func establish(crd *apiextensionsv1.CustomResourceDefinition) {
	if isEstablished(crd) {
		return
	}
	c := established()
	c.Status, c.Reason = apiextensionsv1.ConditionFalse, reasonInstalling
	switch conversion := crd.Spec.Conversion; {
	case !namesAccepted(crd):
		c.Reason, c.Message = "NotAccepted", "not all names are accepted"
	case conversion != nil && conversion.Webhook != nil && conversion.Webhook.ClientConfig != nil &&
		len(webhook.ValidateCABundle(nil, conversion.Webhook.ClientConfig.CABundle)) > 0:
		c.Reason, c.Message = "InvalidCABundle", "The conversion webhook CABundle is invalid"
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

// lacksStructural reports whether the condition NonStructuralSchema is missing: every definition
// that keeps unknown fields has it. It needs no schemas.
func lacksStructural(crd *apiextensionsv1.CustomResourceDefinition) bool {
	return crd.Spec.PreserveUnknownFields && apihelpers.FindCRDCondition(crd, apiextensionsv1.NonStructuralSchema) == nil
}

// setStructural sets or removes the condition on schemas that are not structural. Only definitions
// of apiextensions.k8s.io/v1beta1 have such schemas: validation refuses them unless the stored ones
// are not structural.
func setStructural(crd *apiextensionsv1.CustomResourceDefinition) {
	if !crd.Spec.PreserveUnknownFields && apihelpers.FindCRDCondition(crd, apiextensionsv1.NonStructuralSchema) == nil {
		return
	}
	errs := structuralErrors(&crd.Spec)
	if len(errs) == 0 {
		apihelpers.RemoveCRDCondition(crd, apiextensionsv1.NonStructuralSchema)
		return
	}
	apihelpers.SetCRDCondition(crd, apiextensionsv1.CustomResourceDefinitionCondition{
		Type: apiextensionsv1.NonStructuralSchema, Status: apiextensionsv1.ConditionTrue, Reason: "Violations", Message: errs.ToAggregate().Error(),
	})
}

func structuralErrors(spec *apiextensionsv1.CustomResourceDefinitionSpec) (errs field.ErrorList) {
	path := field.NewPath("spec")
	if spec.PreserveUnknownFields {
		errs = append(errs, field.Invalid(path.Child("preserveUnknownFields"), true, "must be false"))
	}
	for i, v := range spec.Versions {
		if v.Schema == nil || v.Schema.OpenAPIV3Schema == nil {
			continue
		}
		at, in := path.Child("versions").Index(i).Child("schema", "openAPIV3Schema"), &apiextensions.JSONSchemaProps{}
		err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(v.Schema.OpenAPIV3Schema, in, nil)
		if err != nil {
			errs = append(errs, field.InternalError(at, err))
			continue
		}
		structural, err := structuralschema.NewStructural(in)
		if err != nil {
			errs = append(errs, field.InternalError(at, err))
			continue
		}
		errs = append(errs, structuralschema.ValidateStructural(at, structural)...)
	}
	return errs
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

// acceptNames returns the accepted names of a definition: each name of its spec that no
// other definition of the group has, else the one accepted before. The condition describes
// a conflict; nil: there is none.
func acceptNames(crd *apiextensionsv1.CustomResourceDefinition, peers []*apiextensionsv1.CustomResourceDefinition) (apiextensionsv1.CustomResourceDefinitionNames, *apiextensionsv1.CustomResourceDefinitionCondition) {
	resources, kinds := takenNames(crd, peers)
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
		if resources.Has(name) && !slices.Contains(have.ShortNames, name) && !slices.Contains(taken, name) {
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

// takenNames returns the resource and kind names of the other definitions of the group.
func takenNames(crd *apiextensionsv1.CustomResourceDefinition, peers []*apiextensionsv1.CustomResourceDefinition) (resources, kinds sets.Set[string]) {
	resources, kinds = sets.New[string](), sets.New[string]()
	for _, p := range peers {
		if p.Name == crd.Name || p.Spec.Group != crd.Spec.Group {
			continue
		}
		names := p.Status.AcceptedNames
		resources.Insert(names.Plural, names.Singular).Insert(names.ShortNames...)
		kinds.Insert(names.Kind, names.ListKind)
	}
	return resources, kinds
}

// hasItsNames reports whether all names of a definition's spec are accepted.
func hasItsNames(crd *apiextensionsv1.CustomResourceDefinition) bool {
	return namesAccepted(crd) && apiequality.Semantic.DeepEqual(crd.Spec.Names, crd.Status.AcceptedNames)
}

// claimLifetime is how long a claim is valid. It must be longer than a write takes; after
// the write the stored definition has the names.
const claimLifetime = time.Minute

// claims holds the accepted names of definitions that are being written, so that only one
// of several concurrent writes of this process gets a name. Safe for concurrent use.
type claims struct {
	mu    sync.Mutex
	byUID map[types.UID]*claim
}

// claim is a definition reduced to its names.
type claim struct {
	crd   *apiextensionsv1.CustomResourceDefinition
	until time.Time
}

func newClaims() *claims { return &claims{byUID: map[types.UID]*claim{}} }

// updateStatus calls updateStatus for a definition that is about to be written, with the
// claims of other definitions as additional peers. With hold its names are claimed until
// release is called or another claim of it replaces this one. peers must have been read
// within claimLifetime.
func (c *claims) updateStatus(crd *apiextensionsv1.CustomResourceDefinition, peers []*apiextensionsv1.CustomResourceDefinition, all *totals, hold bool) (release func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	peers = slices.Clip(peers)
	now := time.Now()
	for uid, other := range c.byUID {
		if now.After(other.until) {
			delete(c.byUID, uid)
			continue
		}
		if uid != crd.UID {
			peers = append(peers, other.crd)
		}
	}
	updateStatus(crd, peers, all)
	if !hold {
		return func() {}
	}
	mine := &claim{crd: &apiextensionsv1.CustomResourceDefinition{}, until: now.Add(claimLifetime)}
	mine.crd.Name, mine.crd.Spec.Group = crd.Name, crd.Spec.Group
	mine.crd.Status.AcceptedNames = *crd.Status.AcceptedNames.DeepCopy()
	uid := crd.UID
	c.byUID[uid] = mine
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.byUID[uid] == mine {
			delete(c.byUID, uid)
		}
	}
}

// drop removes the claim of a definition that is stored.
func (c *claims) drop(uid types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.byUID, uid)
}
