package kinds

import (
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico/backends/core/kinds/devices"
	"portico/resource"
	"portico/resource/rest"
)

// deviceClasses is the row of resource.k8s.io/v1 DeviceClass.
func deviceClasses() *rest.Kind {
	return &rest.Kind{
		Info: resource.Info{
			Group: resourcev1.GroupName, Versions: []string{"v1"}, Resource: "deviceclasses", Kind: "DeviceClass",
		},
		Strategy: rest.Strategy{
			ValidateName:    func(string, bool) []string { return nil }, // devices.Class does
			TrackGeneration: true,
			Validate:        check(func(c *resourcev1.DeviceClass) field.ErrorList { return devices.Class(c, nil) }),
			ValidateUpdate:  checkUpdate(devices.Class),
		},
		Columns: []metav1.TableColumnDefinition{nameColumn(), ageColumn()},
		Cells: cells(func(c *resourcev1.DeviceClass) []any {
			return []any{c.Name, age(c.CreationTimestamp)}
		}),
		UnconditionalUpdate: true,
		ReturnDeleted:       true,
	}
}
