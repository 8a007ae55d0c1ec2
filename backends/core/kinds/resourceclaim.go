package kinds

import (
	"context"
	"fmt"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico/backends/core/kinds/devices"
	"portico/resource"
	"portico/resource/rest"
)

// resourceClaims is the row of resource.k8s.io/v1 ResourceClaim.
func resourceClaims(cfg Config) *rest.Kind {
	return &rest.Kind{
		Info: resource.Info{
			Group: resourcev1.GroupName, Versions: []string{"v1"}, Resource: "resourceclaims", Kind: "ResourceClaim", Namespaced: true,
		},
		Strategy: rest.Strategy{
			Default: onDefault(devices.SetObjectDefaults_ResourceClaim),
			PrepareCreate: onCreate(func(c *resourcev1.ResourceClaim) {
				c.Status = resourcev1.ResourceClaimStatus{}
				devices.DropSpec(&c.Spec, nil)
			}),
			PrepareUpdate: onUpdate(func(c, old *resourcev1.ResourceClaim) {
				old.Status.DeepCopyInto(&c.Status)
				devices.DropSpec(&c.Spec, &old.Spec)
			}),
			Validate: func(ctx context.Context, obj rest.Object) field.ErrorList {
				c := obj.(*resourcev1.ResourceClaim)
				return append(cfg.deviceAdmin(ctx, c.Namespace, devices.AdminAccess(&c.Spec)), devices.Claim(c)...)
			},
			ValidateUpdate: checkUpdate(devices.ClaimUpdate),
		},
		Subresources: []rest.Subresource{{Name: "status", Strategy: &rest.Strategy{
			Resets: []string{"metadata", "spec"},
			PrepareUpdate: onUpdate(func(c, old *resourcev1.ResourceClaim) {
				old.Spec.DeepCopyInto(&c.Spec)
				metav1.ResetObjectMetaForStatus(c, old)
				devices.DropStatus(&c.Status, &old.Status)
				devices.DropDeallocated(c, old)
			}),
			ValidateUpdate: func(ctx context.Context, obj, before rest.Object) field.ErrorList {
				c, old := obj.(*resourcev1.ResourceClaim), before.(*resourcev1.ResourceClaim)
				errs := cfg.deviceAdmin(ctx, c.Namespace, devices.AdminAccessGranted(&c.Status, &old.Status))
				errs = append(errs, cfg.claimBinding(ctx, &c.Status, &old.Status)...)
				mistakes := devices.ClaimStatus(c, old)
				if len(mistakes) == 0 { // there are no more drivers than a claim may have
					errs = append(errs, cfg.claimDrivers(ctx, c.Namespace, &c.Status, &old.Status)...)
				}
				return append(errs, mistakes...)
			},
		}}},
		Columns: []metav1.TableColumnDefinition{
			nameColumn(), column("State", "string", "Pending, or allocated and perhaps reserved; deleted if the deletion waits."), ageColumn(),
		},
		Cells: cells(func(c *resourcev1.ResourceClaim) []any {
			return []any{c.Name, claimState(c), age(c.CreationTimestamp)}
		}),
		UnconditionalUpdate: true,
		ReturnDeleted:       true,
	}
}

func claimState(c *resourcev1.ResourceClaim) string {
	var states []string
	if c.DeletionTimestamp != nil {
		states = append(states, "deleted")
	} else if c.Status.Allocation == nil {
		states = append(states, "pending")
	}
	if c.Status.Allocation != nil {
		states = append(states, "allocated")
		if len(c.Status.ReservedFor) > 0 {
			states = append(states, "reserved")
		}
	}
	return strings.Join(states, ",")
}

// deviceAdmin returns an error if path, which asks for access to devices in use, is not nil
// and the namespace does not permit it.
func (cfg Config) deviceAdmin(ctx context.Context, namespace string, path *field.Path) field.ErrorList {
	if path == nil {
		return nil
	}
	const label = resourcev1.DRAAdminNamespaceLabelKey
	permitted := ""
	if cfg.NamespaceLabel != nil {
		var err error
		if permitted, err = cfg.NamespaceLabel(ctx, namespace, label); err != nil {
			return field.ErrorList{field.InternalError(path, fmt.Errorf("could not retrieve namespace to verify admin access: %w", err))}
		}
	}
	if permitted != "true" {
		return field.ErrorList{field.Forbidden(path, fmt.Sprintf("admin access to devices requires the `%s: true` label on the containing namespace", label))}
	}
	return nil
}
