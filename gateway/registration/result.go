package registration

import (
	"slices"

	apireg "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico/apiservice"
)

// result is what came of the claims of one Backend, as of one turn of the
// registrar. Immutable.
type result struct {
	// of is what the claims were made of: of another answer this says nothing.
	of answer
	// conflicts are the claims that others hold.
	conflicts []conflict
	// pending: some of what it shall have was not stored yet, or otherwise.
	pending bool
	// left is what cannot be registered.
	left rejected
}

func (o result) same(p result) bool {
	return o.pending == p.pending && o.left == p.left && slices.Equal(o.conflicts, p.conflicts) && o.of.same(p.of)
}

// results returns what came of the claims, by Backend: who does not get what,
// and which APIServices are still to be written.
func (c *claims) results(conflicts map[string][]conflict, unwritten ...[]*apireg.APIService) map[string]result {
	pending := map[string]bool{}
	for _, list := range unwritten {
		for _, a := range list {
			pending[a.Annotations[apiservice.BackendAnnotation]] = true
		}
	}
	out := make(map[string]result, len(c.answers))
	for _, a := range c.answers {
		out[a.name] = result{of: a, conflicts: conflicts[a.name], pending: pending[a.name], left: c.left[a.name]}
	}
	return out
}
