package kinds

import (
	"context"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/client-go/applyconfigurations"

	"portico/resource"
	"portico/resource/rest"
)

// Config has the functions of the server that the kinds use.
type Config struct {
	// AllocateClusterIP sets spec.clusterIP and spec.clusterIPs of svc, one address for
	// each of spec.ipFamilies that has none, and claims the addresses that svc names. old
	// is nil on create; its addresses are claimed already. It is called on every write if
	// svc or old uses cluster IPs (is neither ExternalName nor headless), with ipFamilies
	// set and clusterIPs well formed. With dryRun nothing is claimed. release, if not nil,
	// frees what was claimed and is called if the write fails. Errors are StatusErrors.
	// nil: services get no addresses.
	AllocateClusterIP func(ctx context.Context, svc, old *corev1.Service, dryRun bool) (release func(), err error)
	// CreateToken serves serviceaccounts/token; body is a decoded TokenRequest of
	// authentication.k8s.io/v1. nil: the subresource is not served.
	CreateToken func(ctx context.Context, key resource.Key, body runtime.Object, dryRun bool) (runtime.Object, error)
	// EventTTL is how long an event is kept after its last write. Default: 1 h.
	EventTTL time.Duration
}

// All returns the rows of all kinds, those of the core group first. The rows share one scheme;
// they may be changed until they are served.
func All(cfg Config) []*rest.Kind {
	if cfg.EventTTL == 0 {
		cfg.EventTTL = time.Hour
	}
	scheme := newScheme()
	all := []*rest.Kind{
		namespaces(), configMaps(), secrets(), services(cfg), endpoints(), serviceAccounts(cfg),
		coreEvents(cfg), groupEvents(cfg, scheme),
		endpointSlices(),
		leases(),
		webhookConfigurations[*admissionregistrationv1.ValidatingWebhookConfiguration]("validatingwebhookconfigurations", "ValidatingWebhookConfiguration"),
		webhookConfigurations[*admissionregistrationv1.MutatingWebhookConfiguration]("mutatingwebhookconfigurations", "MutatingWebhookConfiguration"),
		validatingAdmissionPolicies(), validatingAdmissionPolicyBindings(),
		mutatingAdmissionPolicies(), mutatingAdmissionPolicyBindings(),
	}
	for _, k := range all {
		if k.Codec == nil {
			k.Codec = rest.Typed(scheme, k.GVK(k.Storage()))
		}
		k.Ownership = func() (managedfields.TypeConverter, error) { return applyconfigurations.NewTypeConverter(scheme), nil }
	}
	return all
}

// newScheme returns a scheme of the served groups and of the body of the token subresource.
// Registering fixed types fails only by a programming error.
func newScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, discoveryv1.AddToScheme, coordinationv1.AddToScheme,
		eventsv1.AddToScheme, admissionregistrationv1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			panic("register types: " + err.Error())
		}
	}
	scheme.AddKnownTypes(authenticationv1.SchemeGroupVersion, &authenticationv1.TokenRequest{})
	metav1.AddToGroupVersion(scheme, authenticationv1.SchemeGroupVersion)
	return scheme
}
