package kinds

import (
	"context"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico/backends/core/kinds/devices"
	"portico/backends/core/kinds/rules"
	"portico/resource"
	"portico/resource/rest"
)

// resourceClaimTemplates is the row of resource.k8s.io/v1 ResourceClaimTemplate.
func resourceClaimTemplates(cfg Config) *rest.Kind {
	return &rest.Kind{
		Info: resource.Info{
			Group: resourcev1.GroupName, Versions: []string{"v1"}, Resource: "resourceclaimtemplates", Kind: "ResourceClaimTemplate", Namespaced: true,
		},
		Strategy: rest.Strategy{
			Default:       onDefault(devices.SetObjectDefaults_ResourceClaimTemplate),
			PrepareCreate: onCreate(func(t *resourcev1.ResourceClaimTemplate) { devices.DropSpec(&t.Spec.Spec, nil) }),
			PrepareUpdate: onUpdate(func(t, old *resourcev1.ResourceClaimTemplate) { devices.DropSpec(&t.Spec.Spec, &old.Spec.Spec) }),
			Validate: func(ctx context.Context, obj rest.Object) field.ErrorList {
				t := obj.(*resourcev1.ResourceClaimTemplate)
				return append(cfg.deviceAdmin(ctx, t.Namespace, devices.AdminAccess(&t.Spec.Spec)), validateClaimTemplate(t, nil)...)
			},
			ValidateUpdate: checkUpdate(validateClaimTemplate),
		},
		Columns: []metav1.TableColumnDefinition{nameColumn(), ageColumn()},
		Cells: cells(func(t *resourcev1.ResourceClaimTemplate) []any {
			return []any{t.Name, age(t.CreationTimestamp)}
		}),
		UnconditionalUpdate: true,
		ReturnDeleted:       true,
	}
}

func validateClaimTemplate(t, old *resourcev1.ResourceClaimTemplate) field.ErrorList {
	return append(rules.TemplateMeta(&t.Spec.ObjectMeta, field.NewPath("spec", "metadata")), devices.Template(t, old)...)
}
