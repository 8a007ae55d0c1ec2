package kinds

import (
	"fmt"

	storagev1 "k8s.io/api/storage/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico/backends/core/kinds/podspec"
	"portico/backends/core/kinds/rules"
	"portico/resource/rest"
)

// maxCSINodeID is the most bytes of the id of a node.
const maxCSINodeID = 256

// csiNodes is the row of storage.k8s.io/v1 CSINode.
func csiNodes() *rest.Kind {
	type node = storagev1.CSINode
	return &rest.Kind{
		Info: storageInfo("csinodes", "CSINode"),
		Strategy: rest.Strategy{
			PrepareCreate:  onCreate(func(n *node) { n.Status = storagev1.CSINodeStatus{} }),
			PrepareUpdate:  onUpdate(func(n, old *node) { old.Status.DeepCopyInto(&n.Status) }),
			Validate:       check(validateCSINode),
			ValidateUpdate: checkUpdate(validateCSINodeUpdate),
		},
		Subresources: []rest.Subresource{{Name: "status", Strategy: &rest.Strategy{
			Resets: []string{"metadata", "spec"},
			PrepareUpdate: onUpdate(func(n, old *node) {
				old.Spec.DeepCopyInto(&n.Spec)
				metav1.ResetObjectMetaForStatus(&n.ObjectMeta, &old.ObjectMeta)
				n.Status = storagev1.CSINodeStatus{} // as kube-apiserver without an alpha feature
			}),
		}}},
		Columns: []metav1.TableColumnDefinition{
			nameColumn(), column("Drivers", "integer", "The number of drivers on the node."), ageColumn(),
		},
		Cells: cells(func(n *node) []any {
			return []any{n.Name, int64(len(n.Spec.Drivers)), age(n.CreationTimestamp)}
		}),
		ReturnDeleted: true,
	}
}

func validateCSINode(n *storagev1.CSINode) field.ErrorList {
	var errs field.ErrorList
	names := map[string]bool{}
	for i := range n.Spec.Drivers {
		d, path := &n.Spec.Drivers[i], field.NewPath("spec", "drivers").Index(i)
		errs = append(errs, podspec.ValidateDriverName(d.Name, path.Child("name"))...)
		if names[d.Name] {
			errs = append(errs, field.Duplicate(path.Child("name"), d.Name))
		}
		names[d.Name] = true
		errs = append(errs, rules.Present(d.NodeID, path.Child("nodeID"))...)
		if len(d.NodeID) > maxCSINodeID {
			errs = append(errs, field.Invalid(path.Child("nodeID"), d.NodeID, fmt.Sprintf("must be %d characters or less", maxCSINodeID)))
		}
		if a := d.Allocatable; a != nil && a.Count != nil {
			errs = append(errs, apivalidation.ValidateNonnegativeField(int64(*a.Count), path.Child("allocatable", "count"))...)
		}
		errs = append(errs, validateTopologyKeys(d.TopologyKeys, path)...)
	}
	return errs
}

// validateTopologyKeys validates the keys of a driver; errors have the path of the driver.
func validateTopologyKeys(keys []string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := map[string]bool{}
	for _, key := range keys {
		if key == "" {
			errs = append(errs, field.Required(path, key))
		}
		if seen[key] {
			errs = append(errs, field.Duplicate(path, key))
		}
		seen[key] = true
		errs = append(errs, rules.QualifiedName(key, path)...)
	}
	return errs
}

// validateCSINodeUpdate permits only allocatable of a driver to change.
func validateCSINodeUpdate(n, old *storagev1.CSINode) field.ErrorList {
	errs := validateCSINode(n)
	was := map[string]storagev1.CSINodeDriver{}
	for _, d := range old.Spec.Drivers {
		d.Allocatable = nil
		was[d.Name] = d
	}
	for _, d := range n.Spec.Drivers {
		if before, ok := was[d.Name]; ok {
			d.Allocatable = nil
			errs = append(errs, apivalidation.ValidateImmutableField(d, before, field.NewPath("spec", "drivers"))...)
		}
	}
	return errs
}
