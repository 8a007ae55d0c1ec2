package services

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"portico/resource"
	"portico/resource/rest"
)

// ports allocates node ports. The claims of all ports are the bits of one object in etcd, so
// that several ports are claimed at once.
type ports struct {
	utilnet.PortRange
	kind  *rest.Kind
	store resource.Store
	used  func(n int) // gets the number of claimed ports after every change
}

// portsKey is the key of the claims, that of kube-apiserver.
var portsKey = resource.Key{Name: "servicenodeports"}

func newPorts(r utilnet.PortRange, store func(*resource.Info) resource.Store) *ports {
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		panic("register types: " + err.Error())
	}
	kind := &rest.Kind{Info: resource.Info{Versions: []string{"v1"}, Resource: "servicenodeportallocations", Kind: "RangeAllocation", Path: "ranges"}}
	kind.Codec = rest.Typed(scheme, kind.GVK("v1"))
	return &ports{PortRange: r, kind: kind, store: store(&kind.Info)}
}

// bitmap is a state of the claims: bit i is set if port base+i is claimed.
type bitmap struct {
	utilnet.PortRange
	bits *big.Int
}

func newBitmap(r utilnet.PortRange) bitmap { return bitmap{r, new(big.Int)} }

func (b bitmap) has(port int) bool { return b.Contains(port) && b.bits.Bit(port-b.Base) == 1 }

func (b bitmap) set(port int, claimed uint) { b.bits.SetBit(b.bits, port-b.Base, claimed) }

func (b bitmap) all() (out []int) {
	for i := range b.bits.BitLen() {
		if b.bits.Bit(i) == 1 {
			out = append(out, b.Base+i)
		}
	}
	return out
}

var errPortAllocated = errors.New("provided port is already allocated")

// claim claims a port.
func (b bitmap) claim(port int) error {
	if !b.Contains(port) {
		return fmt.Errorf("provided port is not in the valid range. The range of valid ports is %s", b.PortRange.String())
	}
	if b.has(port) {
		return errPortAllocated
	}
	b.set(port, 1)
	return nil
}

// claimNext claims a free port: a random one of the band that is not static, or else one of
// the static band at the beginning, which Services that name a port find free.
func (b bitmap) claimNext() (int, error) {
	static := staticPorts(b.Size)
	for _, band := range [][2]int{{static, b.Size - static}, {0, static}} {
		first, size := band[0], band[1]
		if size <= 0 {
			continue
		}
		start := int(upTo(uint64(size)))
		for i := range size {
			if port := b.Base + first + (start+i)%size; !b.has(port) {
				b.set(port, 1)
				return port, nil
			}
		}
	}
	return 0, errFull
}

// staticPorts is the number of ports of the static band of a range.
func staticPorts(size int) int {
	const least, most, step = 16, 128, 32
	if size <= least {
		return 0
	}
	return min(max(least, size/step), most)
}

// load returns the stored claims; of no object, those of an empty range.
func (p *ports) load(o *resource.Object) (bitmap, error) {
	b := newBitmap(p.PortRange)
	if o == nil {
		return b, nil
	}
	stored, err := rest.DecodeAs[*corev1.RangeAllocation](p.kind, o)
	if err != nil {
		return b, err
	}
	r, err := utilnet.ParsePortRange(stored.Range)
	if err != nil {
		return b, fmt.Errorf("the stored range of node ports %q: %w", stored.Range, err)
	}
	b.PortRange = *r
	b.bits.SetBytes(stored.Data)
	return b, nil
}

// mutation stores the claims.
func (p *ports) mutation(b bitmap) (resource.Mutation, error) {
	o, err := p.kind.Codec.EncodeStored(&corev1.RangeAllocation{Range: b.PortRange.String(), Data: b.bits.Bytes()})
	return resource.Mutation{Object: o}, err
}

