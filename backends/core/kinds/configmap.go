package kinds

import (
	"maps"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"portico/backends/core/kinds/rules"
	"portico/resource"
	"portico/resource/rest"
)

// configMaps is the row of v1 ConfigMap.
func configMaps() *rest.Kind {
	return &rest.Kind{
		Info: resource.Info{
			Versions: []string{"v1"}, Resource: "configmaps", Kind: "ConfigMap", ShortNames: []string{"cm"}, Namespaced: true,
		},
		Strategy: rest.Strategy{
			Validate:       check(validateConfigMap),
			ValidateUpdate: checkUpdate(validateConfigMapUpdate),
		},
		Columns: []metav1.TableColumnDefinition{
			nameColumn(), column("Data", "string", "The number of keys in data and binaryData."), ageColumn(),
		},
		Cells: cells(func(cm *corev1.ConfigMap) []any {
			return []any{cm.Name, int64(len(cm.Data) + len(cm.BinaryData)), age(cm.CreationTimestamp)}
		}),
		UnconditionalUpdate: true,
	}
}

func validateConfigMap(cm *corev1.ConfigMap) field.ErrorList {
	var errs field.ErrorList
	size := 0
	for _, key := range slices.Sorted(maps.Keys(cm.Data)) {
		path := field.NewPath("data").Key(key)
		errs = append(errs, validateDataKey(key, path)...)
		if _, twice := cm.BinaryData[key]; twice {
			errs = append(errs, field.Invalid(path, key, "duplicate of key present in binaryData"))
		}
		size += len(cm.Data[key])
	}
	for _, key := range slices.Sorted(maps.Keys(cm.BinaryData)) {
		errs = append(errs, validateDataKey(key, field.NewPath("binaryData").Key(key))...)
		size += len(cm.BinaryData[key])
	}
	if size > corev1.MaxSecretSize {
		// The limit is that of data and binaryData together, so the error has no field.
		errs = append(errs, field.TooLong(field.NewPath(""), "", corev1.MaxSecretSize))
	}
	return errs
}

func validateConfigMapUpdate(cm, old *corev1.ConfigMap) field.ErrorList {
	var errs field.ErrorList
	if ptr.Deref(old.Immutable, false) {
		errs = append(errs, validateFrozen(cm.Immutable, map[string]bool{
			"binaryData": !reflect.DeepEqual(cm.BinaryData, old.BinaryData),
			"data":       !reflect.DeepEqual(cm.Data, old.Data),
		})...)
	}
	return append(errs, validateConfigMap(cm)...)
}

// validateFrozen validates an update of an immutable ConfigMap or Secret: the flag is kept, and
// no field has changed.
func validateFrozen(immutable *bool, changed map[string]bool) field.ErrorList {
	const message = "field is immutable when `immutable` is set"
	var errs field.ErrorList
	if !ptr.Deref(immutable, false) {
		errs = append(errs, field.Forbidden(field.NewPath("immutable"), message))
	}
	for _, name := range slices.Sorted(maps.Keys(changed)) {
		if changed[name] {
			errs = append(errs, field.Forbidden(field.NewPath(name), message))
		}
	}
	return errs
}

func validateDataKey(key string, path *field.Path) field.ErrorList {
	return rules.Invalid(path, key, validation.IsConfigMapKey(key))
}
