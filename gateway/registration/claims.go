package registration

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apireg "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico/apiservice"
	"portico/apiservice/backend"
	"portico/discovery"
	"portico/gateway/routing"
)

// claim is a group/version that a Backend registers.
type claim struct {
	backend   string
	permanent bool
	priority  int32
	replaces  bool
	desired   *apireg.APIService
}

// served is what the claims of a Backend are computed from.
type served struct {
	name      string
	permanent bool
	auto      *backend.AutoRegister
	rest      *backend.REST
	gvs       []discovery.GroupVersion
	// complete: gvs is everything that the server serves.
	complete bool
}

// servedBy returns what is known of a Backend and its server.
func servedBy(st *routing.BackendState) served {
	s := served{name: st.Name, permanent: st.Permanent, auto: st.Spec.AutoRegister, rest: st.Spec.REST}
	switch {
	case routing.Registers(st.Spec) == nil:
		s.complete = true
	case s.rest != nil:
		// The Backend names the group/version: it is registered even if the document of the
		// server cannot be read.
		if s.complete = st.Checked(); s.complete {
			s.gvs = []discovery.GroupVersion{{Group: s.rest.Group, Version: s.rest.Version}}
		}
	case st.Server != nil && st.Server.Source.Fetched(): // restored discovery is registered already
		s.gvs, s.complete = st.Server.Source.Served()
	}
	return s
}

func (s served) same(o served) bool {
	return s.name == o.name && s.permanent == o.permanent && s.complete == o.complete &&
		apiequality.Semantic.DeepEqual(s.auto, o.auto) && apiequality.Semantic.DeepEqual(s.rest, o.rest) &&
		// A source that reads something new makes another slice.
		len(s.gvs) == len(o.gvs) && (len(s.gvs) == 0 || s.rest != nil || &s.gvs[0] == &o.gvs[0])
}

// claims are the claims of all Backends and of the gateway. Immutable.
type claims struct {
	served []served
	// byName are the claims to each APIService, in the order of the Backends.
	byName map[string][]claim
	// complete are the Backends of which everything is known, and incomplete what the others
	// register.
	complete   map[string]bool
	incomplete map[string]*backend.AutoRegister
	// absent names the entries of autoRegister.groups that the server of a Backend does not
	// serve, by Backend.
	absent map[string]string
	// reserved are the groups that the gateway serves itself; refused are the claims of
	// Backends to their versions.
	reserved map[string]bool
	refused  map[string][]conflict
	// whole: there are no other Backends.
	whole bool
}

// claimed returns the claims of all Backends, the previous ones if nothing has changed.
func (g *registrar) claimed(all *routing.BackendStates) *claims {
	var list []served
	for _, st := range all.List {
		s := servedBy(st)
		if st.Permanent && st.Object == nil && !g.introduced[st.Name] {
			s.gvs, s.complete = nil, false // its APIServices would name no stored Backend
		}
		list = append(list, s)
	}
	if g.claims != nil && g.claims.whole == all.Whole && slices.EqualFunc(list, g.claims.served, served.same) {
		return g.claims
	}
	c := &claims{
		served: list, byName: map[string][]claim{}, complete: map[string]bool{backend.Reserved: true}, incomplete: map[string]*backend.AutoRegister{},
		absent: map[string]string{}, reserved: map[string]bool{}, refused: map[string][]conflict{}, whole: all.Whole,
	}
	for _, gv := range g.own {
		c.reserved[gv.Group] = true
		if gv.Group != apiservice.Group {
			c.add(newClaim(gv, claim{backend: backend.Reserved, permanent: true}, nil))
		}
	}
	for i := range list {
		c.addServed(&list[i])
	}
	g.claims = c
	return c
}

// addServed adds the claims of a Backend.
func (c *claims) addServed(s *served) {
	c.complete[s.name] = s.complete
	auto := routing.Registers(&backend.Spec{AutoRegister: s.auto, REST: s.rest})
	if !s.complete {
		c.incomplete[s.name] = auto
	}
	if auto != nil && s.complete {
		c.absent[s.name] = absent(s.gvs, auto)
	}
	for _, gv := range s.gvs {
		switch {
		case !routing.Registrable(&gv, auto):
		case c.reserved[gv.Group]:
			c.refused[s.name] = append(c.refused[s.name], conflict{name: apiservice.Name(gv.Group, gv.Version), by: backend.Reserved})
		default:
			c.add(newClaim(gv, claim{backend: s.name, permanent: s.permanent, replaces: auto.OnConflict == backend.ReplaceOther}, auto))
		}
	}
}

