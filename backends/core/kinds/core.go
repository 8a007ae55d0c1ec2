package kinds

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	registry "k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/kubernetes/pkg/registry/core/configmap"
	"k8s.io/kubernetes/pkg/registry/core/endpoint"
	"k8s.io/kubernetes/pkg/registry/core/limitrange"
	"k8s.io/kubernetes/pkg/registry/core/namespace"
	"k8s.io/kubernetes/pkg/registry/core/node"
	"k8s.io/kubernetes/pkg/registry/core/persistentvolume"
	"k8s.io/kubernetes/pkg/registry/core/persistentvolumeclaim"
	"k8s.io/kubernetes/pkg/registry/core/pod"
	"k8s.io/kubernetes/pkg/registry/core/podtemplate"
	"k8s.io/kubernetes/pkg/registry/core/replicationcontroller"
	"k8s.io/kubernetes/pkg/registry/core/resourcequota"
	"k8s.io/kubernetes/pkg/registry/core/secret"
	"k8s.io/kubernetes/pkg/registry/core/serviceaccount"

	"portico/resource"
	"portico/resource/rest"
)

// coreRows are the resources of the core group, but events (event.go), services (service.go) and those that are not
// stored.
func coreRows(cfg Config) []row {
	info := func(plural, kind string, short ...string) resource.Info {
		return namespaced("", plural, kind, short...)
	}
	return []row{
		{Info: info("configmaps", "ConfigMap", "cm"), strategy: configmap.Strategy},
		{
			Info:     storedUnder("services/endpoints", info("endpoints", "Endpoints", "ep")),
			strategy: endpoint.Strategy,
		},
		{Info: info("limitranges", "LimitRange", "limits"), strategy: limitrange.Strategy, defaultTable: true},
		{
			Info:     clusterwide("", "namespaces", "Namespace", "ns"),
			strategy: namespace.Strategy, status: namespace.StatusStrategy,
			updates: map[string]registry.RESTUpdateStrategy{"finalize": namespace.FinalizeStrategy},
			fields:  fieldsFrom(namespace.GetAttrs), fieldLabels: []string{"status.phase"},
			returnDeleted: true,
			customize:     func(k *rest.Kind) { waitForContent(k, cfg) },
		},
		{
			Info:     storedUnder("minions", clusterwide("", "nodes", "Node", "no")),
			strategy: node.Strategy, status: node.StatusStrategy,
			fields: fieldsFrom(node.GetAttrs), fieldLabels: []string{"spec.unschedulable"},
			customize: func(k *rest.Kind) { addSubresources(k, cfg.Connections("nodes")...) },
		},
		{
			Info:     clusterwide("", "persistentvolumes", "PersistentVolume", "pv"),
			strategy: persistentvolume.Strategy, status: persistentvolume.StatusStrategy,
			returnDeleted: true,
		},
		{
			Info:     info("persistentvolumeclaims", "PersistentVolumeClaim", "pvc"),
			strategy: persistentvolumeclaim.Strategy, status: persistentvolumeclaim.StatusStrategy,
			returnDeleted: true,
			customize:     readWithDefaults,
		},
		{
			Info:     inAll(info("pods", "Pod", "po")),
			strategy: pod.Strategy, status: pod.StatusStrategy,
			updates: map[string]registry.RESTUpdateStrategy{"ephemeralcontainers": pod.EphemeralContainersStrategy, "resize": pod.ResizeStrategy},
			fields:  podFields,
			fieldLabels: []string{
				"spec.host", "spec.hostNetwork", "spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName",
				"status.nominatedNodeName", "status.phase", "status.podIP", "status.podIPs",
			},
			returnDeleted: true,
			customize: func(k *rest.Kind) {
				addSubresources(k, podCalls(cfg)...)
				addSubresources(k, cfg.Connections("pods")...)
			},
		},
		{Info: info("podtemplates", "PodTemplate"), strategy: podtemplate.Strategy, returnDeleted: true},
		{
			Info:     storedUnder("controllers", inAll(info("replicationcontrollers", "ReplicationController", "rc"))),
			strategy: replicationcontroller.Strategy, status: replicationcontroller.StatusStrategy,
			fields: fieldsFrom(replicationcontroller.GetAttrs), fieldLabels: []string{"status.replicas"},
			customize: func(k *rest.Kind) {
				addSubresources(k, scale(&k.Info, func(rc *corev1.ReplicationController) **int32 { return &rc.Spec.Replicas },
					func(rc *corev1.ReplicationController) (int32, labels.Selector, error) {
						return rc.Status.Replicas, labels.SelectorFromSet(rc.Spec.Selector), nil
					}))
			},
		},
		{
			Info:     info("resourcequotas", "ResourceQuota", "quota"),
			strategy: resourcequota.Strategy, status: resourcequota.StatusStrategy,
			returnDeleted: true,
		},
		{
			Info:     info("secrets", "Secret"),
			strategy: secret.Strategy,
			fields:   fieldsFrom(secret.GetAttrs), fieldLabels: []string{"type"},
		},
		{
			Info:     info("serviceaccounts", "ServiceAccount", "sa"),
			strategy: serviceaccount.Strategy, returnDeleted: true,
			customize: func(k *rest.Kind) { addSubresources(k, tokenRequests(cfg)...) },
		},
	}
}

// waitForContent makes the deletion of a namespace wait until its spec has no finalizers, which only the subresource
// finalize removes.
func waitForContent(k *rest.Kind, cfg Config) {
	// Without deletecollection: each deletion deletes the content of a namespace.
	k.Verbs = []string{"create", "delete", "get", "list", "patch", "update", "watch"}
	k.Strategy.BeginDelete = func(obj rest.Object) { obj.(*corev1.Namespace).Status.Phase = corev1.NamespaceTerminating }
	k.Strategy.Holds = func(obj rest.Object) bool { return len(obj.(*corev1.Namespace).Spec.Finalizers) > 0 }
	k.Strategy.DeleteWarnings = func(ctx context.Context, obj rest.Object) []string {
		if cfg.NamespaceWarnings == nil || !slices.Contains(obj.(*corev1.Namespace).Spec.Finalizers, corev1.FinalizerKubernetes) {
			return nil
		}
		return cfg.NamespaceWarnings(ctx, obj.GetName())
	}
	for i := range k.Subresources {
		if k.Subresources[i].Name == "finalize" {
			k.Subresources[i].Verbs = []string{"update"}
		}
	}
}

// podFields returns the fields of a pod. Clients of old releases call spec.nodeName spec.host, and status.podIPs is known
// but has no value.
func podFields(obj runtime.Object) map[string]string {
	values := fieldsFrom(pod.GetAttrs)(obj)
	if values != nil {
		values["spec.host"], values["status.podIPs"] = values["spec.nodeName"], ""
	}
	return values
}
