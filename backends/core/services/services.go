// Package services allocates what Services need: cluster IPs, which IPAddress objects claim,
// out of the ranges of ServiceCIDR objects, and node ports, which one bitmap in etcd claims,
// as that of kube-apiserver does. Several core servers never allocate one address or port
// twice. A write of a Service that fails or releases something frees its claims; what a
// server that ended left behind is repaired.
//
// Runs in: core.
package services

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"portico/resource"
	"portico/resource/rest"
)

// Config of Services.
type Config struct {
	// ClusterIPRanges are one or two CIDRs, the second of the other family. The first
	// address of the first one is that of Service default/kubernetes.
	ClusterIPRanges []string
	// NodePortRange is the range of node ports: 30000-32767.
	NodePortRange string
	// Resource returns a resource of the server.
	Resource func(group, resource string) *rest.Resource
	// Store returns a store without a cache.
	Store func(info *resource.Info) resource.Store
	// EventTTL is how long events about repairs are kept.
	EventTTL time.Duration
	Log      *slog.Logger
}

// Services allocates for Services. Make it with New; Run repairs.
type Services struct {
	cfg     Config
	log     *slog.Logger
	ranges  []ipRange
	ports   *ports
	metrics *allocations
	// ready is closed when every stored Service has its claims.
	ready         chan struct{}
	portsRepaired time.Time
	leaks         map[int]int // ports without a user, to the repairs until they are freed
}

// apiService owns the first address of the first range.
var apiService = resource.Key{Namespace: "default", Name: "kubernetes"}

// New returns Services, which has claimed nothing.
func New(cfg Config) (*Services, error) {
	s := &Services{cfg: cfg, log: cfg.Log, ready: make(chan struct{}), leaks: map[int]int{}}
	var err error
	if s.ranges, err = parseRanges(cfg.ClusterIPRanges); err != nil {
		return nil, err
	}
	nodePorts, err := utilnet.ParsePortRange(cfg.NodePortRange)
	if err != nil || nodePorts.Size == 0 {
		return nil, fmt.Errorf("node port range %q must be two ports such as 30000-32767", cfg.NodePortRange)
	}
	s.ports = newPorts(*nodePorts, cfg.Store)
	s.metrics = newAllocations(s)
	s.ports.used = func(n int) { s.metrics.portsInUse.Store(int64(n)) }
	return s, nil
}

// Hosts returns the names of Service default/kubernetes and the first address of each range, which
// are separated by commas: its address, and the one it would have if the other family were the
// primary one.
func Hosts(cidrs string) ([]string, error) {
	hosts := []string{"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"}
	ranges, err := parseRanges(strings.Split(cidrs, ","))
	for _, r := range ranges {
		hosts = append(hosts, r.nth(1).String())
	}
	return hosts, err
}

// Families returns the families of the ranges, the primary one first.
func (s *Services) Families() []corev1.IPFamily {
	var out []corev1.IPFamily
	for _, r := range s.ranges {
		out = append(out, r.family())
	}
	return out
}

func (s *Services) services() *rest.Resource { return s.cfg.Resource("", "services") }

// waitReady waits until the Services that were stored at the start have their claims.
func (s *Services) waitReady(ctx context.Context) error {
	select {
	case <-s.ready:
		return nil
	default:
	}
	select {
	case <-s.ready:
		return nil
	case <-ctx.Done():
		return apierrors.NewServiceUnavailable("the addresses and ports of stored Services are not known yet")
	}
}

// claims are what one write has claimed.
type claims struct {
	addresses []*resource.Object // IPAddresses
	ports     []int
}

// Allocate is kinds.Config.AllocateService.
func (s *Services) Allocate(ctx context.Context, svc, old *corev1.Service, dryRun bool) (release func(), err error) {
	addresses, ports := missingAddresses(svc, old), changesPorts(svc, old)
	if len(addresses) == 0 && !ports {
		return nil, nil
	}
	if err := s.waitReady(ctx); err != nil {
		return nil, err
	}
	made := &claims{}
	release = func() { s.release(svc, made) }
	if made.addresses, err = s.claimAddresses(ctx, svc, addresses, dryRun); err != nil {
		return release, err
	}
	if ports {
		made.ports, err = s.ports.assign(ctx, svc, old, dryRun, s.metrics)
	}
	return release, err
}

// missingAddresses returns the indexes of the families for which the service needs a claim.
func missingAddresses(svc, old *corev1.Service) []int {
	spec := &svc.Spec
	switch {
	case spec.Type == corev1.ServiceTypeExternalName || isHeadless(spec):
		return nil
	case old == nil || old.Spec.Type == corev1.ServiceTypeExternalName:
		all := make([]int, len(spec.IPFamilies))
		for i := range all {
			all[i] = i
		}
		return all
	case !isHeadless(&old.Spec) && len(old.Spec.IPFamilies) == 1 && len(spec.IPFamilies) == 2:
		return []int{1}
	}
	return nil
}

func isHeadless(spec *corev1.ServiceSpec) bool {
	return len(spec.ClusterIPs) > 0 && spec.ClusterIPs[0] == corev1.ClusterIPNone
}

// release frees the claims of a write that failed. Those that the stored Service uses remain:
// the write may have succeeded although its answer was lost.
func (s *Services) release(svc *corev1.Service, made *claims) {
	if len(made.addresses)+len(made.ports) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), releaseTimeout)
	defer cancel()
	stored, err := s.stored(ctx, keyOf(svc))
	if err != nil {
		return // it is repaired
	}
	for _, claim := range made.addresses {
		if stored == nil || !slices.Contains(stored.Spec.ClusterIPs, claim.Name) {
			err = errors.Join(err, s.free(ctx, claim.Name, func(cur *resource.Object) bool { return cur.Revision == claim.Revision }))
		}
	}
	free := slices.DeleteFunc(slices.Clone(made.ports), func(p int) bool { return stored != nil && slices.Contains(nodePorts(stored), p) })
	s.logRelease(svc, errors.Join(err, s.ports.release(ctx, free)))
}

// releaseTimeout bounds the release of claims after a write.
const releaseTimeout = 5 * time.Second

func (s *Services) logRelease(svc *corev1.Service, err error) {
	if err != nil {
		s.log.Warn("claims of a service are not released yet", "service", svc.Namespace+"/"+svc.Name, "err", err)
	}
}

// stored returns a Service of etcd; nil if there is none.
func (s *Services) stored(ctx context.Context, key resource.Key) (*corev1.Service, error) {
	svc, err := rest.GetObject[*corev1.Service](ctx, s.services(), key, resource.At{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return svc, err
}

// upTo returns a random number below n.
func upTo(n uint64) uint64 { return rand.Uint64N(n) }

func keyOf(svc *corev1.Service) resource.Key {
	return resource.Key{Namespace: svc.Namespace, Name: svc.Name}
}
