package routing

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"portico/apiservice"
	"portico/apiservice/backend"
	"portico/discovery"
	"portico/gateway/upstream"
	"portico/resource/authn"
)

// Backend is a server the gateway starts with.
//
// It is the beginning of a Backend object of that name in etcd, which carries
// the label [apiservice.AutomanagedLabel]. While the label is there, this
// gateway reaches the server as it is configured to, whatever the object says:
// a socket's path, or an authority's file, is a matter of one host. Everything
// else (which groups are taken, how requests are sent) is the object's, for all
// gateways alike. Where the server is, the object says for gateways that are not
// configured; the elected one of those that are keeps it as it is configured
// itself, so that gateways with different configurations do not undo each
// other's work. Once a user takes the label off, the object alone counts, and it
// is no more than any other: what it serves has the place and the limits of a
// user's Backend.
type Backend struct {
	// Name is that of the object, and what automanaged APIServices call it.
	Name string
	// URL is unix:///path or https://host:port.
	URL string
	// CAFile vouches for an https server; "" is the system's roots.
	CAFile string
}

// StaticBackend is a Backend that the gateway starts with, as it is configured.
type StaticBackend struct {
	Name string
	// spec lacks what is in ca, which is read again when the file changes; nil:
	// there is none.
	spec  backend.Spec
	ca    *authn.CAFile
	trust upstream.Trust
}

// Spec returns the spec, with the authorities that are in the file now. It is not
// to be changed.
func (c *StaticBackend) Spec() *backend.Spec {
	if c.ca == nil {
		return &c.spec
	}
	spec := c.spec
	spec.TLS = &backend.TLS{CABundle: c.ca.PEM()}
	return &spec
}

// NewStaticBackend reads the configuration of a server; proxyTrust has what is
// shown to servers.
func NewStaticBackend(b Backend, proxyTrust upstream.Trust) (*StaticBackend, error) {
	if msgs := validation.IsDNS1123Subdomain(b.Name); len(msgs) > 0 {
		return nil, fmt.Errorf("backend %q: its name %s", b.Name, strings.Join(msgs, ", "))
	}
	if b.Name == backend.Reserved {
		return nil, fmt.Errorf("backend %q: the name is the gateway's own", b.Name)
	}
	address, err := backend.ParseURL(b.URL)
	if err == nil && address.Scheme == backend.HTTP {
		err = errors.New("must be https or a unix socket: users' identities do not travel in plain text")
	}
	if err != nil {
		return nil, fmt.Errorf("backend %s: URL %q %w", b.Name, b.URL, err)
	}
	c := &StaticBackend{Name: b.Name, trust: proxyTrust, spec: backend.Spec{
		Endpoints: []backend.Endpoint{{URL: b.URL}},
		// What a CRD server serves has the place that kube-apiserver gives it;
		// groups of Kubernetes itself have theirs anyway.
		AutoRegister: &backend.AutoRegister{
			Groups: []string{backend.AllGroups}, GroupPriorityMinimum: new(int32(discovery.DefaultGroupPriority)), VersionPriority: new(int32(discovery.CustomVersionPriority)),
		},
	}}
	if address.Scheme == backend.Unix {
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

// EffectiveBackend is a Backend as this gateway goes by it: what is stored of it, and what is
// configured.
type EffectiveBackend struct {
	Name string
	// Spec is not to be changed.
	Spec *backend.Spec
	// Own is the configuration that says where the server is and how it is
	// trusted; nil: spec does.
	Own *StaticBackend
	// Permanent: gateways start with it, as the object says or, while there is
	// none, the configuration. So gateways with different configurations register
	// and send alike. One that a user took over by taking the label off is like any
	// other of a user's, also for a gateway that is configured with it.
	Permanent bool
	// Object is what is stored; nil if nothing is yet.
	Object *backend.Backend
}

// effectiveBackends puts together what is configured and what is stored: first the
// configured ones, in their order, then the others by name.
func effectiveBackends(own []*StaticBackend, objects []*backend.Backend) []EffectiveBackend {
	stored := make(map[string]*backend.Backend, len(objects))
	for _, b := range objects {
		stored[b.Name] = b
	}
	out := make([]EffectiveBackend, 0, len(own)+len(objects))
	for _, c := range own {
		b := stored[c.Name]
		delete(stored, c.Name)
		now := c.Spec()
		d := EffectiveBackend{Name: c.Name, Spec: now, Own: c, Permanent: true, Object: b}
		switch {
		case b == nil:
		case b.Labels[apiservice.AutomanagedLabel] == "":
			d.Spec, d.Own, d.Permanent = &b.Spec, nil, false
		default:
			spec := b.Spec
			spec.Endpoints, spec.Service, spec.TLS = now.Endpoints, nil, now.TLS
			d.Spec = &spec
		}
		out = append(out, d)
	}
	configured := len(out)
	for _, b := range objects {
		if stored[b.Name] == b {
			permanent := b.Labels[apiservice.AutomanagedLabel] != ""
			out = append(out, EffectiveBackend{Name: b.Name, Spec: &b.Spec, Permanent: permanent, Object: b})
		}
	}
	slices.SortFunc(out[configured:], func(a, b EffectiveBackend) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// Registers returns which groups of a Backend's server shall be registered; nil: none.
// Of a REST server that is its own.
func Registers(spec *backend.Spec) *backend.AutoRegister {
	if r := spec.REST; r != nil {
		return &backend.AutoRegister{Groups: []string{r.Group}}
	}
	return spec.AutoRegister
}