// update changes the claims with change, which may be called several times.
func (p *ports) update(ctx context.Context, dryRun bool, change func(b bitmap) error) error {
	apply := func(cur *resource.Object) (resource.Mutation, error) {
		b, err := p.load(cur)
		if err == nil && b.PortRange != p.PortRange {
			err = apierrors.NewInternalError(errors.New("the provided range does not match the current range"))
		}
		if err == nil {
			err = change(b)
		}
		if err != nil {
			return resource.Mutation{}, err
		}
		return p.mutation(b)
	}
	if dryRun {
		cur, err := p.store.Get(ctx, portsKey, resource.At{})
		if apierrors.IsNotFound(err) {
			cur, err = nil, nil
		}
		if err == nil {
			_, err = apply(cur)
		}
		return err
	}
	o, err := p.store.Update(ctx, portsKey, apply)
	if err == nil {
		if b, err := p.load(o); err == nil {
			p.used(len(b.all()))
		}
	}
	return err
}

// release frees ports.
func (p *ports) release(ctx context.Context, free []int) error {
	if len(free) == 0 {
		return nil
	}
	return p.update(ctx, false, func(b bitmap) error {
		for _, port := range free {
			if b.Contains(port) {
				b.set(port, 0)
			}
		}
		return nil
	})
}

// onNodes reports whether services of that type may have node ports.
func onNodes(svc *corev1.Service) bool {
	return svc.Spec.Type == corev1.ServiceTypeNodePort || svc.Spec.Type == corev1.ServiceTypeLoadBalancer
}

// wantsNodePorts reports whether every port of the service gets a node port.
func wantsNodePorts(svc *corev1.Service) bool {
	return svc.Spec.Type == corev1.ServiceTypeNodePort ||
		svc.Spec.Type == corev1.ServiceTypeLoadBalancer && ptr.Deref(svc.Spec.AllocateLoadBalancerNodePorts, true)
}

// wantsHealthPort reports whether nodes serve health checks of the service.
func wantsHealthPort(svc *corev1.Service) bool {
	return svc.Spec.Type == corev1.ServiceTypeLoadBalancer && svc.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
}

// portNumbers returns the node ports of spec.ports, each once.
func portNumbers(svc *corev1.Service) []int {
	var out []int
	for _, p := range svc.Spec.Ports {
		if p.NodePort != 0 && !slices.Contains(out, int(p.NodePort)) {
			out = append(out, int(p.NodePort))
		}
	}
	return out
}

// nodePorts returns the claimed ports of a service, each once.
func nodePorts(svc *corev1.Service) []int {
	out := portNumbers(svc)
	if port := int(svc.Spec.HealthCheckNodePort); port != 0 && !slices.Contains(out, port) {
		out = append(out, port)
	}
	return out
}

// changesPorts reports whether a write may have to claim ports.
func changesPorts(svc, old *corev1.Service) bool {
	if !onNodes(svc) {
		return false
	}
	if old == nil || wantsHealthPort(svc) && !wantsHealthPort(old) {
		return true
	}
	had := portNumbers(old)
	return slices.ContainsFunc(svc.Spec.Ports, func(p corev1.ServicePort) bool {
		return p.NodePort == 0 && wantsNodePorts(svc) || p.NodePort != 0 && !slices.Contains(had, int(p.NodePort))
	})
}

// assign sets the ports that the service lacks and claims them with those that it names and old
// did not have. It returns what was claimed.
func (p *ports) assign(ctx context.Context, svc, old *corev1.Service, dryRun bool, m *allocations) ([]int, error) {
	var a *assignment
	err := p.update(ctx, dryRun, func(b bitmap) error {
		a = &assignment{bitmap: b, svc: svc, ports: slices.Clone(svc.Spec.Ports), health: svc.Spec.HealthCheckNodePort, scopes: map[string]int{}}
		if err := a.assign(old); err != nil {
			return err
		}
		return a.assignHealth(old)
	})
	if err != nil {
		if a != nil {
			m.portFailed(a.scope)
		}
		return nil, err
	}
	svc.Spec.Ports, svc.Spec.HealthCheckNodePort = a.ports, a.health
	if dryRun {
		return nil, nil
	}
	m.portsAllocated(a.scopes)
	return a.claimed, nil
}

