// Package upstream has the rules of kube-apiserver, with which its tests compare those of Portico.
//
// Runs in: tests.
package upstream

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/registry/rest"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"k8s.io/kubernetes/pkg/apis/admissionregistration"
	_ "k8s.io/kubernetes/pkg/apis/admissionregistration/install"
	_ "k8s.io/kubernetes/pkg/apis/apps/install"
	_ "k8s.io/kubernetes/pkg/apis/autoscaling/install"
	_ "k8s.io/kubernetes/pkg/apis/batch/install"
	_ "k8s.io/kubernetes/pkg/apis/certificates/install"
	_ "k8s.io/kubernetes/pkg/apis/coordination/install"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	_ "k8s.io/kubernetes/pkg/apis/discovery/install"
	_ "k8s.io/kubernetes/pkg/apis/events/install"
	_ "k8s.io/kubernetes/pkg/apis/extensions/install"
	_ "k8s.io/kubernetes/pkg/apis/networking/install"
	_ "k8s.io/kubernetes/pkg/apis/node/install"
	_ "k8s.io/kubernetes/pkg/apis/policy/install"
	_ "k8s.io/kubernetes/pkg/apis/resource/install"
	_ "k8s.io/kubernetes/pkg/apis/scheduling/install"
	_ "k8s.io/kubernetes/pkg/apis/storage/install"
	_ "k8s.io/kubernetes/pkg/apis/storagemigration/install"
	"k8s.io/kubernetes/pkg/registry/admissionregistration/mutatingadmissionpolicy"
	"k8s.io/kubernetes/pkg/registry/admissionregistration/mutatingadmissionpolicybinding"
	"k8s.io/kubernetes/pkg/registry/admissionregistration/mutatingwebhookconfiguration"
	"k8s.io/kubernetes/pkg/registry/admissionregistration/resolver"
	"k8s.io/kubernetes/pkg/registry/admissionregistration/validatingadmissionpolicy"
	"k8s.io/kubernetes/pkg/registry/admissionregistration/validatingadmissionpolicybinding"
	"k8s.io/kubernetes/pkg/registry/admissionregistration/validatingwebhookconfiguration"
	"k8s.io/kubernetes/pkg/registry/apps/controllerrevision"
	"k8s.io/kubernetes/pkg/registry/apps/daemonset"
	"k8s.io/kubernetes/pkg/registry/apps/deployment"
	"k8s.io/kubernetes/pkg/registry/apps/replicaset"
	"k8s.io/kubernetes/pkg/registry/apps/statefulset"
	"k8s.io/kubernetes/pkg/registry/autoscaling/horizontalpodautoscaler"
	"k8s.io/kubernetes/pkg/registry/batch/cronjob"
	"k8s.io/kubernetes/pkg/registry/batch/job"
	"k8s.io/kubernetes/pkg/registry/certificates/certificates"
	"k8s.io/kubernetes/pkg/registry/certificates/clustertrustbundle"
	"k8s.io/kubernetes/pkg/registry/certificates/podcertificaterequest"
	"k8s.io/kubernetes/pkg/registry/coordination/lease"
	"k8s.io/kubernetes/pkg/registry/core/configmap"
	"k8s.io/kubernetes/pkg/registry/core/endpoint"
	"k8s.io/kubernetes/pkg/registry/core/event"
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
	"k8s.io/kubernetes/pkg/registry/core/service"
	"k8s.io/kubernetes/pkg/registry/core/serviceaccount"
	"k8s.io/kubernetes/pkg/registry/discovery/endpointslice"
	"k8s.io/kubernetes/pkg/registry/networking/ingress"
	"k8s.io/kubernetes/pkg/registry/networking/ingressclass"
	"k8s.io/kubernetes/pkg/registry/networking/ipaddress"
	"k8s.io/kubernetes/pkg/registry/networking/networkpolicy"
	"k8s.io/kubernetes/pkg/registry/networking/servicecidr"
	"k8s.io/kubernetes/pkg/registry/node/runtimeclass"
	"k8s.io/kubernetes/pkg/registry/policy/poddisruptionbudget"
	"k8s.io/kubernetes/pkg/registry/resource/deviceclass"
	"k8s.io/kubernetes/pkg/registry/resource/devicetaintrule"
	"k8s.io/kubernetes/pkg/registry/resource/resourceclaim"
	"k8s.io/kubernetes/pkg/registry/resource/resourceclaimtemplate"
	"k8s.io/kubernetes/pkg/registry/resource/resourceslice"
	"k8s.io/kubernetes/pkg/registry/scheduling/priorityclass"
	"k8s.io/kubernetes/pkg/registry/storage/csidriver"
	"k8s.io/kubernetes/pkg/registry/storage/csinode"
	"k8s.io/kubernetes/pkg/registry/storage/csistoragecapacity"
	"k8s.io/kubernetes/pkg/registry/storage/storageclass"
	"k8s.io/kubernetes/pkg/registry/storage/volumeattachment"
	"k8s.io/kubernetes/pkg/registry/storage/volumeattributesclass"
	"k8s.io/kubernetes/pkg/registry/storagemigration/storagemigration"
	"k8s.io/utils/clock"

	"portico/resource"
)

