package kinds

import (
	"context"
	"slices"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	networkingv1 "k8s.io/api/networking/v1"
	nodev1 "k8s.io/api/node/v1"
	policyv1 "k8s.io/api/policy/v1"
	policyv1beta1 "k8s.io/api/policy/v1beta1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	storagemigrationv1 "k8s.io/api/storagemigration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/client-go/applyconfigurations"

	"portico/resource/rest"
)

// Config has the functions of the server that the kinds use.
type Config struct {
	// AllocateService sets the cluster IPs (one for each of spec.ipFamilies), node ports and
	// health check port that svc needs and lacks, and claims those that svc names. old is nil
	// on create; what it has is claimed already. svc is not validated but for the fields of
	// addresses. With dryRun nothing is claimed. release, if not nil, frees what was claimed
	// and is called if the write fails. It is not called for ExternalName. Errors are
	// StatusErrors. nil: services get neither addresses nor ports.
	AllocateService func(ctx context.Context, svc, old *corev1.Service, dryRun bool) (release func(), err error)
	// ServiceFamilies are the families of cluster IPs, one or two, the primary one first.
	// Default: IPv4.
	ServiceFamilies []corev1.IPFamily
	// CreateToken serves serviceaccounts/token; body is a decoded TokenRequest of
	// authentication.k8s.io/v1. nil: the subresource is not served.
	CreateToken rest.Call
	// BindPod serves pods/binding and bindings; body is a Binding. EvictPod serves
	// pods/eviction; body is an Eviction of policy/v1 or v1beta1. nil: they are not served.
	BindPod, EvictPod rest.Call
	// Connections returns the subresources of "pods", "nodes" or "services" that are
	// connections. nil: none.
	Connections func(resource string) []rest.Subresource
	// NamespaceWarnings returns the Warnings of a namespace deletion. If it is nil, deletions have no Warnings.
	NamespaceWarnings func(ctx context.Context, namespace string) []string
	// NamespaceLabel returns the value of a label of a namespace. nil: namespaces have none.
	NamespaceLabel func(ctx context.Context, namespace, label string) (string, error)
	// Permissions check the rights of users beyond that to write.
	Permissions
	// Warn adds a Warning to the response. nil: there are no warnings about what a new object
	// was before it was prepared.
	Warn rest.Warn
	// EventTTL is how long an event is kept after its last write. Default: 1 h.
	EventTTL time.Duration
}

// All returns the rows of all kinds, those of the core group first. The rows share one scheme;
// they may be changed until they are served.
func All(cfg Config) []*rest.Kind {
	if cfg.Connections == nil {
		cfg.Connections = func(string) []rest.Subresource { return nil }
	}
	if cfg.Warn == nil {
		cfg.Warn = func(context.Context, string) {}
	}
	if cfg.EventTTL == 0 {
		cfg.EventTTL = time.Hour
	}
	if len(cfg.ServiceFamilies) == 0 {
		cfg.ServiceFamilies = []corev1.IPFamily{corev1.IPv4Protocol}
	}
	scheme := newScheme()
	all := slices.Concat(
		coreKinds(cfg, scheme), bindings(cfg),
		admissionKinds(cfg, scheme),
		appsKinds(scheme),
		autoscalingKinds(scheme),
		batchKinds(),
		certificatesKinds(cfg),
		coordinationKinds(),
		discoveryKinds(),
		eventsKinds(cfg, scheme),
		networkingKinds(),
		nodeKinds(),
		policyKinds(scheme),
		resourceKinds(cfg),
		schedulingKinds(),
		storageKinds(),
		storageMigrationKinds(),
	)
	for _, k := range all {
		if k.Codec == nil {
			k.Codec = rest.Typed(scheme, k.GVK(k.Storage()))
		}
		k.Ownership = func() (managedfields.TypeConverter, error) { return applyconfigurations.NewTypeConverter(scheme), nil }
	}
	return all
}

func coreKinds(cfg Config, scheme *runtime.Scheme) []*rest.Kind {
	return []*rest.Kind{
		componentStatuses(), configMaps(), endpoints(), coreEvents(cfg, scheme), limitRanges(), namespaces(cfg), nodes(cfg), persistentVolumes(), persistentVolumeClaims(scheme), pods(cfg), podTemplates(),
		replicationControllers(), resourceQuotas(), secrets(), serviceAccounts(cfg), services(cfg, scheme),
	}
}

