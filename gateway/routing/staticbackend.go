package routing

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"portico/apiservice"
	"portico/apiservice/backend"
	"portico/discovery"
	"portico/gateway/upstream"
	"portico/resource/authn"
)

// Backend is a server of the gateway's flags.
//
// The gateway stores a Backend object of its name with the label
// [apiservice.AutomanagedLabel]. While the object has the label, this gateway reaches the
// server at the address and with the CAs of its own flags, because a socket or a CA file
// belongs to one host; everything else is as the object says, for all gateways alike. The
// elected gateway writes its own address to the object, for gateways without the flag. Without
// the label the object is a user's Backend.
type Backend struct {
	// Name is the name of the object, and the annotation of its automanaged APIServices.
	Name string
	// URLs are its endpoints, which answer alike: each is https://host:port, or each unix:///path.
	URLs []string
	// CAFile has the CAs of https endpoints; "": those of the host.
	CAFile string
}

// StaticBackend is a Backend of the gateway's flags with its files read.
type StaticBackend struct {
	Name  string
	spec  backend.Spec  // without the CAs in ca
	ca    *authn.CAFile // read again when the file changes; nil: there is none
	trust upstream.Trust
}

// Spec returns the spec with the current CAs. It must not be changed.
func (c *StaticBackend) Spec() *backend.Spec {
	if c.ca == nil {
		return &c.spec
	}
	spec := c.spec
	spec.TLS = &backend.TLS{CABundle: c.ca.PEM()}
	return &spec
}

// The checks of static Backends with several endpoints: one that is stopping gets no requests
// before it refuses them. While etcd is away endpoints are in use, as they serve from memory.
const (
	readiness         = "/readyz?exclude=etcd&exclude=etcd-readiness"
	readinessInterval = time.Second
)

// NewStaticBackend validates a Backend and reads its files; proxyTrust has the certificate
// that is shown to servers.
func NewStaticBackend(b Backend, proxyTrust upstream.Trust) (*StaticBackend, error) {
	if msgs := validation.IsDNS1123Subdomain(b.Name); len(msgs) > 0 {
		return nil, fmt.Errorf("backend %q: its name %s", b.Name, strings.Join(msgs, ", "))
	}
	if b.Name == backend.Reserved {
		return nil, fmt.Errorf("backend %q: the name is reserved for the gateway", b.Name)
	}
	endpoints, scheme, err := staticEndpoints(b.URLs)
	if err != nil {
		return nil, fmt.Errorf("backend %s: %w", b.Name, err)
	}
	c := &StaticBackend{Name: b.Name, trust: proxyTrust, spec: backend.Spec{
		Endpoints: endpoints,
		// The priorities of custom resources in kube-apiserver; groups of Kubernetes have
		// their own.
		AutoRegister: &backend.AutoRegister{
			Groups: []string{backend.AllGroups}, GroupPriorityMinimum: new(int32(discovery.DefaultGroupPriority)), VersionPriority: new(int32(discovery.CustomVersionPriority)),
		},
	}}
	if len(endpoints) > 1 {
		c.spec.HealthCheck = &backend.HealthCheck{Path: readiness, Interval: &metav1.Duration{Duration: readinessInterval}}
	}
	if scheme == backend.Unix {
		c.trust = upstream.Trust{Plain: true, PriorKnowledge: true}
		return c, nil
	}
	if b.CAFile == "" {
		return c, nil
	}
	ca, err := authn.NewCAFile(b.CAFile)
	if err != nil {
		return nil, fmt.Errorf("load CA of backend %s: %w", b.Name, err)
	}
	c.ca, c.trust.Roots = ca, ca.Pool
	return c, nil
}

// staticEndpoints returns the endpoints of a Backend and their scheme, which is that of all.
func staticEndpoints(urls []string) (endpoints []backend.Endpoint, scheme string, err error) {
	for i, u := range urls {
		address, err := backend.ParseURL(u)
		switch {
		case err != nil:
		case address.Scheme == backend.HTTP:
			err = errors.New("must be https or a unix socket: users' identities are not sent in plain text")
		case i > 0 && address.Scheme != scheme:
			err = fmt.Errorf("must be %s like the one before: one Backend has either sockets or https endpoints", scheme)
		case slices.ContainsFunc(urls[:i], func(other string) bool { return backend.SameAddress(other, u) }):
			err = errors.New("is there twice")
		}
		if err != nil {
			return nil, "", fmt.Errorf("URL %q %w", u, err)
		}
		scheme = address.Scheme
		endpoints = append(endpoints, backend.Endpoint{URL: u})
	}
	if len(endpoints) == 0 {
		return nil, "", errors.New("it has no URL")
	}
	return endpoints, scheme, nil
}

// EffectiveBackend is a Backend as this gateway uses it, from its flags and the stored object.
type EffectiveBackend struct {
	Name string
	// Spec must not be changed.
	Spec *backend.Spec
	// Own has the address and the trust of the server; nil: Spec has them.
	Own *StaticBackend
	// Permanent is set by the label of the object or, without an object, by the flags, so that
	// gateways with different flags treat the Backend alike. Routes are static by Own only.
	Permanent bool
	// Object is the stored object; nil: there is none.
	Object *backend.Backend
}

// effectiveBackends joins static and stored Backends: first the static ones, in their order,
// then the others by name.
func effectiveBackends(static []*StaticBackend, objects []*backend.Backend) []EffectiveBackend {
	stored := make(map[string]*backend.Backend, len(objects))
	for _, b := range objects {
		stored[b.Name] = b
	}
	out := make([]EffectiveBackend, 0, len(static)+len(objects))
	for _, c := range static {
		b := stored[c.Name]
		delete(stored, c.Name)
		configured := c.Spec()
		d := EffectiveBackend{Name: c.Name, Spec: configured, Own: c, Permanent: true, Object: b}
		switch {
		case b == nil:
		case b.Labels[apiservice.AutomanagedLabel] == "":
			d.Spec, d.Own, d.Permanent = &b.Spec, nil, false
		default:
			spec := b.Spec
			spec.Endpoints, spec.Service, spec.TLS = configured.Endpoints, nil, configured.TLS
			d.Spec = &spec
		}
		out = append(out, d)
	}
	n := len(out)
	for _, b := range objects {
		if stored[b.Name] == b {
			permanent := b.Labels[apiservice.AutomanagedLabel] != ""
			out = append(out, EffectiveBackend{Name: b.Name, Spec: &b.Spec, Permanent: permanent, Object: b})
		}
	}
	slices.SortFunc(out[n:], func(a, b EffectiveBackend) int { return strings.Compare(a.Name, b.Name) })
	return out
}
