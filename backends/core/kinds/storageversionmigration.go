package kinds

import (
	"slices"
	"strings"

	storagemigrationv1 "k8s.io/api/storagemigration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico/resource"
	"portico/resource/rest"
)

type migration = storagemigrationv1.StorageVersionMigration

// storageVersionMigrations is the row of storagemigration.k8s.io/v1 StorageVersionMigration.
func storageVersionMigrations() *rest.Kind {
	name := nameColumn()
	name.Format = "" // as kube-apiserver
	return &rest.Kind{
		Info: resource.Info{
			Group: storagemigrationv1.GroupName, Versions: []string{"v1"}, Resource: "storageversionmigrations", Kind: "StorageVersionMigration",
		},
		Strategy: rest.Strategy{
			PrepareCreate: onCreate(func(m *migration) { m.Status = storagemigrationv1.StorageVersionMigrationStatus{} }),
			PrepareUpdate: onUpdate(func(m, old *migration) { old.Status.DeepCopyInto(&m.Status) }),
			Validate:      check(validateMigration),
			ValidateUpdate: checkUpdate(func(m, old *migration) field.ErrorList {
				return append(validateMigration(m), apivalidation.ValidateImmutableField(m.Spec, old.Spec, field.NewPath("spec"))...)
			}),
		},
		Subresources: []rest.Subresource{{Name: "status", Strategy: &rest.Strategy{
			Resets: []string{"metadata", "spec"},
			PrepareUpdate: onUpdate(func(m, old *migration) {
				m.Spec = old.Spec
				metav1.ResetObjectMetaForStatus(&m.ObjectMeta, &old.ObjectMeta)
			}),
			ValidateUpdate: checkUpdate(validateMigrationStatus),
		}}},
		Columns: []metav1.TableColumnDefinition{
			name, column("Resource", "string", "The resource that is migrated."), column("Status", "string", "How far the migration is."),
		},
		Cells: cells(func(m *migration) []any {
			state := "Unknown"
			for _, c := range m.Status.Conditions {
				if c.Status == metav1.ConditionTrue && slices.Contains(migrationStates, storagemigrationv1.MigrationConditionType(c.Type)) {
					state = c.Type
				}
			}
			return []any{m.Name, m.Spec.Resource.String(), state}
		}),
	}
}

var migrationStates = []storagemigrationv1.MigrationConditionType{
	storagemigrationv1.MigrationRunning, storagemigrationv1.MigrationFailed, storagemigrationv1.MigrationSucceeded,
}

func validateMigration(m *migration) field.ErrorList {
	path := field.NewPath("spec", "resource")
	var errs field.ErrorList
	joined := func(name, value string, messages []string) {
		if len(messages) > 0 {
			errs = append(errs, field.Invalid(path.Child(name), value, strings.Join(messages, ",")))
		}
	}
	group, name := m.Spec.Resource.Group, m.Spec.Resource.Resource
	if name == "" {
		errs = append(errs, field.Required(path.Child("resource"), "resource is required to be set"))
	} else {
		joined("resource", name, validation.IsDNS1035Label(name))
	}
	if group != "" {
		joined("group", group, validation.IsDNS1123Subdomain(group))
	}
	return errs
}

// validateMigrationStatus permits one end of a migration.
func validateMigrationStatus(m, old *migration) field.ErrorList {
	path := field.NewPath("status")
	var errs field.ErrorList
	version := func(bad bool, message string) {
		if bad {
			errs = append(errs, field.Invalid(path.Child("resourceVersion"), m.Status.ResourceVersion, message))
		}
	}
	conditions := func(bad bool, message string) {
		if bad {
			errs = append(errs, field.Invalid(path.Child("conditions"), m.Status.Conditions, message))
		}
	}
	if rv := m.Status.ResourceVersion; rv != "" {
		if _, err := resourceversion.CompareResourceVersion(rv, rv); err != nil {
			version(true, err.Error())
		}
	}
	errs = append(errs, metav1validation.ValidateConditions(m.Status.Conditions, path.Child("conditions"))...)
	version(old.Status.ResourceVersion != "" && old.Status.ResourceVersion != m.Status.ResourceVersion, "field is immutable")
	is := func(m *migration, t storagemigrationv1.MigrationConditionType) bool {
		return meta.IsStatusConditionTrue(m.Status.Conditions, string(t))
	}
	succeeded, failed := is(m, storagemigrationv1.MigrationSucceeded), is(m, storagemigrationv1.MigrationFailed)
	conditions(succeeded && failed, "Both success and failed conditions cannot be true at the same time")
	conditions(is(old, storagemigrationv1.MigrationSucceeded) && !succeeded, "Success condition cannot be set to false once it is true")
	conditions(is(old, storagemigrationv1.MigrationFailed) && !failed, "Failed condition cannot be set to false once it is true")
	return errs
}
