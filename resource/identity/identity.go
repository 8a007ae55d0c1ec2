// Package identity keeps a Lease for each running process, as kube-apiserver does with its gate
// APIServerIdentity: in the namespace kube-system, with the label apiserver.kubernetes.io/identity,
// renewed every 10 s and good for an hour. Annotations say version, address and name in elections.
// The Leases are written to etcd without the core server, which serves them.
//
// Runs in: gateway, core, crd. Commands read processes from Leases.
package identity

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/validation"

	"portico/resource"
	"portico/resource/rest"
	"portico/resource/serve/version"
)

// Label is the label of all identity Leases. Its value is LabelPrefix and the component.
const (
	Label       = "apiserver.kubernetes.io/identity"
	LabelPrefix = "portico-"
)

// namePrefix begins the name of each Lease, as with kube-apiserver. Path is where they are in etcd.
const (
	namePrefix = "apiserver-"
	Path       = "leases/" + metav1.NamespaceSystem + "/" + namePrefix
)

// Annotations of the Leases.
const (
	annotationVersion  = "portico.dev/version"
	annotationAddress  = "portico.dev/address"
	annotationInstance = "portico.dev/instance"
)

const (
	// interval is the pause between two renewals, lifetime the time after which a Lease that is
	// not renewed is removed, and sweepInterval the pause between two looks for such Leases.
	interval      = 10 * time.Second
	lifetime      = time.Hour
	sweepInterval = time.Hour
	// silentAfter is the age of the last renewal at which a process counts as silent.
	silentAfter = 3 * interval
	// removeTimeout bounds the removal of the Lease of a process that ends.
	removeTimeout = 2 * time.Second
)

// Process is a gateway, a core server or a CRD server.
type Process struct {
	// Lease is the name of its Lease.
	Lease string `json:"lease"`
	// Component is gateway, core or crd.
	Component string `json:"component"`
	// Instance is its name in elections.
	Instance string `json:"instance"`
	// Version is as at /version.
	Version string `json:"version"`
	// Address has the addresses that it serves on, separated by commas.
	Address string    `json:"address"`
	Started time.Time `json:"started"`
	Renewed time.Time `json:"renewed"`
}

// New returns this process. instance is its name in elections, addresses those that it serves on.
func New(component, instance string, addresses []net.Addr) Process {
	var texts []string
	for _, a := range addresses {
		text := a.String()
		if a.Network() == "unix" {
			text = "unix://" + text
		}
		texts = append(texts, text)
	}
	return Process{
		Component: component, Instance: instance, Version: version.Info().GitVersion, Address: strings.Join(texts, ","), Started: time.Now().UTC(),
	}
}

// Silent reports whether a process did not renew its Lease as often as one that is well, until now.
func (p *Process) Silent(now time.Time) bool { return now.Sub(p.Renewed) > silentAfter }

// FromLease returns the process of a Lease; ok is false if it is not one of Portico.
func FromLease(l *coordinationv1.Lease) (p Process, ok bool) {
	component, ok := strings.CutPrefix(l.Labels[Label], LabelPrefix)
	if !ok || l.Namespace != metav1.NamespaceSystem {
		return p, false
	}
	p = Process{
		Lease: l.Name, Component: component, Instance: l.Annotations[annotationInstance],
		Version: l.Annotations[annotationVersion], Address: l.Annotations[annotationAddress],
	}
	if t := l.Spec.AcquireTime; t != nil {
		p.Started = t.UTC()
	}
	if t := l.Spec.RenewTime; t != nil {
		p.Renewed = t.UTC()
	}
	return p, true
}

// leaseName is the same for the next process of this component with these addresses on this
// machine, so that it replaces the Lease of one that was killed.
func leaseName(p *Process, host string) string {
	sum := sha256.Sum256([]byte(strings.Join([]string{host, p.Component, p.Address}, "\x00")))
	return namePrefix + strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:16]))
}

// Host returns the host name of this machine, or "" if it has none. Metrics have its hash: unlike
// Process.Instance it stays the same when a process starts again.
func Host() string {
	host, _ := os.Hostname()
	return host
}

// Leases are the Leases of all processes.
type Leases struct {
	kind  *rest.Kind
	store resource.Store
}

// Open returns the Leases in the storage that store opens.
func Open(store func(*resource.Info) resource.Store) *Leases {
	scheme := runtime.NewScheme()
	if err := coordinationv1.AddToScheme(scheme); err != nil {
		panic("register types: " + err.Error())
	}
	k := &rest.Kind{Info: resource.Info{Group: coordinationv1.GroupName, Versions: []string{"v1"}, Resource: "leases", Kind: "Lease", Namespaced: true}}
	k.Codec = rest.Typed(scheme, k.GVK("v1"))
	return &Leases{kind: k, store: store(&k.Info)}
}

