package registration

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apireg "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico/apiservice"
	"portico/apiservice/backend"
	"portico/discovery/openapi"
	"portico/discovery/sources"
	"portico/gateway/routing"
)

const (
	// maxStatusGroups bounds the group/versions that a status lists; the condition
	// Discovered says that there are more. With as many endpoints as a Backend may
	// have, and the longest errors, an object stays well below what etcd takes.
	maxStatusGroups = backend.MaxStatusGroups
	// maxNamed bounds what a condition's message names of one sort.
	maxNamed = 5
)

// statusOf returns what there is to say of a Backend, given what is stored of it.
// What is not known yet stays as it is stored.
func (w *statusWriter) statusOf(st *routing.BackendState, stored *backend.Status) backend.Status {
	out := stored.DeepCopy()
	if st.Server != nil {
		out.Endpoints = endpointStatuses(st.Server, stored)
		if _, known := st.Server.Source.GroupVersions(); known {
			out.GroupVersions = groupVersionStatuses(st)
		}
	} else {
		out.Endpoints = nil
		for i := range out.GroupVersions {
			if st.Stale {
				out.GroupVersions[i].Freshness = "Stale"
			}
		}
	}
	generation := int64(0)
	if st.Object != nil {
		generation = st.Object.Generation
	}
	desired := st.Server == nil || w.found.Settled(st.Server)
	for _, c := range w.conditions(st) {
		have := meta.FindStatusCondition(out.Conditions, c.Type)
		switch {
		case c.Status == "":
			meta.RemoveStatusCondition(&out.Conditions, c.Type)
			continue
		case have == nil:
		case c.Status == metav1.ConditionUnknown && c.Reason == routing.Unchecked().Reason:
			continue
		case !desired && have.Status == c.Status && have.ObservedGeneration != generation:
			continue // of what was there before the change
		case c.Reason == notRead && have.Status != metav1.ConditionUnknown:
			continue // what was found out while it could be read
		case have.Status == c.Status && have.Reason == c.Reason && have.ObservedGeneration == generation &&
			apiservice.Unobserved(have.Message) == apiservice.Unobserved(c.Message):
			continue // whoever saw it
		}
		c.ObservedGeneration = generation
		meta.SetStatusCondition(&out.Conditions, c)
	}
	return out
}

// sameStatus reports whether there is nothing to write. What an endpoint's error
// was before it became healthy is not worth a write.
func sameStatus(a, b *backend.Status) bool {
	same := func(a, b backend.EndpointStatus) bool {
		return a.URL == b.URL && a.State == b.State && (a.State == backend.EndpointHealthy || a.LastError == b.LastError)
	}
	return slices.EqualFunc(a.Endpoints, b.Endpoints, same) && slices.Equal(a.GroupVersions, b.GroupVersions) &&
		apiequality.Semantic.DeepEqual(a.Conditions, b.Conditions)
}

// observed is the latest generation of a Backend that its conditions are of.
func observed(s *backend.Status) (latest int64) {
	for i := range s.Conditions {
		latest = max(latest, s.Conditions[i].ObservedGeneration)
	}
	return latest
}

// sameButTexts reports whether two statuses that differ do so in the texts of messages
// and errors alone. That there is one where there was none is more than that.
func sameButTexts(a, b *backend.Status) bool {
	return slices.EqualFunc(a.Endpoints, b.Endpoints, func(a, b backend.EndpointStatus) bool {
		return a.URL == b.URL && a.State == b.State && (a.LastError == "") == (b.LastError == "")
	}) && slices.Equal(a.GroupVersions, b.GroupVersions) && slices.EqualFunc(a.Conditions, b.Conditions, func(a, b metav1.Condition) bool {
		a.Message, b.Message = "", ""
		return apiequality.Semantic.DeepEqual(a, b)
	})
}

// endpointStatuses are those of a server, in the order of its Backend.
func endpointStatuses(srv *routing.Server, stored *backend.Status) []backend.EndpointStatus {
	now := srv.Up.Status().Endpoints
	out := make([]backend.EndpointStatus, 0, len(now))
	for _, e := range now {
		next := backend.EndpointStatus{
			URL: e.URL, State: e.State, LastError: routing.StableText(e.LastError),
			LastTransitionTime: metav1.NewTime(e.Since.Truncate(time.Second)),
		}
		if i := slices.IndexFunc(stored.Endpoints, func(have backend.EndpointStatus) bool { return have.URL == e.URL }); i >= 0 {
			switch have := stored.Endpoints[i]; {
			case next.State == backend.EndpointUnknown:
				next = have
			case next.State == have.State:
				next.LastTransitionTime = have.LastTransitionTime
				next.LastError = cmp.Or(next.LastError, have.LastError)
			}
		}
		out = append(out, next)
	}
	return out
}

// groupVersionStatuses is what a server says it serves, in the order of names.
func groupVersionStatuses(st *routing.BackendState) []backend.GroupVersionStatus {
	gvs, _ := st.Server.Source.GroupVersions()
	out := make([]backend.GroupVersionStatus, 0, len(gvs))
	for i := range gvs {
		freshness := "Current"
		if st.Stale || gvs[i].Stale || gvs[i].Unknown {
			freshness = "Stale"
		}
		out = append(out, backend.GroupVersionStatus{Group: gvs[i].Group, Version: gvs[i].Version, Freshness: freshness})
	}
	slices.SortFunc(out, func(a, b backend.GroupVersionStatus) int {
		return cmp.Or(strings.Compare(a.Group, b.Group), strings.Compare(a.Version, b.Version))
	})
	return out[:min(len(out), maxStatusGroups)]
}

