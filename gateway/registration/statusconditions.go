package registration

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apireg "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico/apiservice"
	"portico/apiservice/backend"
	"portico/discovery/openapi"
	"portico/discovery/sources"
	"portico/gateway/routing"
)

// maxNamed bounds the names of one kind in the message of a condition.
const maxNamed = 5

// notRead is the reason of conditions that are Unknown because nothing was read from the
// server.
const notRead = "NotRead"

// conditions returns the conditions of a Backend; one without a status is removed.
func (w *statusWriter) conditions(st *routing.BackendState) []metav1.Condition {
	as := func(kind string, c apiservice.Condition) metav1.Condition {
		c = c.ObservedBy(w.observer)
		return metav1.Condition{Type: kind, Status: metav1.ConditionStatus(c.Status), Reason: c.Reason, Message: c.Message}
	}
	return []metav1.Condition{
		as(backend.Available, availableCondition(st)), as(backend.Discovered, w.discovered(st)),
		as(backend.OpenAPIValid, w.openAPIValid(st)), as(backend.Registered, w.registered(st)),
	}
}

// failed returns a condition of the status False.
func failed(reason, format string, args ...any) apiservice.Condition {
	return apiservice.Condition{Status: apireg.ConditionFalse, Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// availableCondition returns the condition of routing, with the number of healthy endpoints
// if not all are, and of drained ones, which are not among them.
func availableCondition(st *routing.BackendState) apiservice.Condition {
	out := st.Condition
	if !out.Available() || st.Server == nil {
		return out
	}
	used, healthy, drained := 0, 0, 0
	for _, e := range st.Server.Up.Status().Endpoints {
		switch e.State {
		case backend.EndpointDraining:
			drained++
			continue
		case backend.EndpointHealthy:
			healthy++
		}
		used++
	}
	if healthy < used {
		out.Message = fmt.Sprintf("%d of %d endpoints are healthy", healthy, used)
		out = st.Noted(out)
	}
	if drained > 0 {
		out.Message += fmt.Sprintf("; drained endpoints (weight 0): %d", drained)
	}
	return out
}

func (w *statusWriter) discovered(st *routing.BackendState) apiservice.Condition {
	if st.Server == nil {
		return st.Condition
	}
	v := w.found.DiscoveryVerdict(st.Server)
	gvs, known := st.Server.Source.GroupVersions()
	switch {
	case v.Known && !v.Healthy:
		return apiservice.FailedDiscoveryCheck(st.CheckURL, v.Err)
	case !st.Server.Source.Fetched() && known:
		return apiservice.Condition{Status: apireg.ConditionUnknown, Reason: "LastGood", Message: "the discovery of the server is from before the start of the gateway"}
	case !st.Server.Source.Fetched():
		return routing.Unchecked()
	}
	unread := st.Server.Source.Unread()
	truncated := truncatedCondition(st.Server.Source.Dropped(), unread)
	unread = slices.DeleteFunc(slices.Clone(unread), func(u sources.Unread) bool { return errors.Is(u.Err, sources.ErrBeyondLimits) })
	if len(unread) > 0 {
		c := failed("UnreadDocuments", "cannot be read: %s; %s", someOf(namesOf(unread), ", "), routing.StableText(unread[0].Err.Error()))
		if truncated.Message != "" {
			c.Message += "; " + truncated.Message
		}
		return c
	}
	if truncated.Message != "" {
		return truncated
	}
	c := apiservice.Condition{Status: apireg.ConditionTrue, Reason: "Discovered", Message: "the discovery of the server has been read"}
	if st.Server.REST != nil {
		if summary, _ := st.Server.REST.LeftOut(); summary != "" {
			c.Message += "; " + summary
		}
	}
	if len(gvs) > maxStatusGroups {
		c.Message += fmt.Sprintf("; status.groupVersions has the first %d of %d group/versions, by name", maxStatusGroups, len(gvs))
	}
	return c
}

// truncatedCondition says how many group/versions exceed the limits on the discovery of one
// server, and names some; the zero Condition if n is 0.
func truncatedCondition(n int, unread []sources.Unread) apiservice.Condition {
	if n == 0 {
		return apiservice.Condition{}
	}
	c := failed("DiscoveryTruncated", "group/versions beyond the limits on the discovery of one server, which are left out: %d", n)
	known := slices.DeleteFunc(slices.Clone(unread), func(u sources.Unread) bool { return !errors.Is(u.Err, sources.ErrBeyondLimits) })
	if len(known) > 0 {
		c.Message += ", of which these are known by name: " + someOf(namesOf(known), ", ")
	}
	return c
}

func namesOf(unread []sources.Unread) (names []string) {
	for _, u := range unread {
		names = append(names, u.Name())
	}
	return names
}

// unread returns the condition before anything is read from the server: unchecked, or that
// reading failed.
func (w *statusWriter) unread(st *routing.BackendState) apiservice.Condition {
	bad := !st.Condition.Available() && st.Condition.Reason != routing.Unchecked().Reason
	if st.Server != nil {
		v := w.found.DiscoveryVerdict(st.Server)
		bad = bad || v.Known && !v.Healthy
	}
	if !bad {
		return routing.Unchecked()
	}
	return apiservice.Condition{
		Status: apireg.ConditionUnknown, Reason: notRead,
		Message: "the discovery of the server could not be read; the condition " + backend.Discovered + " says why",
	}
}

func (w *statusWriter) openAPIValid(st *routing.BackendState) apiservice.Condition {
	if st.Server == nil || !st.Server.Source.Fetched() {
		return w.unread(st)
	}
	broken := w.broken(st.Server)
	if len(broken) == 0 {
		return apiservice.Condition{Status: apireg.ConditionTrue, Reason: "Valid", Message: "no document is known to be broken"}
	}
	names := make([]string, 0, len(broken))
	for _, b := range broken {
		names = append(names, nameOfDocument(b, st.Server.REST != nil))
	}
	return failed("BrokenDocuments", "cannot be used: %s; %s", someOf(names, ", "), broken[0].Message)
}

// nameOfDocument names an OpenAPI document of a server; a REST server has only one.
func nameOfDocument(b openapi.Broken, ofREST bool) string {
	switch {
	case b.Key != "":
		return b.Key
	case ofREST:
		return "the server's document"
	}
	return "the index"
}

// registered says whether the Backend has the APIServices that it claims; the zero Condition
// if it claims none.
func (w *statusWriter) registered(st *routing.BackendState) apiservice.Condition {
	if routing.Registers(st.Spec) == nil {
		return apiservice.Condition{}
	}
	switch {
	case st.Spec.REST != nil && st.Checked():
	case st.Spec.REST != nil, st.Server == nil || !st.Server.Source.Fetched():
		return w.unread(st)
	}
	var r result
	if all := w.results.Load(); all != nil {
		r = (*all)[st.Name]
	}
	left := leftOut(r.absent, st)
	switch {
	case !r.of.same(servedBy(st)), r.pending && len(r.conflicts) == 0:
		return apiservice.Condition{Status: apireg.ConditionUnknown, Reason: routing.Unchecked().Reason, Message: "its groups are being registered"}
	case len(r.conflicts) == 0 && left == "":
		c := apiservice.Condition{Status: apireg.ConditionTrue, Reason: "Registered", Message: "its group/versions are registered"}
		if st.Server == nil || unread(st.Server) {
			c.Message += "; nothing is served before the OpenAPI document of the server has been read"
		}
		return c
	case len(r.conflicts) == 0:
		return failed("LeftOut", "%s", left)
	}
	c := failed("Conflict", "%s", conflictsText(r.conflicts))
	if left != "" {
		c.Message += "; " + left
	}
	return c
}

// unread reports whether the group/versions of a server were never read.
func unread(srv *routing.Server) bool {
	_, known := srv.Source.GroupVersions()
	return !known
}

// leftOut describes the group/versions that are not registered, without conflicts; "" is
// none.
func leftOut(absent string, st *routing.BackendState) string {
	var parts, names []string
	if auto := routing.Registers(st.Spec); st.Server != nil && auto != nil {
		for _, u := range st.Server.Source.Unread() {
			if errors.Is(u.Err, sources.ErrInvalidName) && auto.Takes(u.GroupVersion.Group, u.GroupVersion.Version) {
				names = append(names, u.Name())
			}
		}
	}
	if len(names) > 0 {
		parts = append(parts, fmt.Sprintf("cannot be registered: %s; %v", someOf(names, ", "), sources.ErrInvalidName))
	}
	if absent != "" {
		parts = append(parts, "spec.autoRegister.groups: the server does not serve "+absent)
	}
	return strings.Join(parts, "; ")
}

// conflictsText groups conflicts, which are in the order of their Backends, by Backend.
func conflictsText(list []conflict) string {
	var parts []string
	for len(list) > 0 {
		by := list[0].by
		var names []string
		for len(list) > 0 && list[0].by == by {
			names, list = append(names, list[0].name), list[1:]
		}
		reason := fmt.Sprintf("served by Backend %q", by)
		switch by {
		case "":
			reason = "registered by a user"
		case backend.Reserved:
			reason = "of a group that is served by the gateway itself"
		}
		parts = append(parts, someOf(names, ", ")+" "+reason)
	}
	return someOf(parts, "; ")
}

// someOf joins the first maxNamed names.
func someOf(names []string, separator string) string {
	if len(names) > maxNamed {
		return strings.Join(names[:maxNamed], separator) + " and others"
	}
	return strings.Join(names, separator)
}