// List returns the processes by component, and those of a component by name in elections.
func (l *Leases) List(ctx context.Context) (all []Process, err error) {
	labelled, err := labels.NewRequirement(Label, selection.Exists, nil)
	if err != nil {
		return nil, fmt.Errorf("select leases: %w", err)
	}
	list, err := l.store.List(ctx, resource.ListOptions{Namespace: metav1.NamespaceSystem, Selector: resource.Selector{Labels: labels.NewSelector().Add(*labelled)}})
	if err != nil {
		return nil, fmt.Errorf("list leases of processes: %w", err)
	}
	for _, o := range list.Items {
		lease, err := rest.DecodeAs[*coordinationv1.Lease](l.kind, o)
		if err != nil {
			return nil, err
		}
		if p, ok := FromLease(lease); ok {
			all = append(all, p)
		}
	}
	slices.SortFunc(all, func(a, b Process) int {
		return cmp.Or(order(a.Component)-order(b.Component), strings.Compare(a.Instance, b.Instance), strings.Compare(a.Lease, b.Lease))
	})
	return all, nil
}

// order is that of a request: the gateway first.
func order(component string) int { return slices.Index([]string{"gateway", "core", "crd"}, component) }

// Keep renews the Lease of a process until ctx ends, and removes it, and those that ended. It
// returns ctx's error.
func (l *Leases) Keep(ctx context.Context, p Process, log *slog.Logger) error {
	host := Host()
	p.Lease = leaseName(&p, host)
	holder := p.Lease + "_" + string(uuid.NewUUID())
	// The creation of a Lease is the start of its process.
	_ = l.remove(ctx, p.Lease, nil) // renew replaces what is left
	tick := time.NewTicker(interval)
	defer tick.Stop()
	var swept time.Time
	renewed := true
	for {
		err := l.renew(ctx, &p, host, holder)
		if err != nil && renewed && ctx.Err() == nil {
			log.Warn("the lease of this process is not renewed", "lease", p.Lease, "err", err)
		}
		renewed = err == nil
		if renewed && time.Since(swept) > sweepInterval {
			swept = time.Now()
			l.sweep(ctx, log)
		}
		select {
		case <-ctx.Done():
			bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeTimeout)
			defer cancel()
			_ = l.remove(bounded, p.Lease, func(lease *coordinationv1.Lease) bool { // it ends by itself, later
				return lease.Spec.HolderIdentity != nil && *lease.Spec.HolderIdentity == holder
			})
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// renew writes the Lease of a process.
func (l *Leases) renew(ctx context.Context, p *Process, host, holder string) error {
	ctx, cancel := context.WithTimeout(ctx, interval)
	defer cancel()
	now := metav1.NowMicro()
	_, err := l.store.Update(ctx, resource.Key{Namespace: metav1.NamespaceSystem, Name: p.Lease}, func(cur *resource.Object) (resource.Mutation, error) {
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: p.Lease}}
		if cur == nil {
			rest.FillSystemMetadata(lease, false)
		} else {
			old, err := rest.DecodeAs[*coordinationv1.Lease](l.kind, cur)
			if err != nil {
				return resource.Mutation{}, err
			}
			lease.ObjectMeta = *old.ObjectMeta.DeepCopy()
		}
		set(&lease.Labels, Label, LabelPrefix+p.Component)
		if len(validation.IsValidLabelValue(host)) == 0 {
			set(&lease.Labels, corev1.LabelHostname, host)
		}
		set(&lease.Annotations, annotationVersion, p.Version)
		set(&lease.Annotations, annotationAddress, p.Address)
		set(&lease.Annotations, annotationInstance, p.Instance)
		seconds, started := int32(lifetime/time.Second), metav1.NewMicroTime(p.Started)
		lease.Spec = coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &seconds, AcquireTime: &started, RenewTime: &now}
		o, err := l.kind.Codec.EncodeStored(lease)
		return resource.Mutation{Object: o}, err
	})
	if err != nil {
		return fmt.Errorf("renew lease %s: %w", p.Lease, err)
	}
	return nil
}

func set(in *map[string]string, key, value string) {
	if *in == nil {
		*in = map[string]string{}
	}
	(*in)[key] = value
}

// sweep removes the Leases that have not been renewed for an hour.
func (l *Leases) sweep(ctx context.Context, log *slog.Logger) {
	all, err := l.List(ctx)
	for _, p := range all {
		if err == nil && time.Since(p.Renewed) > lifetime {
			err = l.remove(ctx, p.Lease, func(lease *coordinationv1.Lease) bool {
				return lease.Spec.RenewTime == nil || time.Since(lease.Spec.RenewTime.Time) > lifetime
			})
		}
	}
	if err != nil && ctx.Err() == nil {
		log.Warn("leases of processes that ended are not removed; the next round retries", "err", err)
	}
}

// remove removes a Lease if condition (nil: always) holds.
func (l *Leases) remove(ctx context.Context, name string, condition func(*coordinationv1.Lease) bool) error {
	_, err := l.store.Delete(ctx, resource.Key{Namespace: metav1.NamespaceSystem, Name: name}, func(cur *resource.Object) error {
		if condition == nil {
			return nil
		}
		lease, err := rest.DecodeAs[*coordinationv1.Lease](l.kind, cur)
		if err == nil && !condition(lease) {
			return apierrors.NewNotFound(l.kind.GroupResource(), name)
		}
		return err
	})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
