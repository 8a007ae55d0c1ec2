package kinds

import (
	"encoding/json"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico/resource"
	"portico/resource/rest"
)

// controllerRevisions is the row of apps/v1 ControllerRevision.
func controllerRevisions() *rest.Kind {
	return &rest.Kind{
		Info: resource.Info{
			Group: appsv1.GroupName, Versions: []string{"v1"}, Resource: "controllerrevisions", Kind: "ControllerRevision", Namespaced: true,
		},
		Strategy: rest.Strategy{
			Validate: check(func(r *appsv1.ControllerRevision) field.ErrorList {
				return append(nonNegative(&r.Revision, field.NewPath("revision")), validateRevisionData(r.Data.Raw, field.NewPath("data"))...)
			}),
			ValidateUpdate: checkUpdate(func(r, old *appsv1.ControllerRevision) field.ErrorList {
				errs := nonNegative(&r.Revision, field.NewPath("revision"))
				return append(errs, apivalidation.ValidateImmutableField(r.Data, old.Data, field.NewPath("data"))...)
			}),
		},
		Columns: []metav1.TableColumnDefinition{
			nameColumn(),
			column("Controller", "string", "The object that the revision is of."),
			column("Revision", "string", "The number of the revision."),
			ageColumn(),
		},
		Cells: cells(func(r *appsv1.ControllerRevision) []any {
			return []any{r.Name, controllerOf(r), r.Revision, age(r.CreationTimestamp)}
		}),
		UnconditionalUpdate: true,
	}
}

// controllerOf returns the kind and name of the owner that controls an object.
func controllerOf(obj rest.Object) string {
	ref := metav1.GetControllerOfNoCopy(obj)
	if ref == nil {
		return none
	}
	kind := schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind).GroupKind()
	if kind.Empty() {
		return ref.Name
	}
	return strings.ToLower(kind.String()) + "/" + ref.Name
}

// validateRevisionData requires a JSON object.
func validateRevisionData(data []byte, path *field.Path) field.ErrorList {
	if data == nil {
		return field.ErrorList{field.Required(path, "data is mandatory")}
	}
	var v any
	if err := json.Unmarshal(data, &v); err != nil {
		return field.ErrorList{field.Invalid(path, "<value omitted>", fmt.Sprintf("error parsing data: %v", err))}
	}
	if v == nil {
		return field.ErrorList{field.Required(path, "data is mandatory")}
	}
	if _, ok := v.(map[string]any); !ok {
		return field.ErrorList{field.Required(path, "data must be a valid JSON object")}
	}
	return nil
}
