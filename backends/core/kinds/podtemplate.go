package kinds

import (
	"context"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico/backends/core/kinds/podspec"
	"portico/resource"
	"portico/resource/rest"
)

// podTemplates is the row of v1 PodTemplate.
func podTemplates() *rest.Kind {
	return &rest.Kind{
		Info:          resource.Info{Versions: []string{"v1"}, Resource: "podtemplates", Kind: "PodTemplate", Namespaced: true},
		ReturnDeleted: true,
		Strategy: rest.Strategy{
			Default:         onDefault(func(t *corev1.PodTemplate) { podspec.SetDefaults(&t.Template.Spec) }),
			TrackGeneration: true,
			SpecChanged:     changed(func(t, old *corev1.PodTemplate) bool { return !equality.Semantic.DeepEqual(t.Template, old.Template) }),
			PrepareCreate:   onCreate(func(t *corev1.PodTemplate) { podspec.DropTemplateFields(&t.Template, nil) }),
			PrepareUpdate:   onUpdate(func(t, old *corev1.PodTemplate) { podspec.DropTemplateFields(&t.Template, &old.Template) }),
			Validate: check(func(t *corev1.PodTemplate) field.ErrorList {
				return podspec.ValidateTemplate(&t.Template, field.NewPath("template"), podspec.Options{})
			}),
			ValidateUpdate: checkUpdate(func(t, old *corev1.PodTemplate) field.ErrorList {
				o := podspec.Options{Old: &old.Template.Spec, OldMeta: &old.Template.ObjectMeta}
				return podspec.ValidateTemplate(&t.Template, field.NewPath("template"), o)
			}),
			Warnings: func(_ context.Context, obj, old rest.Object) []string {
				t := obj.(*corev1.PodTemplate)
				if old != nil && equality.Semantic.DeepEqual(t.Template, old.(*corev1.PodTemplate).Template) {
					return nil
				}
				return podspec.TemplateWarnings(&t.Template, field.NewPath("template"))
			},
		},
		Columns: []metav1.TableColumnDefinition{
			nameColumn(),
			column("Containers", "string", "The names of the containers."),
			column("Images", "string", "The images of the containers."),
			column("Pod Labels", "string", "The labels of the pods."),
		},
		Cells: cells(func(t *corev1.PodTemplate) []any {
			names, images := containerCells(t.Template.Spec.Containers)
			return []any{t.Name, names, images, labels.FormatLabels(t.Template.Labels)}
		}),
		UnconditionalUpdate: true,
	}
}

// containerCells returns the cells of the names and of the images of containers.
func containerCells(containers []corev1.Container) (names, images string) {
	var n, i []string
	for _, c := range containers {
		n, i = append(n, c.Name), append(i, c.Image)
	}
	return strings.Join(n, ","), strings.Join(i, ",")
}