// byGroup are strategies by group and version, and then by resource.
type byGroup map[string]map[string]rest.RESTUpdateStrategy

// strategies are those of the resources that kube-apiserver serves by default, by
// group, version and resource; those of subresources are named resource/subresource and
// are for updates alone.
func strategies() map[schema.GroupVersionResource]rest.RESTUpdateStrategy {
	out := map[schema.GroupVersionResource]rest.RESTUpdateStrategy{}
	for _, table := range []byGroup{coreStrategies(), admissionStrategies(), workloadStrategies(), otherStrategies()} {
		for name, resources := range table {
			gv, err := schema.ParseGroupVersion(name)
			if err != nil {
				panic(err)
			}
			for r, s := range resources {
				out[gv.WithResource(r)] = s
			}
		}
	}
	return out
}

func coreStrategies() byGroup {
	return byGroup{
		"v1": {
			"configmaps": configmap.Strategy, "endpoints": endpoint.Strategy, "events": event.Strategy,
			"limitranges": limitrange.Strategy,
			"namespaces":  namespace.Strategy, "namespaces/status": namespace.StatusStrategy, "namespaces/finalize": namespace.FinalizeStrategy,
			"nodes": node.Strategy, "nodes/status": node.StatusStrategy,
			"persistentvolumes": persistentvolume.Strategy, "persistentvolumes/status": persistentvolume.StatusStrategy,
			"persistentvolumeclaims": persistentvolumeclaim.Strategy, "persistentvolumeclaims/status": persistentvolumeclaim.StatusStrategy,
			"pods": pod.Strategy, "pods/status": pod.StatusStrategy, "pods/ephemeralcontainers": pod.EphemeralContainersStrategy, "pods/resize": pod.ResizeStrategy,
			"podtemplates":           podtemplate.Strategy,
			"replicationcontrollers": replicationcontroller.Strategy, "replicationcontrollers/status": replicationcontroller.StatusStrategy,
			"resourcequotas": resourcequota.Strategy, "resourcequotas/status": resourcequota.StatusStrategy,
			"secrets":  secret.Strategy,
			"services": service.Strategy, "services/status": service.StatusStrategy,
			"serviceaccounts": serviceaccount.Strategy,
		},
	}
}

func admissionStrategies() byGroup {
	// Policies may refer to parameters of kinds that their authors may read.
	everything := authorizerfactory.NewAlwaysAllowAuthorizer()
	resources := resolver.ResourceResolverFunc(func(gvk schema.GroupVersionKind) (schema.GroupVersionResource, error) {
		plural, _ := meta.UnsafeGuessKindToResource(gvk)
		return plural, nil
	})
	validatingPolicies := validatingadmissionpolicy.NewStrategy(everything, resources)
	return byGroup{
		"admissionregistration.k8s.io/v1": {
			"mutatingadmissionpolicies":       mutatingadmissionpolicy.NewStrategy(everything, resources),
			"mutatingadmissionpolicybindings": mutatingadmissionpolicybinding.NewStrategy(everything, policies{}, resources),
			"mutatingwebhookconfigurations":   mutatingwebhookconfiguration.Strategy,
			"validatingadmissionpolicies":     validatingPolicies, "validatingadmissionpolicies/status": validatingadmissionpolicy.NewStatusStrategy(validatingPolicies),
			"validatingadmissionpolicybindings": validatingadmissionpolicybinding.NewStrategy(everything, policies{}, resources),
			"validatingwebhookconfigurations":   validatingwebhookconfiguration.Strategy,
		},
	}
}

