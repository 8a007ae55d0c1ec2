package registration

import (
	"errors"
	"fmt"
	"strings"

	apireg "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico/apiservice"
	"portico/apiservice/backend"
	"portico/discovery/sources"
	"portico/gateway/routing"
)

// registered says whether the Backend has what it claims; the zero Condition if
// it claims nothing.
func (w *statusWriter) registered(st *routing.BackendState) apiservice.Condition {
	if routing.Registers(st.Spec) == nil {
		return apiservice.Condition{}
	}
	switch {
	case st.Spec.REST != nil && st.Judged(): // what it is to have, its Backend says
	case st.Spec.REST != nil, st.Server == nil || !st.Server.Source.Heard():
		return w.unheard(st)
	}
	var o result
	if all := w.results.Load(); all != nil {
		o = (*all)[st.Name]
	}
	left := leftOver(o.left, st)
	switch {
	case !o.of.same(answerOf(st)), o.pending && len(o.conflicts) == 0:
		return apiservice.Condition{Status: apireg.ConditionUnknown, Reason: routing.Unchecked().Reason, Message: "its groups are being registered"}
	case len(o.conflicts) == 0 && left == "":
		return apiservice.Condition{Status: apireg.ConditionTrue, Reason: "Registered", Message: "every group it shall have is its own"}
	case len(o.conflicts) == 0:
		return apiservice.Condition{Status: apireg.ConditionFalse, Reason: "LeftOut", Message: left}
	}
	message := inTheWay(o.conflicts)
	if left != "" {
		message += "; " + left
	}
	return apiservice.Condition{Status: apireg.ConditionFalse, Reason: "Conflict", Message: message}
}

// leftOver says what is not registered although nobody else has it; "" is nothing.
func leftOver(left rejected, st *routing.BackendState) string {
	var parts, names []string
	if auto := routing.Registers(st.Spec); st.Server != nil && auto != nil {
		for _, u := range st.Server.Source.Unread() {
			if errors.Is(u.Err, sources.ErrInvalidName) && auto.Takes(u.GroupVersion.Group, u.GroupVersion.Version) {
				names = append(names, u.Name())
			}
		}
	}
	if len(names) > 0 {
		parts = append(parts, fmt.Sprintf("cannot be registered: %s; %v", someOf(names), sources.ErrInvalidName))
	}
	if text := left.String(); text != "" {
		parts = append(parts, text)
	}
	return strings.Join(parts, "; ")
}

// inTheWay says who has what a Backend claims.
func inTheWay(lost []conflict) string {
	var parts []string
	for rest := lost; len(rest) > 0; {
		first, n := rest[0], 0
		var names []string
		for n < len(rest) && rest[n].by == first.by {
			names = append(names, rest[n].name)
			n++
		}
		parts = append(parts, someOf(names)+" "+first.holder())
		rest = rest[n:]
	}
	return someOfWith(parts, "; ")
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
	if c.by == "" {
		return "registered by a user"
	}
	return "served by " + who
}
