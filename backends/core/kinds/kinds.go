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

// Config is what the kinds need from the server that serves them.
type Config struct {
	// AllocateClusterIP fills spec.clusterIP and spec.clusterIPs of svc, one
	// address for each of spec.ipFamilies that has none yet, and claims the
	// addresses that svc names itself. old is nil on create; addresses that old
	// has are claimed already. It is called when svc or old uses cluster IPs
	// (is neither ExternalName nor headless), on every write, with ipFamilies
	// set and clusterIPs well formed. release gives the claims of this call back
	// when the write fails; it may be nil. With dryRun nothing is claimed.
	// Errors are StatusErrors. nil: services get no addresses.
	AllocateClusterIP func(ctx context.Context, svc, old *corev1.Service, dryRun bool) (release func(), err error)
	// IPFamilies are the families that AllocateClusterIP has addresses of, the
	// cluster's default first; one or two. Default: IPv4.
	IPFamilies []corev1.IPFamily
	// CreateToken serves serviceaccounts/token; body is an
	// authentication.k8s.io/v1 TokenRequest, as decoded. nil: the subresource
	// is not served.
	CreateToken func(ctx context.Context, key resource.Key, body runtime.Object, dryRun bool) (runtime.Object, error)
	// EventTTL is how long an event is kept after its last write. Default 1 h.
	EventTTL time.Duration
}

// All returns the rows of every kind, core group first. The rows share one
// small scheme; they may be changed until they are served.
func All(cfg Config) []*rest.Kind {
	if len(cfg.IPFamilies) == 0 {
		cfg.IPFamilies = []corev1.IPFamily{corev1.IPv4Protocol}
	}
	if cfg.EventTTL == 0 {
		cfg.EventTTL = time.Hour
	}
	scheme := newScheme()
	all := []*rest.Kind{
		namespaces(), configMaps(), secrets(), services(cfg), endpoints(), serviceAccounts(cfg),
		coreEvents(cfg), groupEvents(cfg, scheme),
		endpointSlices(),
		leases(),
		validatingWebhookConfigurations(), mutatingWebhookConfigurations(),
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

// newScheme knows the groups served here and the body of the token
// subresource. Registering fixed types cannot fail, except by a mistake in
// this file.
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
