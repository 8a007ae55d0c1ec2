package kinds

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
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
	var all []*rest.Kind
	for _, r := range slices.Concat(
		coreRows(cfg), eventRows(cfg), serviceRows(cfg), admissionRows(cfg), appsRows(), autoscalingRows(), batchRows(), certificatesRows(cfg),
		deviceRows(cfg), networkingRows(), storageRows(), otherRows(),
	) {
		all = append(all, r.kind(cfg))
	}
	all = append(all, virtualKinds(cfg)...)
	slices.SortStableFunc(all, func(a, b *rest.Kind) int { // as in discovery: the core group first
		return cmp.Or(strings.Compare(a.Group, b.Group), strings.Compare(a.Resource, b.Resource))
	})
	for _, k := range all {
		k.Ownership = func() (managedfields.TypeConverter, error) {
			return applyconfigurations.NewTypeConverter(scheme), nil
		}
	}
	return all
}
