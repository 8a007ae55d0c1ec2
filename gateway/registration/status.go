package registration

import (
	"cmp"
	"slices"
	"strings"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico/apiservice"
	"portico/apiservice/backend"
	"portico/gateway/routing"
)

// maxStatusGroups bounds the group/versions of a status; the condition Discovered has the
// number of all. With the most endpoints of a Backend and the longest errors, an object remains well
// below the limit of etcd.
const maxStatusGroups = backend.MaxStatusGroups

// statusOf returns the status of a Backend, given the stored one. What is not known yet
// remains as it is stored.
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
	current := st.Server == nil || w.found.Current(st.Server)
	for _, c := range w.conditions(st) {
		have := meta.FindStatusCondition(out.Conditions, c.Type)
		switch {
		case c.Status == "":
			meta.RemoveStatusCondition(&out.Conditions, c.Type)
			continue
		case have == nil:
		case c.Status == metav1.ConditionUnknown && c.Reason == routing.Unchecked().Reason:
			continue
		case !current && have.Status == c.Status && have.ObservedGeneration != generation:
			continue // checked before the last change of the Backend
		case c.Reason == notRead && have.Status != metav1.ConditionUnknown:
			continue // as of when it could be read
		case have.Status == c.Status && have.Reason == c.Reason && have.ObservedGeneration == generation &&
			apiservice.Unobserved(have.Message) == apiservice.Unobserved(c.Message):
			continue // the same, by another observer
		}
		c.ObservedGeneration = generation
		meta.SetStatusCondition(&out.Conditions, c)
	}
	return out
}

// sameStatus reports whether there is nothing to write. The former error of a healthy
// endpoint, and the time of an error alone, are not worth a write.
func sameStatus(a, b *backend.Status) bool {
	same := func(a, b backend.EndpointStatus) bool {
		return a.URL == b.URL && a.State == b.State && (a.State == backend.EndpointHealthy || a.LastError == b.LastError)
	}
	return slices.EqualFunc(a.Endpoints, b.Endpoints, same) && slices.Equal(a.GroupVersions, b.GroupVersions) &&
		apiequality.Semantic.DeepEqual(a.Conditions, b.Conditions)
}

// sameButTexts reports whether two statuses differ in the texts of messages and errors only.
func sameButTexts(a, b *backend.Status) bool {
	return slices.EqualFunc(a.Endpoints, b.Endpoints, func(a, b backend.EndpointStatus) bool {
		return a.URL == b.URL && a.State == b.State && (a.LastError == "") == (b.LastError == "")
	}) && slices.Equal(a.GroupVersions, b.GroupVersions) && slices.EqualFunc(a.Conditions, b.Conditions, func(a, b metav1.Condition) bool {
		a.Message, b.Message = "", ""
		return apiequality.Semantic.DeepEqual(a, b)
	})
}

// endpointStatuses returns the statuses of the endpoints of a server, in the order of its
// Backend.
func endpointStatuses(srv *routing.Server, stored *backend.Status) []backend.EndpointStatus {
	now := srv.Up.Status().Endpoints
	out := make([]backend.EndpointStatus, 0, len(now))
	for _, e := range now {
		next := backend.EndpointStatus{
			URL: e.URL, State: e.State, LastError: routing.StableText(e.LastError),
			LastTransitionTime: metav1.NewTime(e.Since.Truncate(time.Second)),
		}
		if next.LastError != "" {
			next.LastErrorTime = metav1.NewTime(e.LastErrorAt.Truncate(time.Second))
		}
		if i := slices.IndexFunc(stored.Endpoints, func(have backend.EndpointStatus) bool { return have.URL == e.URL }); i >= 0 {
			switch have := stored.Endpoints[i]; {
			case next.State == backend.EndpointUnknown:
				next = have
			case next.State == have.State:
				next.LastTransitionTime = have.LastTransitionTime
				if next.LastError == "" {
					next.LastError, next.LastErrorTime = have.LastError, have.LastErrorTime
				}
			}
		}
		out = append(out, next)
	}
	return out
}

// groupVersionStatuses returns the first maxStatusGroups group/versions of a server, by
// name.
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
