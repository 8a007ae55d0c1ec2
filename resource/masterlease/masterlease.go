// Package masterlease keeps the addresses of running gateways in etcd, where kube-apiserver
// keeps its own: the core server makes the endpoints of Service default/kubernetes of them. A
// gateway that ends without a word is forgotten after a few seconds.
//
// Runs in: gateway, core.
package masterlease

//lint:file-ignore SA1019 kube-apiserver stores the addresses as v1 Endpoints.

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"

	"portico/resource"
	"portico/resource/rest"
)

const (
	// Interval is the pause between two renewals, and ttl the life of an address that is not
	// renewed.
	Interval = 10 * time.Second
	ttl      = 15 * time.Second
	// removeTimeout bounds the removal of the address of a gateway that ends.
	removeTimeout = 2 * time.Second
)

// Path is where the addresses are in etcd.
const Path = "masterleases"

// Leases are the addresses of all gateways.
type Leases struct {
	kind  *rest.Kind
	store resource.Store
}

// New returns the leases in the storage that store opens.
func New(store func(*resource.Info) resource.Store) *Leases {
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		panic("register types: " + err.Error())
	}
	k := &rest.Kind{Info: resource.Info{Versions: []string{"v1"}, Resource: "apiserverleases", Kind: "Endpoints", Path: Path}}
	k.Codec = rest.Typed(scheme, k.GVK("v1"))
	return &Leases{kind: k, store: store(&k.Info)}
}

// Parse parses the address of a gateway: host:port, where host is an IP address that others
// can reach; ok is false if it is not one.
func Parse(address string) (addr netip.AddrPort, ok bool) {
	addr, err := netip.ParseAddrPort(address)
	return netip.AddrPortFrom(addr.Addr().Unmap(), addr.Port()), err == nil && addr.Port() != 0 && !addr.Addr().IsUnspecified()
}

// Renew stores the address for the next seconds.
func (l *Leases) Renew(ctx context.Context, addr netip.AddrPort) error {
	_, err := l.store.Update(ctx, resource.Key{Name: addr.String()}, func(cur *resource.Object) (resource.Mutation, error) {
		e := &corev1.Endpoints{Subsets: []corev1.EndpointSubset{{
			Addresses: []corev1.EndpointAddress{{IP: addr.Addr().String()}},
			Ports:     []corev1.EndpointPort{{Name: "https", Port: int32(addr.Port()), Protocol: corev1.ProtocolTCP}},
		}}}
		if cur != nil {
			e.Generation = cur.Generation + 1 // what does not change is not written, and its life not prolonged
		}
		o, err := l.kind.Codec.EncodeStored(e)
		return resource.Mutation{Object: o, TTL: ttl}, err
	})
	if err != nil {
		return fmt.Errorf("renew the lease of %s: %w", addr.Addr(), err)
	}
	return nil
}

// Remove removes the address.
func (l *Leases) Remove(ctx context.Context, addr netip.AddrPort) error {
	_, err := l.store.Delete(ctx, resource.Key{Name: addr.String()}, nil)
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// List returns the addresses, sorted. The port of a kube-apiserver is 0.
func (l *Leases) List(ctx context.Context) ([]netip.AddrPort, error) {
	list, err := l.store.List(ctx, resource.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list leases of gateways: %w", err)
	}
	var out []netip.AddrPort
	for _, o := range list.Items {
		lease, err := rest.DecodeAs[*corev1.Endpoints](l.kind, o)
		if err != nil {
			return nil, err
		}
		for _, s := range lease.Subsets {
			for _, a := range s.Addresses {
				ip, err := netip.ParseAddr(a.IP)
				if err != nil {
					continue
				}
				port := uint16(0)
				if len(s.Ports) > 0 {
					port = uint16(s.Ports[0].Port)
				}
				out = append(out, netip.AddrPortFrom(ip.Unmap(), port))
			}
		}
	}
	slices.SortFunc(out, func(a, b netip.AddrPort) int {
		return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Port(), b.Port()))
	})
	return out, nil
}

// Keep renews the address until ctx ends, and removes it.
func (l *Leases) Keep(ctx context.Context, addr netip.AddrPort, log *slog.Logger) error {
	tick := time.NewTicker(Interval)
	defer tick.Stop()
	for {
		if err := l.Renew(ctx, addr); err != nil && ctx.Err() == nil {
			log.Warn("the address of the gateway is not published", "address", addr, "err", err)
		}
		select {
		case <-ctx.Done():
			bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeTimeout)
			defer cancel()
			if err := l.Remove(bounded, addr); err != nil {
				log.Warn("the address of the gateway is published until its lease ends", "address", addr, "err", err)
			}
			return ctx.Err()
		case <-tick.C:
		}
	}
}