// conditions are those of a Backend; one without status is to go.
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

// availableCondition says more than the verdict where only some endpoints can
// be used.
func availableCondition(st *routing.BackendState) apiservice.Condition {
	if !st.Condition.Available() || st.Server == nil {
		return st.Condition
	}
	out := st.Condition
	healthy, all := 0, 0
	for _, e := range st.Server.Up.Status().Endpoints {
		if all++; e.State == backend.EndpointHealthy {
			healthy++
		}
	}
	if healthy < all {
		out.Message = fmt.Sprintf("%d of %d endpoints are healthy", healthy, all)
		out = st.Noted(out)
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
		return apiservice.FailedDiscoveryCheck(st.Asked, v.Err)
	case st.Server.Source.Heard():
		unread := st.Server.Source.Unread()
		truncated := truncatedCondition(st.Server.Source.Dropped(), unread)
		unread = slices.DeleteFunc(unread, func(u sources.Unread) bool { return errors.Is(u.Err, sources.ErrBeyondLimits) })
		if len(unread) > 0 {
			c := unreadCondition(unread)
			if truncated.Message != "" {
				c.Message += "; " + truncated.Message
			}
			return c
		}
		if truncated.Message != "" {
			return truncated
		}
		c := apiservice.Condition{Status: apireg.ConditionTrue, Reason: "Discovered", Message: "what the server serves has been read"}
		if st.Server.REST != nil {
			if summary, _ := st.Server.REST.LeftOut(); summary != "" {
				c.Message += "; " + summary
			}
		}
		if len(gvs) > maxStatusGroups {
			c.Message += fmt.Sprintf("; status.groupVersions has the first %d of %d group/versions, by name", maxStatusGroups, len(gvs))
		}
		return c
	case known:
		return apiservice.Condition{Status: apireg.ConditionUnknown, Reason: "LastGood", Message: "what the server served last is known from before"}
	}
	return routing.Unchecked()
}

// truncatedCondition says how many group/versions are left out because of the limits on
// the discovery of one server, and names some; the zero Condition if none is.
func truncatedCondition(n int, unread []sources.Unread) apiservice.Condition {
	if n == 0 {
		return apiservice.Condition{}
	}
	var names []string
	for _, u := range unread {
		if errors.Is(u.Err, sources.ErrBeyondLimits) {
			names = append(names, u.Name())
		}
	}
	message := fmt.Sprintf("group/versions beyond the limits on the discovery of one server, which are left out: %d", n)
	if len(names) > 0 {
		message += ", of which these are known by name: " + someOf(names)
	}
	return apiservice.Condition{Status: apireg.ConditionFalse, Reason: "DiscoveryTruncated", Message: message}
}

// unreadCondition names the group/versions whose documents could not be read.
func unreadCondition(unread []sources.Unread) apiservice.Condition {
	names := make([]string, 0, len(unread))
	for _, u := range unread {
		names = append(names, u.Name())
	}
	return apiservice.Condition{
		Status: apireg.ConditionFalse, Reason: "UnreadDocuments",
		Message: fmt.Sprintf("cannot be read: %s; %s", someOf(names), routing.StableText(unread[0].Err.Error())),
	}
}

// notRead is the reason of conditions that nothing can be said of, because what the
// server serves was never read.
const notRead = "NotRead"

// unheard is the condition of what a server has not said yet: that it was not asked, or
// that it does not tell.
func (w *statusWriter) unheard(st *routing.BackendState) apiservice.Condition {
	failed := !st.Condition.Available() && st.Condition.Reason != routing.Unchecked().Reason
	if st.Server != nil {
		v := w.found.DiscoveryVerdict(st.Server)
		failed = failed || v.Known && !v.Healthy
	}
	if !failed {
		return routing.Unchecked()
	}
	return apiservice.Condition{
		Status: apireg.ConditionUnknown, Reason: notRead,
		Message: "what the server serves could not be read; the condition " + backend.Discovered + " says why",
	}
}

func (w *statusWriter) openAPIValid(st *routing.BackendState) apiservice.Condition {
	if st.Server == nil || !st.Server.Source.Heard() {
		return w.unheard(st)
	}
	broken := w.broken(st.Server)
	if len(broken) == 0 {
		return apiservice.Condition{Status: apireg.ConditionTrue, Reason: "Valid", Message: "no document is known to be broken"}
	}
	names := make([]string, 0, len(broken))
	for _, b := range broken {
		names = append(names, nameOfDocument(b, st.Server.REST != nil))
	}
	return apiservice.Condition{
		Status: apireg.ConditionFalse, Reason: "BrokenDocuments",
		Message: fmt.Sprintf("cannot be used: %s; %s", someOf(names), broken[0].Message),
	}
}

// nameOfDocument names it; plain: of a REST server, which has only the one.
func nameOfDocument(b openapi.Broken, plain bool) string {
	switch {
	case b.Key != "":
		return b.Key
	case plain:
		return "the server's document"
	}
	return "the index"
}

// someOf names the first of a list, and says that there are more.
func someOf(names []string) string { return someOfWith(names, ", ") }

func someOfWith(names []string, separator string) string {
	if len(names) > maxNamed {
		return strings.Join(names[:maxNamed], separator) + " and others"
	}
	return strings.Join(names, separator)
}
