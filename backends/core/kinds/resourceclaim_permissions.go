package kinds

import (
	"context"
	"fmt"
	"maps"
	"slices"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/utils/ptr"

	"portico/resource"
)

// The parts of a claim's status have writers of their own: the scheduler binds the claim, and
// drivers report on their devices. Each needs a right on a subresource that is not served.

// claimRight returns the action for a right on a subresource of all claims.
func claimRight(ctx context.Context, verb, subresource, namespace, name string) *resource.Action {
	return &resource.Action{
		User: requester(ctx), Verb: verb, IsResource: true, Group: resourcev1.GroupName, Version: "v1",
		Resource: "resourceclaims", Subresource: subresource, Namespace: namespace, Name: name, InPath: name != "",
	}
}

// writeVerb returns the verb of the request: update or patch.
func writeVerb(ctx context.Context) string {
	if a := resource.ActionFrom(ctx); a != nil {
		return a.Verb
	}
	return "update"
}

// claimBinding requires the right on resourceclaims/binding for changes of the allocation and the
// consumers of a claim.
func (p Permissions) claimBinding(ctx context.Context, status, old *resourcev1.ResourceClaimStatus) field.ErrorList {
	if equality.Semantic.DeepEqual(status.Allocation, old.Allocation) && equality.Semantic.DeepEqual(status.ReservedFor, old.ReservedFor) {
		return nil
	}
	verb := writeVerb(ctx)
	err := p.authorize(ctx, claimRight(ctx, verb, resourcev1.SubresourceBinding, "", ""))
	return denied(field.NewPath("status", "allocation"), err, fmt.Sprintf(
		`changing status.allocation or status.reservedFor requires resource="resourceclaims/binding", verb="%s" permission: %v`, verb, err))
}

// claimDrivers requires the right on resourceclaims/driver, by the name of the driver, for each
// driver with a device of which the status changes. A deallocated claim has no such status.
func (p Permissions) claimDrivers(ctx context.Context, namespace string, status, old *resourcev1.ResourceClaimStatus) field.ErrorList {
	if status.Allocation == nil {
		return nil
	}
	verb := writeVerb(ctx)
	verbs := []string{resourcev1.VerbPrefixArbitraryNode + verb}
	if onNodeOf(requester(ctx), status.Allocation) {
		verbs = []string{resourcev1.VerbPrefixAssociatedNode + verb, verbs[0]}
	}
	var errs field.ErrorList
	for _, driver := range changedDrivers(status.Devices, old.Devices) {
		var first error
		for i, verb := range verbs {
			err := p.authorize(ctx, claimRight(ctx, verb, resourcev1.SubresourceDriver, namespace, driver))
			if err == nil {
				first = nil
				break
			}
			if i == 0 {
				first = err
			}
		}
		errs = append(errs, denied(field.NewPath("status", "devices"), first, fmt.Sprintf(
			`changing status.devices requires resource="resourceclaims/driver", verb="%s" permission: %v`, verbs, first))...)
	}
	return errs
}

// changedDrivers returns the drivers of the devices that are added, removed or changed, sorted.
func changedDrivers(devices, old []resourcev1.AllocatedDeviceStatus) []string {
	type key struct{ driver, pool, device, share string }
	keyOf := func(d *resourcev1.AllocatedDeviceStatus) key {
		return key{d.Driver, d.Pool, d.Device, ptr.Deref(d.ShareID, "")}
	}
	before, drivers := map[key]*resourcev1.AllocatedDeviceStatus{}, map[string]bool{}
	for i := range old {
		before[keyOf(&old[i])] = &old[i]
	}
	for i := range devices {
		k := keyOf(&devices[i])
		if was := before[k]; was == nil || !equality.Semantic.DeepEqual(*was, devices[i]) {
			drivers[k.driver] = true
		}
		delete(before, k)
	}
	for k := range before {
		drivers[k.driver] = true
	}
	return slices.Sorted(maps.Keys(drivers))
}

// onNodeOf reports whether a user is a service account with a token bound to the one node that
// the allocation is for.
func onNodeOf(u *resource.User, a *resourcev1.AllocationResult) bool {
	if _, _, err := serviceaccount.SplitUsername(u.Name); err != nil {
		return false
	}
	nodes := u.Extra[serviceaccount.NodeNameKey]
	if len(nodes) != 1 || len(apivalidation.NameIsDNSSubdomain(nodes[0], false)) > 0 {
		return false
	}
	if a.NodeSelector == nil || len(a.NodeSelector.NodeSelectorTerms) != 1 {
		return false
	}
	term := a.NodeSelector.NodeSelectorTerms[0]
	if len(term.MatchExpressions) != 0 || len(term.MatchFields) != 1 {
		return false
	}
	f := term.MatchFields[0]
	return f.Key == "metadata.name" && f.Operator == "In" && len(f.Values) == 1 && f.Values[0] == nodes[0]
}
