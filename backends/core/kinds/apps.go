package kinds

import (
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/kubernetes/pkg/registry/apps/controllerrevision"
	"k8s.io/kubernetes/pkg/registry/apps/daemonset"
	"k8s.io/kubernetes/pkg/registry/apps/deployment"
	"k8s.io/kubernetes/pkg/registry/apps/replicaset"
	"k8s.io/kubernetes/pkg/registry/apps/statefulset"

	"portico/resource"
	"portico/resource/rest"
)

// appsRows are the resources of apps.
func appsRows() []row {
	info := func(plural, kind string, short ...string) resource.Info {
		return namespaced(appsv1.GroupName, plural, kind, short...)
	}
	return []row{
		{Info: info("controllerrevisions", "ControllerRevision"), strategy: controllerrevision.Strategy},
		{
			Info:     inAll(info("daemonsets", "DaemonSet", "ds")),
			strategy: daemonset.Strategy, status: daemonset.StatusStrategy,
		},
		{
			Info:     inAll(info("deployments", "Deployment", "deploy")),
			strategy: deployment.Strategy, status: deployment.StatusStrategy,
			customize: func(k *rest.Kind) {
				addSubresources(k, scale(&k.Info, func(d *appsv1.Deployment) **int32 { return &d.Spec.Replicas },
					func(d *appsv1.Deployment) (int32, labels.Selector, error) {
						return selected(d.Status.Replicas, d.Spec.Selector)
					}))
			},
		},
		{
			Info:     inAll(info("replicasets", "ReplicaSet", "rs")),
			strategy: replicaset.Strategy, status: replicaset.StatusStrategy,
			customize: func(k *rest.Kind) {
				addSubresources(k, scale(&k.Info, func(rs *appsv1.ReplicaSet) **int32 { return &rs.Spec.Replicas },
					func(rs *appsv1.ReplicaSet) (int32, labels.Selector, error) {
						return selected(rs.Status.Replicas, rs.Spec.Selector)
					}))
			},
		},
		{
			Info:     inAll(info("statefulsets", "StatefulSet", "sts")),
			strategy: statefulset.Strategy, status: statefulset.StatusStrategy,
			customize: func(k *rest.Kind) {
				// Protobuf lacks apiVersion and kind of volumeClaimTemplates.
				k.Codec = rest.TypedJSON(scheme, k.GVK(k.Storage()), convert)
				readWithDefaults(k)
				addSubresources(k, scale(&k.Info, func(sts *appsv1.StatefulSet) **int32 { return &sts.Spec.Replicas },
					func(sts *appsv1.StatefulSet) (int32, labels.Selector, error) {
						return selected(sts.Status.Replicas, sts.Spec.Selector)
					}))
			},
		},
	}
}