// assignment is the assignment of ports to one service.
type assignment struct {
	bitmap
	svc     *corev1.Service
	ports   []corev1.ServicePort
	health  int32
	claimed []int
	scope   string         // of the last claim
	scopes  map[string]int // successful claims: static, dynamic
}

// take claims a port.
func (a *assignment) take(port int) error {
	a.scope = "static"
	if err := a.claim(port); err != nil {
		return err
	}
	a.claimed = append(a.claimed, port)
	a.scopes[a.scope]++
	return nil
}

// takeNext claims a free port.
func (a *assignment) takeNext() (int, error) {
	a.scope = "dynamic"
	port, err := a.claimNext()
	if err != nil {
		return 0, err
	}
	a.claimed = append(a.claimed, port)
	a.scopes[a.scope]++
	return port, nil
}

// assign assigns the node ports. On create, ports with one number, of different protocols,
// share a node port.
func (a *assignment) assign(old *corev1.Service) error {
	var had []int
	if old != nil {
		had = portNumbers(old)
	}
	shared := map[int32]int32{} // node ports by port
	for i := range a.ports {
		p := &a.ports[i]
		if p.NodePort == 0 && !wantsNodePorts(a.svc) {
			continue
		}
		if old == nil {
			if p.NodePort == 0 {
				p.NodePort = shared[p.Port]
			}
			if p.NodePort == 0 {
				p.NodePort = a.requested(p.Port)
			}
			if p.NodePort != 0 && shared[p.Port] == p.NodePort {
				continue
			}
		}
		if p.NodePort == 0 {
			port, err := a.takeNext()
			if err != nil {
				return apierrors.NewInternalError(fmt.Errorf("failed to allocate a nodePort: %w", err))
			}
			p.NodePort = int32(port)
		} else if port := int(p.NodePort); !slices.Contains(had, port) && (old == nil || !slices.Contains(a.claimed, port)) {
			if err := a.take(port); err != nil {
				return apierrors.NewInvalid(serviceKind, a.svc.Name, field.ErrorList{
					field.Invalid(field.NewPath("spec", "ports").Index(i).Child("nodePort"), p.NodePort, err.Error()),
				})
			}
		}
		if shared[p.Port] == 0 {
			shared[p.Port] = p.NodePort
		}
		if old != nil && slices.ContainsFunc(a.ports[:i], func(q corev1.ServicePort) bool { return q.Protocol == p.Protocol && q.NodePort == p.NodePort }) {
			return fmt.Errorf("duplicate nodePort: {%s %d}", p.Protocol, p.NodePort)
		}
	}
	return nil
}

// requested returns the first node port that the service names for a port; 0: none.
func (a *assignment) requested(port int32) int32 {
	for _, p := range a.ports {
		if p.Port == port && p.NodePort != 0 {
			return p.NodePort
		}
	}
	return 0
}

// assignHealth assigns the port of health checks.
func (a *assignment) assignHealth(old *corev1.Service) error {
	if !wantsHealthPort(a.svc) || old != nil && wantsHealthPort(old) {
		return nil
	}
	if a.health != 0 {
		if err := a.take(int(a.health)); err != nil {
			return apierrors.NewInternalError(fmt.Errorf("failed to allocate requested HealthCheck NodePort %v: %v", a.health, err))
		}
		return nil
	}
	port, err := a.takeNext()
	if err != nil {
		return apierrors.NewInternalError(fmt.Errorf("failed to allocate a HealthCheck NodePort %v: %v", port, err))
	}
	a.health = int32(port)
	return nil
}
