package kinds

import (
	"reflect"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico/resource/rest"
)

// volumeAttributesClasses is the row of storage.k8s.io/v1 VolumeAttributesClass.
func volumeAttributesClasses() *rest.Kind {
	return &rest.Kind{
		Info: storageInfo("volumeattributesclasses", "VolumeAttributesClass", "vac"),
		Strategy: rest.Strategy{
			Validate:       check(validateVolumeAttributesClass),
			ValidateUpdate: checkUpdate(validateVolumeAttributesClassUpdate),
		},
		Columns: []metav1.TableColumnDefinition{
			nameColumn(), column("DriverName", "string", "The driver that the parameters are for."), ageColumn(),
		},
		Cells: cells(func(c *storagev1.VolumeAttributesClass) []any {
			return []any{c.Name, c.DriverName, age(c.CreationTimestamp)}
		}),
		UnconditionalUpdate: true,
		ReturnDeleted:       true,
	}
}

func validateVolumeAttributesClass(c *storagev1.VolumeAttributesClass) field.ErrorList {
	path := field.NewPath("parameters")
	errs := append(validateProvisioner(c.DriverName, field.NewPath("driverName")), validateStorageParameters(c.Parameters, path)...)
	if len(c.Parameters) == 0 {
		errs = append(errs, field.Required(path, "must contain at least one key/value pair"))
	}
	return errs
}

func validateVolumeAttributesClassUpdate(c, old *storagev1.VolumeAttributesClass) field.ErrorList {
	var errs field.ErrorList
	if c.DriverName != old.DriverName {
		errs = append(errs, field.Forbidden(field.NewPath("driverName"), "updates to driverName are forbidden."))
	}
	if !reflect.DeepEqual(c.Parameters, old.Parameters) {
		errs = append(errs, field.Forbidden(field.NewPath("parameters"), "updates to parameters are forbidden."))
	}
	return append(errs, validateVolumeAttributesClass(c)...)
}
