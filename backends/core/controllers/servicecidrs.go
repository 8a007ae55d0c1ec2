package controllers

import (
	"context"
	"encoding/json"
	"net/netip"
	"slices"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	metav1apply "k8s.io/client-go/applyconfigurations/meta/v1"
	networkingv1apply "k8s.io/client-go/applyconfigurations/networking/v1"
	"k8s.io/client-go/informers"
)

const (
	serviceCIDRFinalizer = "networking.k8s.io/service-cidr-finalizer"
	// serviceCIDRGrace is how long the deletion of a ServiceCIDR waits at least, for the
	// servers to notice that it gives no addresses any more.
	serviceCIDRGrace = 10 * time.Second
	// addressManager is the value of the label of IPAddresses that claim addresses of Services.
	addressManager = "ipallocator.k8s.io"
)

// serviceCIDRs sets the condition Ready of ServiceCIDRs, and protects them with a finalizer while
// Services have addresses that no other ServiceCIDR has.
type serviceCIDRs struct {
	*Env
	informers.SharedInformerFactory
	queue Queue
}

func runServiceCIDRs(ctx context.Context, env *Env) error {
	c := &serviceCIDRs{Env: env, SharedInformerFactory: env.Informers, queue: env.NewQueue("servicecidrs")}
	networking := env.Informers.Networking().V1()
	Handle(env, networking.ServiceCIDRs().Informer(), func(old, cidr *networkingv1.ServiceCIDR) {
		if cidr == nil || old == nil { // those that overlap may now be deleted, or not
			changed := cidr
			if changed == nil {
				changed = old
			}
			c.enqueue(func(other netip.Prefix) bool {
				return slices.ContainsFunc(prefixes(changed), other.Overlaps)
			})
		}
		if cidr != nil {
			c.queue.Add(cidr.Name)
		}
	})
	Handle(env, networking.IPAddresses().Informer(), func(old, ip *networkingv1.IPAddress) {
		if old != nil && ip != nil {
			return
		}
		if ip == nil {
			ip = old
		}
		addr, err := netip.ParseAddr(ip.Name)
		if err == nil && ip.Labels[networkingv1.LabelManagedBy] == addressManager {
			c.enqueue(func(p netip.Prefix) bool { return gives(p, addr) })
		}
	})
	return env.Work(ctx, Loop{Queue: c.queue, Workers: 5, Sync: c.sync})
}

func (c *serviceCIDRs) list() []*networkingv1.ServiceCIDR {
	all, _ := c.Networking().V1().ServiceCIDRs().Lister().List(labels.Everything()) // of a cache: no error
	return all
}

// enqueue adds the ServiceCIDRs with a range for which meant is true.
func (c *serviceCIDRs) enqueue(meant func(netip.Prefix) bool) {
	for _, cidr := range c.list() {
		if slices.ContainsFunc(prefixes(cidr), meant) {
			c.queue.Add(cidr.Name)
		}
	}
}

func prefixes(cidr *networkingv1.ServiceCIDR) (out []netip.Prefix) {
	for _, text := range cidr.Spec.CIDRs {
		if p, err := netip.ParsePrefix(text); err == nil {
			out = append(out, p)
		}
	}
	return out
}

// gives reports whether the address is one of the range for Services: the address of the network
// and the broadcast address of IPv4 are none.
func gives(p netip.Prefix, addr netip.Addr) bool {
	return p.Contains(addr) && addr != p.Masked().Addr() && (addr.Is6() || p.Contains(addr.Next()))
}

func (c *serviceCIDRs) sync(ctx context.Context, _, name string) error {
	cidr, err := c.Networking().V1().ServiceCIDRs().Lister().Get(name)
	if err != nil {
		return ignoreNotFound(err)
	}
	if !cidr.DeletionTimestamp.IsZero() {
		return c.finish(ctx, cidr)
	}
	if !slices.Contains(cidr.Finalizers, serviceCIDRFinalizer) {
		if err := c.patchFinalizer(ctx, name, "finalizers"); err != nil {
			return err
		}
	}
	return c.condition(ctx, cidr, metav1.ConditionTrue, "", "Kubernetes Service CIDR is ready")
}

