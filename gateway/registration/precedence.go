package registration

import (
	"cmp"
	"math"
	"slices"

	apireg "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico/apiservice"
	"portico/discovery"
)

// Of a group whose versions are several Backends', the preferred version is where
// clients go that name none. So a version that comes to a group sorts after those of
// others that are there, whatever its name and its Backend's priorities say, and does
// not raise the group: that a server lists "v7" of somebody's group is no reason to
// send everybody's requests to it. Who replaces another (autoRegister.onConflict) by
// the rules of single versions does so here as well.

// seat is a group/version among the others of its group.
type seat struct {
	*apireg.APIService
	// by is the Backend it is of; "": a user's own server.
	by string
	// claim is by which it may be placed otherwise; nil: it stays as it is.
	claim *claim
	// stored is what there is of it; nil: nothing yet.
	stored *apireg.APIService
	// goes: its server has it no more. It only tells of its Backend's place.
	goes bool
}

// yields reports whether a claimed version comes after another Backend's.
func (s *seat) yields(to *seat) bool {
	c, o := s.claim, to.claim
	return !c.replaces || o == nil || c.priority < o.priority || c.priority == o.priority && o.replaces
}

// permanent reports whether it is of a server that gateways start with.
func (s *seat) permanent() bool {
	if s.claim != nil {
		return s.claim.permanent
	}
	return s.stored.Labels[apiservice.AutomanagedLabel] == apiservice.OnStart
}

// arrange places the versions of groups that several have, in want; those that have
// no place behind the others are taken out of it, and become conflicts. held are the
// claims that want was made by. The result depends on what is stored only in that
// who is first stays first, so that it stands once it is written.
func (c *claims) arrange(want map[string]*apireg.APIService, held map[string]*claim, stored map[string]*apireg.APIService, conflicts map[string][]conflict) {
	for _, seats := range c.shared(want, held, stored) {
		var before []*seat // of Backends that are first
		for _, of := range c.precedence(seats) {
			for _, s := range of {
				if s.claim == nil {
					continue
				}
				placed, behind := s.behind(before)
				if placed == nil {
					conflicts[s.by] = append(conflicts[s.by], conflict{name: s.Name, by: behind.by, crowded: true})
					if placed = s.itsOwn(); placed == nil {
						delete(want, s.Name)
						s.goes = true
						continue
					}
				}
				s.APIService, want[s.Name] = placed, placed
			}
			for _, s := range of {
				if !s.goes {
					before = append(before, s)
				}
			}
		}
	}
}

// itsOwn returns what is stored, if it is the gateway's doing for the same Backend: it
// was served until now, and stays as it is.
func (s *seat) itsOwn() *apireg.APIService {
	if s.stored == nil || !apiservice.IsAutomanaged(s.stored) || s.stored.Annotations[apiservice.BackendAnnotation] != s.by {
		return nil
	}
	return s.stored
}

// shared returns the versions of each group that more than one has, and what is stored
// of these groups and about to go. Not among them is what nobody answers.
func (c *claims) shared(want map[string]*apireg.APIService, held map[string]*claim, stored map[string]*apireg.APIService) map[string][]*seat {
	owner, several := make(map[string]string, len(want)), map[string]bool{}
	each := func(visit func(s seat)) {
		for name, a := range want {
			if have := stored[name]; have == nil || apiservice.IsAutomanaged(have) {
				visit(seat{APIService: a, by: a.Annotations[apiservice.BackendAnnotation], claim: held[name], stored: have})
			}
		}
		for name, have := range stored {
			by, byUser := have.Annotations[apiservice.BackendAnnotation], !apiservice.IsAutomanaged(have)
			switch {
			case byUser && have.Spec.Service != nil:
				visit(seat{APIService: have, stored: have})
			case by == "" || want[name] != nil && !byUser:
			default:
				visit(seat{APIService: have, by: by, stored: have, goes: !byUser && c.complete[by]})
			}
		}
	}
	each(func(s seat) {
		first, seen := owner[s.Spec.Group]
		switch {
		case s.goes:
		case !seen:
			owner[s.Spec.Group] = s.by
		case first != s.by && !c.reserved[s.Spec.Group]:
			several[s.Spec.Group] = true
		}
	})
	if len(several) == 0 {
		return nil
	}
	out := make(map[string][]*seat, len(several))
	each(func(s seat) {
		if several[s.Spec.Group] {
			out[s.Spec.Group] = append(out[s.Spec.Group], &s)
		}
	})
	return out
}

