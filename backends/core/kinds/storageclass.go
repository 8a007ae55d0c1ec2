package kinds

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"portico/backends/core/kinds/rules"
	"portico/resource"
	"portico/resource/rest"
)

const (
	// maxStorageParameters and maxStorageParameterBytes bound the parameters of a class.
	maxStorageParameters     = 512
	maxStorageParameterBytes = 256 << 10
)

func storageInfo(name, kind string, short ...string) resource.Info {
	return resource.Info{Group: storagev1.GroupName, Versions: []string{"v1"}, Resource: name, Kind: kind, ShortNames: short}
}

// storageClasses is the row of storage.k8s.io/v1 StorageClass.
func storageClasses() *rest.Kind {
	return &rest.Kind{
		Info: storageInfo("storageclasses", "StorageClass", "sc"),
		Strategy: rest.Strategy{
			Default: onDefault(func(c *storagev1.StorageClass) {
				rules.Default(&c.ReclaimPolicy, corev1.PersistentVolumeReclaimDelete)
				rules.Default(&c.VolumeBindingMode, storagev1.VolumeBindingImmediate)
			}),
			Validate:       check(validateStorageClass),
			ValidateUpdate: checkUpdate(validateStorageClassUpdate),
			Warnings:       warn(storageClassWarnings),
		},
		Columns: []metav1.TableColumnDefinition{
			nameColumn(),
			column("Provisioner", "string", "The driver that makes volumes of the class."),
			column("ReclaimPolicy", "string", "What becomes of a volume that is released."),
			column("VolumeBindingMode", "string", "When volumes are made and bound."),
			column("AllowVolumeExpansion", "string", "Whether volumes may grow."),
			ageColumn(),
		},
		Cells: cells(func(c *storagev1.StorageClass) []any {
			return []any{
				c.Name, c.Provisioner, string(ptr.Deref(c.ReclaimPolicy, corev1.PersistentVolumeReclaimDelete)),
				string(ptr.Deref(c.VolumeBindingMode, storagev1.VolumeBindingImmediate)), ptr.Deref(c.AllowVolumeExpansion, false), age(c.CreationTimestamp),
			}
		}),
		UnconditionalUpdate: true,
		ReturnDeleted:       true,
	}
}

func storageClassWarnings(c *storagev1.StorageClass) []string {
	var out []string
	for i, term := range c.AllowedTopologies {
		for j, e := range term.MatchLabelExpressions {
			if why := rules.DeprecatedNodeLabel(e.Key); why != "" {
				path := field.NewPath("allowedTopologies").Index(i).Child("matchLabelExpressions").Index(j).Child("key")
				out = append(out, fmt.Sprintf("%s: %s", path, why))
			}
		}
	}
	return out
}

func validateStorageClass(c *storagev1.StorageClass) field.ErrorList {
	errs := validateProvisioner(c.Provisioner, field.NewPath("provisioner"))
	errs = append(errs, validateStorageParameters(c.Parameters, field.NewPath("parameters"))...)
	if p := ptr.Deref(c.ReclaimPolicy, ""); p != "" {
		errs = append(errs, rules.Supported(p, field.NewPath("reclaimPolicy"), corev1.PersistentVolumeReclaimDelete, corev1.PersistentVolumeReclaimRetain)...)
	}
	if mode := field.NewPath("volumeBindingMode"); c.VolumeBindingMode == nil {
		errs = append(errs, field.Required(mode, ""))
	} else {
		errs = append(errs, rules.Supported(*c.VolumeBindingMode, mode, storagev1.VolumeBindingImmediate, storagev1.VolumeBindingWaitForFirstConsumer)...)
	}
	return append(errs, validateAllowedTopologies(c.AllowedTopologies, field.NewPath("allowedTopologies"))...)
}

func validateStorageClassUpdate(c, old *storagev1.StorageClass) field.ErrorList {
	errs := validateStorageClass(c)
	fixed := func(name string, now, was any) {
		errs = append(errs, rules.Immutable(now, was, field.NewPath(name))...)
	}
	fixed("parameters", c.Parameters, old.Parameters)
	fixed("provisioner", c.Provisioner, old.Provisioner)
	fixed("reclaimPolicy", c.ReclaimPolicy, old.ReclaimPolicy)
	fixed("volumeBindingMode", c.VolumeBindingMode, old.VolumeBindingMode)
	return errs
}

func validateProvisioner(name string, path *field.Path) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	return rules.QualifiedName(strings.ToLower(name), path)
}

func validateStorageParameters(parameters map[string]string, path *field.Path) field.ErrorList {
	if len(parameters) > maxStorageParameters {
		return field.ErrorList{field.TooLong(path, "", maxStorageParameters)}
	}
	var errs field.ErrorList
	if _, ok := parameters[""]; ok {
		errs = append(errs, field.Invalid(path, "", "field can not be empty."))
	}
	if mapBytes(parameters) > maxStorageParameterBytes {
		errs = append(errs, field.TooLong(path, "", maxStorageParameterBytes))
	}
	return errs
}

// mapBytes returns the length of all keys and values.
func mapBytes(m map[string]string) int {
	n := 0
	for k, v := range m {
		n += len(k) + len(v)
	}
	return n
}

// validateAllowedTopologies validates the terms, each of which differs from the others. An
// empty term is refused too.
func validateAllowedTopologies(terms []corev1.TopologySelectorTerm, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := map[string]bool{"map[]": true}
	for i := range terms {
		at := path.Index(i).Child("matchLabelExpressions")
		values := map[string][]string{}
		for j, e := range terms[i].MatchLabelExpressions {
			at := at.Index(j)
			if len(e.Values) == 0 {
				errs = append(errs, field.Required(at.Child("values"), ""))
			}
			errs = append(errs, rules.Unique(e.Values, at.Child("values"))...)
			errs = append(errs, metav1validation.ValidateLabelName(e.Key, at.Child("key"))...)
			if _, twice := values[e.Key]; twice {
				errs = append(errs, field.Duplicate(at.Child("key"), e.Key))
			}
			values[e.Key] = slices.Compact(slices.Sorted(slices.Values(e.Values)))
		}
		term := fmt.Sprintf("%q", values) // has sorted keys
		if seen[term] {
			errs = append(errs, field.Duplicate(at, ""))
		}
		seen[term] = true
	}
	return errs
}