func workloadStrategies() byGroup {
	return byGroup{
		"apps/v1": {
			"controllerrevisions": controllerrevision.Strategy,
			"daemonsets":          daemonset.Strategy, "daemonsets/status": daemonset.StatusStrategy,
			"deployments": deployment.Strategy, "deployments/status": deployment.StatusStrategy,
			"replicasets": replicaset.Strategy, "replicasets/status": replicaset.StatusStrategy,
			"statefulsets": statefulset.Strategy, "statefulsets/status": statefulset.StatusStrategy,
		},
		"autoscaling/v1": {
			"horizontalpodautoscalers": horizontalpodautoscaler.Strategy, "horizontalpodautoscalers/status": horizontalpodautoscaler.StatusStrategy,
		},
		"autoscaling/v2": {
			"horizontalpodautoscalers": horizontalpodautoscaler.Strategy, "horizontalpodautoscalers/status": horizontalpodautoscaler.StatusStrategy,
		},
		"batch/v1": {
			"cronjobs": cronjob.Strategy, "cronjobs/status": cronjob.StatusStrategy,
			"jobs": job.Strategy, "jobs/status": job.StatusStrategy,
		},
		"policy/v1": {
			"poddisruptionbudgets": poddisruptionbudget.Strategy, "poddisruptionbudgets/status": poddisruptionbudget.StatusStrategy,
		},
	}
}

func otherStrategies() byGroup {
	everything := authorizerfactory.NewAlwaysAllowAuthorizer()
	podRequests := podcertificaterequest.NewStrategy()
	claims := resourceclaim.NewStrategy(namespaces{}, everything)
	return byGroup{
		"certificates.k8s.io/v1": {
			"certificatesigningrequests": certificates.Strategy, "certificatesigningrequests/status": certificates.StatusStrategy, "certificatesigningrequests/approval": certificates.ApprovalStrategy,
			"clustertrustbundles":    clustertrustbundle.Strategy,
			"podcertificaterequests": podRequests, "podcertificaterequests/status": podcertificaterequest.NewStatusStrategy(podRequests, everything, clock.RealClock{}),
		},
		"coordination.k8s.io/v1": {"leases": lease.Strategy},
		"discovery.k8s.io/v1":    {"endpointslices": endpointslice.Strategy},
		"events.k8s.io/v1":       {"events": event.Strategy},
		"networking.k8s.io/v1": {
			"ingresses": ingress.Strategy, "ingresses/status": ingress.StatusStrategy,
			"ingressclasses": ingressclass.Strategy, "ipaddresses": ipaddress.Strategy, "networkpolicies": networkpolicy.Strategy,
			"servicecidrs": servicecidr.Strategy, "servicecidrs/status": servicecidr.StatusStrategy,
		},
		"node.k8s.io/v1": {"runtimeclasses": runtimeclass.Strategy},
		"resource.k8s.io/v1": {
			"deviceclasses":    deviceclass.Strategy,
			"devicetaintrules": devicetaintrule.Strategy, "devicetaintrules/status": devicetaintrule.StatusStrategy,
			"resourceclaims": claims, "resourceclaims/status": resourceclaim.NewStatusStrategy(claims),
			"resourceclaimtemplates": resourceclaimtemplate.NewStrategy(namespaces{}),
			"resourceslices":         resourceslice.Strategy,
		},
		"scheduling.k8s.io/v1": {"priorityclasses": priorityclass.Strategy},
		"storage.k8s.io/v1": {
			"csidrivers": csidriver.Strategy,
			"csinodes":   csinode.Strategy, "csinodes/status": csinode.StatusStrategy,
			"csistoragecapacities": csistoragecapacity.Strategy, "storageclasses": storageclass.Strategy,
			"volumeattachments": volumeattachment.Strategy, "volumeattachments/status": volumeattachment.StatusStrategy,
			"volumeattributesclasses": volumeattributesclass.Strategy,
		},
		"storagemigration.k8s.io/v1": {
			"storageversionmigrations": storagemigration.Strategy, "storageversionmigrations/status": storagemigration.StatusStrategy,
		},
	}
}

// namespaces has every namespace, without labels.
type namespaces struct{ typedcorev1.NamespaceInterface }

func (namespaces) Get(_ context.Context, name string, _ metav1.GetOptions) (*corev1.Namespace, error) {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, nil
}

// policies has every policy, with parameters of kind ConfigMap.
type policies struct{}

func (policies) GetMutatingAdmissionPolicy(context.Context, string) (*admissionregistration.MutatingAdmissionPolicy, error) {
	return &admissionregistration.MutatingAdmissionPolicy{Spec: admissionregistration.MutatingAdmissionPolicySpec{
		ParamKind: &admissionregistration.ParamKind{APIVersion: "v1", Kind: "ConfigMap"},
	}}, nil
}

func (policies) GetValidatingAdmissionPolicy(context.Context, string) (*admissionregistration.ValidatingAdmissionPolicy, error) {
	return &admissionregistration.ValidatingAdmissionPolicy{Spec: admissionregistration.ValidatingAdmissionPolicySpec{
		ParamKind: &admissionregistration.ParamKind{APIVersion: "v1", Kind: "ConfigMap"},
	}}, nil
}

// allow is an authorizer of Portico's rules that permits everything, as everything does for
// those of kube-apiserver.
func allow(context.Context, *resource.Action) error { return nil }