// finish removes the finalizer of a ServiceCIDR that is deleted once it is not needed.
func (c *serviceCIDRs) finish(ctx context.Context, cidr *networkingv1.ServiceCIDR) error {
	if c.needed(cidr) {
		return c.condition(ctx, cidr, metav1.ConditionFalse, networkingv1.ServiceCIDRReasonTerminating,
			"There are still IPAddresses referencing the ServiceCIDR, please remove them or create a new ServiceCIDR")
	}
	if wait := serviceCIDRGrace - c.Clock.Since(cidr.DeletionTimestamp.Time); wait > 0 {
		c.queue.AddAfter(cidr.Name, wait)
		return nil
	}
	if !slices.Contains(cidr.Finalizers, serviceCIDRFinalizer) {
		return nil
	}
	return c.patchFinalizer(ctx, cidr.Name, "$deleteFromPrimitiveList/finalizers")
}

// needed reports whether Services have addresses of the ServiceCIDR that no other one has.
func (c *serviceCIDRs) needed(cidr *networkingv1.ServiceCIDR) bool {
	var others []netip.Prefix
	for _, other := range c.list() {
		if other.Name != cidr.Name {
			others = append(others, prefixes(other)...)
		}
	}
	var alone []netip.Prefix // ranges that are in no other range
	for _, p := range prefixes(cidr) {
		if !slices.ContainsFunc(others, func(o netip.Prefix) bool { return o.Overlaps(p) && o.Bits() <= p.Bits() }) {
			alone = append(alone, p)
		}
	}
	if len(alone) == 0 {
		return false
	}
	managed := labels.SelectorFromSet(labels.Set{networkingv1.LabelManagedBy: addressManager})
	ips, _ := c.Networking().V1().IPAddresses().Lister().List(managed) // of a cache: no error
	return slices.ContainsFunc(ips, func(ip *networkingv1.IPAddress) bool {
		addr, err := netip.ParseAddr(ip.Name)
		has := func(p netip.Prefix) bool { return gives(p, addr) }
		return err == nil && slices.ContainsFunc(alone, has) && !slices.ContainsFunc(others, has)
	})
}

// patchFinalizer adds or removes the finalizer, by the name of the field of the patch.
func (c *serviceCIDRs) patchFinalizer(ctx context.Context, name, field string) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{field: []string{serviceCIDRFinalizer}}})
	if err != nil {
		return err
	}
	_, err = c.Client.NetworkingV1().ServiceCIDRs().Patch(ctx, name, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
	return ignoreNotFound(err)
}

// condition sets the condition Ready unless it is that.
func (c *serviceCIDRs) condition(ctx context.Context, cidr *networkingv1.ServiceCIDR, status metav1.ConditionStatus, reason, message string) error {
	have := meta.FindStatusCondition(cidr.Status.Conditions, networkingv1.ServiceCIDRConditionReady)
	if have != nil && have.Status == status && have.Reason == reason && have.Message == message {
		return nil
	}
	ready := metav1apply.Condition().WithType(networkingv1.ServiceCIDRConditionReady).WithStatus(status).
		WithReason(reason).WithMessage(message).WithLastTransitionTime(metav1.NewTime(c.Clock.Now()))
	apply := networkingv1apply.ServiceCIDR(cidr.Name).WithStatus(networkingv1apply.ServiceCIDRStatus().WithConditions(ready))
	_, err := c.Client.NetworkingV1().ServiceCIDRs().ApplyStatus(ctx, apply, metav1.ApplyOptions{FieldManager: "service-cidr-controller", Force: true})
	return ignoreNotFound(err)
}
