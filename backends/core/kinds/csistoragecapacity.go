package kinds

import (
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico/backends/core/kinds/rules"
	"portico/resource/rest"
)

// csiStorageCapacities is the row of storage.k8s.io/v1 CSIStorageCapacity.
func csiStorageCapacities() *rest.Kind {
	type capacity = storagev1.CSIStorageCapacity
	info := storageInfo("csistoragecapacities", "CSIStorageCapacity")
	info.Namespaced = true
	return &rest.Kind{
		Info: info,
		Strategy: rest.Strategy{
			Validate: check(func(c *capacity) field.ErrorList {
				return validateStorageCapacity(c, metav1validation.LabelSelectorValidationOptions{})
			}),
			ValidateUpdate: checkUpdate(validateStorageCapacityUpdate),
			Warnings: warn(func(c *capacity) []string {
				return rules.NodeLabelWarnings(c.NodeTopology, field.NewPath("nodeTopology"))
			}),
		},
		Columns: []metav1.TableColumnDefinition{
			nameColumn(),
			column("StorageClassName", "string", "The storage class of the capacity."),
			column("Capacity", "string", "How much storage is free."),
		},
		Cells: cells(func(c *capacity) []any {
			free := unset
			if c.Capacity != nil {
				free = c.Capacity.String()
			}
			return []any{c.Name, c.StorageClassName, free}
		}),
	}
}

func validateStorageCapacity(c *storagev1.CSIStorageCapacity, o metav1validation.LabelSelectorValidationOptions) field.ErrorList {
	errs := metav1validation.ValidateLabelSelector(c.NodeTopology, o, field.NewPath("nodeTopology"))
	errs = append(errs, rules.Subdomain(c.StorageClassName, field.NewPath("storageClassName"))...)
	if c.Capacity != nil {
		errs = append(errs, rules.Nonnegative(*c.Capacity, field.NewPath("capacity"))...)
	}
	return errs
}

func validateStorageCapacityUpdate(c, old *storagev1.CSIStorageCapacity) field.ErrorList {
	// Values of labels that older releases accepted are kept.
	invalid := metav1validation.ValidateLabelSelector(old.NodeTopology, metav1validation.LabelSelectorValidationOptions{}, nil)
	errs := validateStorageCapacity(c, metav1validation.LabelSelectorValidationOptions{AllowInvalidLabelValueInSelector: len(invalid) > 0})
	if !equality.Semantic.DeepEqual(c.NodeTopology, old.NodeTopology) {
		errs = append(errs, field.Invalid(field.NewPath("nodeTopology"), c.NodeTopology, apivalidation.FieldImmutableErrorMsg))
	}
	return append(errs, apivalidation.ValidateImmutableField(c.StorageClassName, old.StorageClassName, field.NewPath("storageClassName"))...)
}
