package rest

import "slices"

// ResetFields returns the fields that writes of the kind (sub: of a subresource) in a version
// reset, and which a writer therefore does not own: Strategy.Resets or their default.
func (k *Kind) ResetFields(version string, sub *Subresource) []string {
	strategy := &k.Strategy
	if sub != nil {
		strategy = sub.Strategy
	}
	if strategy == nil { // Projection or Create
		return nil
	}
	hasStatus := slices.ContainsFunc(k.Subresources, func(s Subresource) bool { return s.Name == "status" && s.Strategy != nil })
	switch {
	case strategy.Resets != nil:
		return strategy.Resets
	case sub != nil && sub.Name == "status" && k.HasGoType(version):
		return []string{"spec"}
	case sub != nil && sub.Name == "status":
		return []string{"metadata", "spec"}
	case hasStatus:
		return []string{"status"}
	}
	return nil
}
