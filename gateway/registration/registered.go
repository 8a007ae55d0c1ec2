package registration

import (
	"fmt"

	apireg "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico/apiservice"
	"portico/apiservice/backend"
	"portico/gateway/routing"
)

// registered says whether the Backend has what it claims; the zero Condition if
// it claims nothing.
func (w *statusWriter) registered(st *routing.Standing) apiservice.Condition {
	if routing.Registers(st.Spec) == nil {
		return apiservice.Condition{}
	}
	switch {
	case st.Spec.REST != nil && st.Judged(): // what it is to have, its Backend says
	case st.Spec.REST != nil, st.Server == nil || !st.Server.Source.Heard():
		return routing.Unchecked()
	}
	var o outcome
	if all := w.outcomes.Load(); all != nil {
		o = (*all)[st.Name]
	}
	lost := o.conflicts
	switch {
	case !o.of.same(answerOf(st)), o.pending && len(lost) == 0:
		return apiservice.Condition{Status: apireg.ConditionUnknown, Reason: routing.Unchecked().Reason, Message: "its groups are being registered"}
	case len(lost) == 0 && o.left != (leftOut{}):
		return apiservice.Condition{Status: apireg.ConditionFalse, Reason: "LeftOut", Message: o.left.String()}
	case len(lost) == 0:
		return apiservice.Condition{Status: apireg.ConditionTrue, Reason: "Registered", Message: "every group it shall have is its own"}
	}
	var parts []string
	for rest := lost; len(rest) > 0; {
		first, n := rest[0], 0
		var names []string
		for n < len(rest) && rest[n].by == first.by && rest[n].crowded == first.crowded {
			names = append(names, rest[n].name)
			n++
		}
		parts = append(parts, someOf(names)+" "+first.holder())
		rest = rest[n:]
	}
	message := someOfWith(parts, "; ")
	if left := o.left.String(); left != "" {
		message += "; " + left
	}
	return apiservice.Condition{Status: apireg.ConditionFalse, Reason: "Conflict", Message: message}
}

// holder says who has it, or is in its way.
func (c conflict) holder() string {
	who := fmt.Sprintf("Backend %q", c.by)
	switch {
	case c.by == "":
		who = "a user"
	case c.by == backend.Reserved:
		return "of a group that is served by the gateway itself"
	}
	switch {
	case c.crowded:
		return fmt.Sprintf("would come before versions of the same group that are of %s, the lowest of which has the versionPriority 1", who)
	case c.by == "":
		return "registered by a user"
	}
	return "served by " + who
}
