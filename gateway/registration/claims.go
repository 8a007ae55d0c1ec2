package registration

import (
	"cmp"
	"slices"
	"strings"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apireg "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico/apiservice"
	"portico/apiservice/backend"
	"portico/discovery"
	"portico/gateway/routing"
)

// claim is that a Backend wants a group/version registered as its own.
type claim struct {
	backend   string
	permanent bool
	priority  int32
	replaces  bool
	wanted    *apireg.APIService
}

// answer is what claims are made of: a Backend and what its server says.
type answer struct {
	name      string
	permanent bool
	auto      *backend.AutoRegister
	rest      *backend.REST
	gvs       []discovery.GroupVersion
	// complete: gvs is everything the server serves.
	complete bool
}

// answerOf returns what a Backend and its server say at the moment.
func answerOf(st *routing.BackendState) answer {
	a := answer{name: st.Name, permanent: st.Permanent, auto: st.Spec.AutoRegister, rest: st.Spec.REST}
	switch {
	case routing.Registers(st.Spec) == nil:
		a.complete = true
	case st.Spec.REST != nil:
		// What it is to be is for its Backend to say: a document that cannot be read
		// is no reason to hide it.
		a.complete = st.Judged()
	case st.Server != nil && st.Server.Source.Heard():
		// What was restored is registered already, and says nothing of what is
		// gone.
		a.gvs, a.complete = st.Server.Source.Served()
	}
	return a
}

func (a answer) same(b answer) bool {
	return a.name == b.name && a.permanent == b.permanent && a.complete == b.complete && sameAnswer(a.gvs, b.gvs) &&
		apiequality.Semantic.DeepEqual(a.auto, b.auto) && apiequality.Semantic.DeepEqual(a.rest, b.rest)
}

// sameAnswer reports whether two answers are one: a source that hears something
// new makes another.
func sameAnswer(a, b []discovery.GroupVersion) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

// claims are what shall be registered. Immutable once made.
type claims struct {
	answers []answer
	// first is who wants each APIService, by name: of several, the first in the
	// order of the backendStates. others has the rest of them.
	first  map[string]claim
	others map[string][]claim
	// complete are the Backends of which everything is known; unheard is what the
	// others register, as soon as they are heard.
	complete map[string]bool
	unheard  map[string]*backend.AutoRegister
	// left is what Backends say that cannot be registered.
	left map[string]rejected
	// reserved are the groups that the gateway serves itself, of which it registers no
	// version for others; refused are the claims to such.
	reserved map[string]bool
	refused  map[string][]conflict
	// whole: there are no other Backends.
	whole bool
}

// claimed returns what shall be registered. While the Backends and what their
// servers say are the same, it is the same.
func (g *registrar) claimed(all *routing.BackendStates) *claims {
	var answers []answer
	for _, st := range all.List {
		a := answerOf(st)
		if st.Permanent && st.Object == nil && !g.introduced[st.Name] {
			a.gvs, a.complete = nil, false // nobody would know whose its APIServices are
		}
		answers = append(answers, a)
	}
	if g.claims != nil && g.claims.whole == all.Whole && slices.EqualFunc(answers, g.claims.answers, answer.same) {
		return g.claims
	}
	c := &claims{
		answers: answers, first: map[string]claim{}, others: map[string][]claim{},
		complete: map[string]bool{backend.Reserved: true}, unheard: map[string]*backend.AutoRegister{}, left: map[string]rejected{}, whole: all.Whole,
		reserved: map[string]bool{}, refused: map[string][]conflict{},
	}
	for _, gv := range g.own {
		c.reserved[gv.Group] = true
		if gv.Group != apiservice.Group {
			c.add(g.made(gv, claim{backend: backend.Reserved, permanent: true}, nil))
		}
	}
	for i := range answers {
		a := &answers[i]
		c.complete[a.name] = a.complete
		auto := routing.Registers(&backend.Spec{AutoRegister: a.auto, REST: a.rest})
		if !a.complete {
			c.unheard[a.name] = auto
		}
		gvs := a.gvs
		if a.rest != nil && a.complete {
			gvs = []discovery.GroupVersion{{Group: a.rest.Group, Version: a.rest.Version}}
		}
		take, left := registrable(gvs, auto)
		if auto != nil && a.complete {
			left.absent = absent(gvs, auto)
		}
		c.left[a.name] = left
		for _, gv := range take {
			if c.reserved[gv.Group] {
				c.refused[a.name] = append(c.refused[a.name], conflict{name: apiservice.Name(gv.Group, gv.Version), by: backend.Reserved})
				continue
			}
			own := claim{backend: a.name, permanent: a.permanent, replaces: auto.OnConflict == backend.ReplaceOther}
			c.add(g.made(gv, own, auto))
		}
	}
	g.claims = c
	return c
}