func (c *claims) add(one claim) {
	c.byName[one.desired.Name] = append(c.byName[one.desired.Name], one)
}

// newClaim completes a claim to a group/version with its priority and its APIService.
func newClaim(gv discovery.GroupVersion, c claim, auto *backend.AutoRegister) claim {
	group, version := discovery.Priorities(gv.Group, gv.Version)
	label := apiservice.OnStart
	if auto != nil {
		c.priority, _ = auto.Priorities()
	}
	switch builtin := discovery.Builtin(gv.Group); {
	case !builtin && auto != nil:
		group, version = auto.Priorities()
		label = apiservice.Managed
	case !builtin:
		label, version = apiservice.Managed, discovery.CustomVersionPriority
	case c.permanent:
		c.priority = group
	default:
		label = apiservice.Managed // deleted with its Backend
	}
	c.desired = automanaged(gv, c.backend, label, group, version)
	return c
}

// automanaged returns an APIService that the gateway makes.
func automanaged(gv discovery.GroupVersion, backend, label string, group, version int32) *apireg.APIService {
	return &apireg.APIService{
		TypeMeta: metav1.TypeMeta{APIVersion: apireg.SchemeGroupVersion.String(), Kind: "APIService"},
		ObjectMeta: metav1.ObjectMeta{
			Name:        apiservice.Name(gv.Group, gv.Version),
			Labels:      map[string]string{apiservice.AutomanagedLabel: label},
			Annotations: map[string]string{apiservice.BackendAnnotation: backend},
		},
		Spec: apireg.APIServiceSpec{Group: gv.Group, Version: gv.Version, GroupPriorityMinimum: group, VersionPriority: version},
	}
}

// winner returns the claim that holds of several to one APIService, given the Backend that
// it is registered for ("": none). The gateway wins; else the holder, unless a claim of the
// same or a higher priority replaces it; without a holder, a permanent Backend, then the
// highest priority. It depends on nothing else, so that the winner wins again.
func winner(all []claim, holder string) claim {
	best := slices.IndexFunc(all, func(c claim) bool { return c.backend == backend.Reserved })
	if best >= 0 {
		return all[best]
	}
	best = slices.IndexFunc(all, func(c claim) bool { return c.backend == holder })
	if best < 0 {
		best = 0
		for i, c := range all {
			if b := all[best]; !b.permanent && (c.permanent || c.priority > b.priority) {
				best = i
			}
		}
	}
	won := all[best]
	for _, c := range all {
		if c.replaces && (c.priority > won.priority || c.priority == won.priority && !won.replaces) {
			won = c
		}
	}
	return won
}

// conflict is an APIService that a Backend claims and another has.
type conflict struct {
	name string
	by   string // the Backend that has it; "": a user
}

// awaits reports whether an APIService belongs to a Backend that may claim it once its
// discovery is read: a gateway that starts, or is elected, must not give it to another.
func (c *claims) awaits(have *apireg.APIService) bool {
	if have == nil || !apiservice.IsAutomanaged(have) {
		return false
	}
	of := have.Annotations[apiservice.BackendAnnotation]
	if of == "" || c.complete[of] {
		return false
	}
	if auto, exists := c.incomplete[of]; exists {
		return auto != nil && auto.Takes(have.Spec.Group, have.Spec.Version)
	}
	return !c.whole
}