func admissionKinds(cfg Config, scheme *runtime.Scheme) []*rest.Kind {
	return []*rest.Kind{
		webhookConfigurations[*admissionregistrationv1.ValidatingWebhookConfiguration](scheme, "validatingwebhookconfigurations", "ValidatingWebhookConfiguration"),
		webhookConfigurations[*admissionregistrationv1.MutatingWebhookConfiguration](scheme, "mutatingwebhookconfigurations", "MutatingWebhookConfiguration"),
		validatingAdmissionPolicies(cfg), validatingAdmissionPolicyBindings(cfg),
		mutatingAdmissionPolicies(cfg), mutatingAdmissionPolicyBindings(cfg),
	}
}

func appsKinds(scheme *runtime.Scheme) []*rest.Kind {
	return []*rest.Kind{controllerRevisions(), daemonSets(), deployments(), replicaSets(), statefulSets(scheme)}
}

func autoscalingKinds(scheme *runtime.Scheme) []*rest.Kind {
	return []*rest.Kind{horizontalPodAutoscalers(scheme)}
}

func batchKinds() []*rest.Kind { return []*rest.Kind{cronJobs(), jobs()} }

func certificatesKinds(cfg Config) []*rest.Kind {
	return []*rest.Kind{certificateSigningRequests(), clusterTrustBundles(), podCertificateRequests(cfg)}
}

func coordinationKinds() []*rest.Kind { return []*rest.Kind{leases()} }

func discoveryKinds() []*rest.Kind { return []*rest.Kind{endpointSlices()} }

func eventsKinds(cfg Config, scheme *runtime.Scheme) []*rest.Kind {
	return []*rest.Kind{groupEvents(cfg, scheme)}
}

func networkingKinds() []*rest.Kind {
	return []*rest.Kind{ingresses(), ingressClasses(), ipAddresses(), networkPolicies(), serviceCIDRs()}
}

func nodeKinds() []*rest.Kind { return []*rest.Kind{runtimeClasses()} }

func policyKinds(scheme *runtime.Scheme) []*rest.Kind {
	return []*rest.Kind{podDisruptionBudgets(scheme)}
}

func storageMigrationKinds() []*rest.Kind { return []*rest.Kind{storageVersionMigrations()} }

func schedulingKinds() []*rest.Kind { return []*rest.Kind{priorityClasses()} }

func resourceKinds(cfg Config) []*rest.Kind {
	return []*rest.Kind{
		deviceClasses(), deviceTaintRules(), resourceClaims(cfg), resourceClaimTemplates(cfg), resourceSlices(),
	}
}

func storageKinds() []*rest.Kind {
	return []*rest.Kind{
		csiDrivers(), csiNodes(), csiStorageCapacities(), storageClasses(), volumeAttachments(), volumeAttributesClasses(),
	}
}

// newScheme returns a scheme of the served groups and of the bodies of subresources.
// Registering fixed types fails only by a programming error.
func newScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		admissionregistrationv1.AddToScheme, appsv1.AddToScheme, autoscalingv1.AddToScheme, autoscalingv2.AddToScheme,
		batchv1.AddToScheme, certificatesv1.AddToScheme, coordinationv1.AddToScheme, corev1.AddToScheme,
		discoveryv1.AddToScheme, eventsv1.AddToScheme, networkingv1.AddToScheme, nodev1.AddToScheme, policyv1.AddToScheme,
		resourcev1.AddToScheme, schedulingv1.AddToScheme, storagev1.AddToScheme, storagemigrationv1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			panic("register types: " + err.Error())
		}
	}
	scheme.AddKnownTypes(authenticationv1.SchemeGroupVersion, &authenticationv1.TokenRequest{})
	metav1.AddToGroupVersion(scheme, authenticationv1.SchemeGroupVersion)
	scheme.AddKnownTypes(policyv1beta1.SchemeGroupVersion, &policyv1beta1.Eviction{})
	metav1.AddToGroupVersion(scheme, policyv1beta1.SchemeGroupVersion)
	addStoredVersions(scheme)
	return scheme
}