func (c *claims) add(own claim) {
	name := own.wanted.Name
	if _, taken := c.first[name]; taken {
		c.others[name] = append(c.others[name], own)
		return
	}
	c.first[name] = own
}

// made completes a claim to a group/version. Its APIService is the one from
// before if that is the same.
func (g *registrar) made(gv discovery.GroupVersion, own claim, auto *backend.AutoRegister) claim {
	group, version := discovery.Priorities(gv.Group, gv.Version)
	label := apiservice.OnStart
	if auto != nil {
		own.priority, _ = auto.Priorities()
	}
	switch builtin := discovery.Builtin(gv.Group); {
	case !builtin && auto != nil:
		group, version = auto.Priorities()
		label = apiservice.Managed
	case !builtin:
		label, version = apiservice.Managed, discovery.CustomVersionPriority
	case own.permanent:
		own.priority = group
	default:
		label = apiservice.Managed // comes and goes with its Backend
	}
	if g.claims != nil {
		before := g.claims.first[apiservice.Name(gv.Group, gv.Version)].wanted
		if before != nil && before.Labels[apiservice.AutomanagedLabel] == label && before.Annotations[apiservice.BackendAnnotation] == own.backend &&
			before.Spec.GroupPriorityMinimum == group && before.Spec.VersionPriority == version {
			own.wanted = before
			return own
		}
	}
	own.wanted = automanaged(gv, own.backend, label, group, version)
	return own
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

// winner returns which of several claims to one APIService holds, given the
// Backend that has it now ("" is nobody). Whoever has it keeps it, unless one
// that replaces others has the same priority or a higher one; of two that do,
// the higher one has it, and of equals the one that has it already. The gateway
// itself always wins. The result depends on nothing else, so that it stands once
// it is written.
func winner(all []claim, holder string) claim {
	best := slices.IndexFunc(all, func(c claim) bool { return c.backend == backend.Reserved })
	if best >= 0 {
		return all[best]
	}
	best = slices.IndexFunc(all, func(c claim) bool { return c.backend == holder })
	if best < 0 {
		// All are new: those that gateways start with, then by priority.
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

// conflict is that a Backend does not have an APIService it claims.
type conflict struct {
	name string
	// by is the Backend that has it; "" is a user's own APIService.
	by string
}

// awaits reports whether an APIService is that of a Backend which may claim it
// as soon as it is heard: a gateway that starts anew, or that just became the
// elected one, takes it from nobody who was only not asked yet.
func (c *claims) awaits(have *apireg.APIService) bool {
	if have == nil || !apiservice.IsAutomanaged(have) {
		return false
	}
	of := have.Annotations[apiservice.BackendAnnotation]
	if of == "" || c.complete[of] {
		return false
	}
	if auto, exists := c.unheard[of]; exists {
		return auto != nil && auto.Takes(have.Spec.Group, have.Spec.Version)
	}
	return !c.whole
}

// claimedBy reports whether a Backend claims an APIService: what else its server serves
// need not be known then.
func (c *claims) claimedBy(name, of string) bool {
	is := func(own claim) bool { return own.backend == of }
	return is(c.first[name]) || slices.ContainsFunc(c.others[name], is)
}

// desired returns the automanaged APIServices that shall exist, and which
// Backends do not get what they claim, given what is stored. What is stored of
// a Backend that is not heard yet stays as it is, unless the gateway itself
// claims it.
func (c *claims) desired(stored map[string]*apireg.APIService) (want map[string]*apireg.APIService, conflicts map[string][]conflict) {
	conflicts = make(map[string][]conflict, len(c.refused))
	for name, list := range c.refused {
		conflicts[name] = slices.Clone(list)
	}
	want = make(map[string]*apireg.APIService, len(c.first))
	for name, first := range c.first {
		want[name] = first.wanted
		have := stored[name]
		byUser := have != nil && !apiservice.IsAutomanaged(have)
		others := c.others[name]
		awaited := first.backend != backend.Reserved && c.awaits(have) && !c.claimedBy(name, have.Annotations[apiservice.BackendAnnotation])
		if len(others) == 0 && !byUser && !awaited {
			continue
		}
		all := append([]claim{first}, others...)
		holder := ""
		if have != nil {
			holder = have.Annotations[apiservice.BackendAnnotation]
		}
		if awaited {
			want[name] = have
			for _, lost := range all {
				conflicts[lost.backend] = append(conflicts[lost.backend], conflict{name: name, by: holder})
			}
			continue
		}
		won := winner(all, holder)
		want[name] = won.wanted
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
	return want, conflicts
}