// desired returns the automanaged APIServices that should exist, given the stored ones, and
// the conflicts of each Backend. An APIService that its Backend may still claim remains,
// unless the gateway claims it.
func (c *claims) desired(stored map[string]*apireg.APIService) (desired map[string]*apireg.APIService, conflicts map[string][]conflict) {
	desired, conflicts = make(map[string]*apireg.APIService, len(c.byName)), make(map[string][]conflict, len(c.refused))
	for name, list := range c.refused {
		conflicts[name] = slices.Clone(list)
	}
	for name, all := range c.byName {
		have, holder := stored[name], ""
		byUser := have != nil && !apiservice.IsAutomanaged(have)
		if have != nil {
			holder = have.Annotations[apiservice.BackendAnnotation]
		}
		won := winner(all, holder)
		desired[name] = won.desired
		held := slices.ContainsFunc(all, func(one claim) bool { return one.backend == holder })
		if !held && won.backend != backend.Reserved && c.awaits(have) {
			desired[name], won = have, claim{backend: holder}
		}
		for _, lost := range all {
			switch {
			case byUser && (have.Spec.Service != nil || holder != lost.backend):
				conflicts[lost.backend] = append(conflicts[lost.backend], conflict{name: name})
			case !byUser && lost.backend != won.backend:
				conflicts[lost.backend] = append(conflicts[lost.backend], conflict{name: name, by: won.backend})
			}
		}
	}
	delete(conflicts, backend.Reserved)
	for _, list := range conflicts {
		slices.SortFunc(list, func(a, b conflict) int {
			return cmp.Or(strings.Compare(a.by, b.by), strings.Compare(a.name, b.name))
		})
	}
	return desired, conflicts
}

// obsolete reports whether an automanaged APIService that is not claimed is to be deleted:
// its server answers and does not serve it, or it is another version of a group of the
// gateway. The gateway's own APIServices of built-in groups remain: another gateway of the
// installation may serve them.
func (c *claims) obsolete(have *apireg.APIService) bool {
	of := have.Annotations[apiservice.BackendAnnotation]
	if c.reserved[have.Spec.Group] && apiservice.IsAutomanaged(have) && of != backend.Reserved {
		return true
	}
	switch have.Labels[apiservice.AutomanagedLabel] {
	case apiservice.Managed:
		return c.complete[of]
	case apiservice.OnStart:
		return c.complete[of] && of != backend.Reserved
	}
	return false
}

// stale reports whether an automanaged APIService of another server, as kube-apiserver leaves
// them in etcd, is to be deleted: no Backend claims it, or may claim it once its discovery is
// read. As in kube-aggregator, one that is managed at the start only was there at the start.
func (c *claims) stale(have *apireg.APIService, atStart map[string]bool) bool {
	if have.Annotations[apiservice.BackendAnnotation] != "" || !c.whole {
		return false
	}
	for _, auto := range c.incomplete {
		if auto != nil && auto.Takes(have.Spec.Group, have.Spec.Version) {
			return false
		}
	}
	label := have.Labels[apiservice.AutomanagedLabel]
	return label == apiservice.Managed || label == apiservice.OnStart && atStart[have.Name]
}

// absent names the entries of autoRegister.groups that the server does not serve.
func absent(gvs []discovery.GroupVersion, auto *backend.AutoRegister) string {
	served := make([]schema.GroupVersion, 0, len(gvs))
	for i := range gvs {
		served = append(served, schema.GroupVersion{Group: gvs[i].Group, Version: gvs[i].Version})
	}
	missing := auto.Missing(served)
	for i := range missing {
		missing[i] = fmt.Sprintf("%q", missing[i])
	}
	return someOf(missing, ", ")
}

// result is the result of the claims of one Backend. Immutable.
type result struct {
	// of is what the claims were computed from.
	of        served
	conflicts []conflict
	// pending: an APIService of the Backend is not stored yet, or differs.
	pending bool
	absent  string // see claims
}

func (r result) same(o result) bool {
	return r.pending == o.pending && r.absent == o.absent && slices.Equal(r.conflicts, o.conflicts) && r.of.same(o.of)
}

// results returns the results of the claims by Backend; unwritten are the APIServices that
// are not stored as desired.
func (c *claims) results(conflicts map[string][]conflict, unwritten ...[]*apireg.APIService) map[string]result {
	pending := map[string]bool{}
	for _, a := range slices.Concat(unwritten...) {
		pending[a.Annotations[apiservice.BackendAnnotation]] = true
	}
	out := make(map[string]result, len(c.served))
	for _, s := range c.served {
		out[s.name] = result{of: s, conflicts: conflicts[s.name], pending: pending[s.name], absent: c.absent[s.name]}
	}
	return out
}
