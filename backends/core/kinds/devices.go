package kinds

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/kubernetes/pkg/registry/resource/deviceclass"
	"k8s.io/kubernetes/pkg/registry/resource/devicetaintrule"
	"k8s.io/kubernetes/pkg/registry/resource/resourceclaim"
	"k8s.io/kubernetes/pkg/registry/resource/resourceclaimtemplate"
	"k8s.io/kubernetes/pkg/registry/resource/resourceslice"
)

// deviceRows are the resources of resource.k8s.io.
func deviceRows(cfg Config) []row {
	const group = resourcev1.GroupName
	namespaces := namespaceLabels{label: cfg.NamespaceLabel}
	claims := resourceclaim.NewStrategy(namespaces, cfg.authorizer())
	return []row{
		{Info: clusterwide(group, "deviceclasses", "DeviceClass"), strategy: deviceclass.Strategy, returnDeleted: true},
		{
			Info:     clusterwide(group, "devicetaintrules", "DeviceTaintRule"),
			strategy: devicetaintrule.Strategy, status: devicetaintrule.StatusStrategy,
		},
		{
			Info:     namespaced(group, "resourceclaims", "ResourceClaim"),
			strategy: claims, status: resourceclaim.NewStatusStrategy(claims), returnDeleted: true,
		},
		{
			Info:     namespaced(group, "resourceclaimtemplates", "ResourceClaimTemplate"),
			strategy: resourceclaimtemplate.NewStrategy(namespaces), returnDeleted: true,
		},
		{
			Info:     clusterwide(group, "resourceslices", "ResourceSlice"),
			strategy: resourceslice.Strategy, fields: fieldsFrom(resourceslice.GetAttrs),
			fieldLabels:   []string{resourcev1.ResourceSliceSelectorNodeName, resourcev1.ResourceSliceSelectorDriver, resourcev1.ResourceSliceSelectorPoolName},
			returnDeleted: true,
		},
	}
}

// namespaceLabels is a client of namespaces that returns their label for administrators' access to devices. It has no
// other method than Get.
type namespaceLabels struct {
	typedcorev1.NamespaceInterface
	label func(ctx context.Context, namespace, label string) (string, error)
}

// Get returns a namespace without anything but its name and that label.
func (n namespaceLabels) Get(ctx context.Context, name string, _ metav1.GetOptions) (*corev1.Namespace, error) {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if n.label == nil {
		return ns, nil
	}
	const key = resourcev1.DRAAdminNamespaceLabelKey
	value, err := n.label(ctx, name, key)
	if err != nil {
		return nil, err
	}
	ns.Labels = map[string]string{key: value}
	return ns, nil
}
