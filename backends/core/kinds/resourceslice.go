package kinds

import (
	"fmt"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"portico/backends/core/kinds/devices"
	"portico/resource"
	"portico/resource/rest"
)

// resourceSlices is the row of resource.k8s.io/v1 ResourceSlice.
func resourceSlices() *rest.Kind {
	return &rest.Kind{
		Info: resource.Info{
			Group: resourcev1.GroupName, Versions: []string{"v1"}, Resource: "resourceslices", Kind: "ResourceSlice",
		},
		Strategy: rest.Strategy{
			Default:         onDefault(devices.SetObjectDefaults_ResourceSlice),
			TrackGeneration: true,
			PrepareCreate:   onCreate(func(s *resourcev1.ResourceSlice) { devices.DropSlice(s, nil) }),
			PrepareUpdate: onUpdate(func(s, old *resourcev1.ResourceSlice) {
				// As in kube-apiserver, fields that are dropped are a change.
				if !equality.Semantic.DeepEqual(s.Spec, old.Spec) {
					s.Generation = old.Generation + 1
				}
				devices.DropSlice(s, old)
			}),
			SpecChanged:    changed(func(s, old *resourcev1.ResourceSlice) bool { return s.Generation != old.Generation }),
			Validate:       check(func(s *resourcev1.ResourceSlice) field.ErrorList { return devices.Slice(s, nil) }),
			ValidateUpdate: checkUpdate(devices.Slice),
			Warnings: warn(func(s *resourcev1.ResourceSlice) []string {
				if s.Spec.Driver == strings.ToLower(s.Spec.Driver) {
					return nil
				}
				return []string{fmt.Sprintf("spec.driver: driver names should be lowercase; %q contains uppercase characters", s.Spec.Driver)}
			}),
		},
		Columns: []metav1.TableColumnDefinition{
			nameColumn(),
			column("Node", "string", "The node that has the devices, if they are on one node."),
			column("Driver", "string", "The driver of the devices."),
			column("Pool", "string", "The pool that the devices belong to."),
			ageColumn(),
		},
		Cells: cells(func(s *resourcev1.ResourceSlice) []any {
			return []any{s.Name, ptr.Deref(s.Spec.NodeName, ""), s.Spec.Driver, s.Spec.Pool.Name, age(s.CreationTimestamp)}
		}),
		FieldLabels: []string{resourcev1.ResourceSliceSelectorNodeName, resourcev1.ResourceSliceSelectorDriver, resourcev1.ResourceSliceSelectorPoolName},
		Fields: fieldsOf(func(s *resourcev1.ResourceSlice) map[string]string {
			return map[string]string{
				resourcev1.ResourceSliceSelectorNodeName: ptr.Deref(s.Spec.NodeName, ""),
				resourcev1.ResourceSliceSelectorDriver:   s.Spec.Driver,
				resourcev1.ResourceSliceSelectorPoolName: s.Spec.Pool.Name,
			}
		}),
		UnconditionalUpdate: true,
		ReturnDeleted:       true,
	}
}