// precedence returns the versions of a group by who has them, the first one first.
// First are, in a group of Kubernetes itself, the servers that gateways start with, in
// their order, whichever was registered first; then who is first in what is stored; of those that have nothing stored the servers
// that gateways start with, then by priority, and in the order of the Backends.
func (c *claims) precedence(seats []*seat) [][]*seat {
	type owner struct {
		seats     []*seat
		permanent bool
		rank      int
		priority  int32
		index     int
	}
	slices.SortFunc(seats, func(a, b *seat) int {
		if (a.stored == nil) != (b.stored == nil) {
			return cmp.Compare(given(a.stored == nil), given(b.stored == nil))
		}
		if a.stored == nil {
			return cmp.Compare(a.Name, b.Name)
		}
		return apiservice.CompareVersions(a.stored, b.stored)
	})
	var owners []*owner
	by := map[string]*owner{}
	for i, s := range seats {
		o := by[s.by]
		if o == nil {
			o = &owner{rank: i, index: slices.IndexFunc(c.answers, func(a answer) bool { return a.name == s.by })}
			if s.stored == nil {
				o.rank = math.MaxInt
			}
			owners, by[s.by] = append(owners, o), o
		}
		if o.permanent = o.permanent || s.permanent(); s.goes {
			continue
		}
		o.seats = append(o.seats, s)
		if s.claim != nil {
			o.priority = s.claim.priority
		}
	}
	builtin := discovery.Builtin(seats[0].Spec.Group)
	slices.SortStableFunc(owners, func(a, b *owner) int {
		if builtin && a.permanent && b.permanent && a.index >= 0 && b.index >= 0 {
			return cmp.Compare(a.index, b.index)
		}
		return cmp.Or(
			given(builtin)*cmp.Compare(given(b.permanent), given(a.permanent)), cmp.Compare(a.rank, b.rank),
			cmp.Compare(given(b.permanent), given(a.permanent)), cmp.Compare(b.priority, a.priority), cmp.Compare(a.index, b.index),
		)
	})
	out := make([][]*seat, 0, len(owners))
	for _, o := range owners {
		out = append(out, o.seats)
	}
	return out
}

// behind returns the APIService so that it sorts after others, and does not raise the
// group above where they have it. nil: no version priority is low enough to come
// after that one.
func (s *seat) behind(others []*seat) (placed *apireg.APIService, after *seat) {
	version, group := s.Spec.VersionPriority, int32(0)
	for _, o := range others {
		if !s.yields(o) {
			continue
		}
		version, group = min(version, max(o.Spec.VersionPriority-1, 1)), max(group, o.Spec.GroupPriorityMinimum)
	}
	if group == 0 {
		return s.APIService, nil
	}
	group = min(group, s.Spec.GroupPriorityMinimum)
	placed = s.APIService
	if placed.Spec.VersionPriority != version || placed.Spec.GroupPriorityMinimum != group {
		placed = placed.DeepCopy()
		placed.Spec.VersionPriority, placed.Spec.GroupPriorityMinimum = version, group
	}
	for _, o := range others {
		if s.yields(o) && apiservice.CompareVersions(placed, o.APIService) < 0 {
			return nil, o
		}
	}
	return placed, nil
}

// given is 1 if something is so.
func given(is bool) int {
	if is {
		return 1
	}
	return 0
}
