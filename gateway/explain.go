package gateway

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apireg "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico/apiservice"
	"portico/apiservice/explain"
	"portico/discovery"
	"portico/gateway/proxy"
	"portico/resource"
	"portico/resource/response"
)

// explainer answers where a request would go and why (package explain). Authorization
// decides about its path like about any other.
type explainer struct {
	// table, documents and listed return the current routes, discovery documents and
	// APIServices.
	table     func() *proxy.Table
	documents func() *discovery.Snapshot
	listed    func() (list []*apireg.APIService, ok bool)
}

func (e *explainer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		response.WriteStatus(w, r, apierrors.NewMethodNotSupported(schema.GroupResource{}, r.Method))
		return
	}
	asked, err := askedRequest(r.URL.Query(), resource.ActionFrom(r.Context()).User)
	if err != nil {
		response.WriteStatus(w, r, apierrors.NewBadRequest(err.Error()))
		return
	}
	body, err := json.MarshalIndent(e.explain(asked), "", "  ")
	if err != nil {
		response.WriteStatus(w, r, apierrors.NewInternalError(err))
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(body, '\n')) // fails only if the client has gone
}

// askedRequest returns the request that the query describes, of the same user, with its
// Action in the context.
func askedRequest(query url.Values, user *resource.User) (*http.Request, error) {
	path := query.Get(explain.PathParameter)
	if !strings.HasPrefix(path, "/") {
		return nil, fmt.Errorf("%s: %q must be the path of a request, such as /apis/apps/v1/deployments", explain.PathParameter, path)
	}
	target, err := url.ParseRequestURI(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", explain.PathParameter, err)
	}
	method, watch, err := methodOf(query.Get(explain.VerbParameter))
	if err != nil {
		return nil, err
	}
	if watch {
		values := target.Query()
		values.Set("watch", "true")
		target.RawQuery = values.Encode()
	}
	r := &http.Request{Method: method, URL: target, Header: http.Header{}, RequestURI: target.RequestURI()}
	act := resource.ParseAction(r)
	act.User = user
	return r.WithContext(resource.WithAction(r.Context(), act)), nil
}

// methodOf returns the method of a verb; watch is a query parameter.
func methodOf(verb string) (method string, watch bool, err error) {
	switch verb {
	case "", "get", "list":
		return http.MethodGet, false, nil
	case "watch":
		return http.MethodGet, true, nil
	case "create":
		return http.MethodPost, false, nil
	case "update":
		return http.MethodPut, false, nil
	case "patch":
		return http.MethodPatch, false, nil
	case "delete", "deletecollection":
		return http.MethodDelete, false, nil
	}
	switch method := strings.ToUpper(verb); method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions:
		return method, false, nil
	}
	return "", false, fmt.Errorf("%s: %q must be get, list, watch, create, update, patch, delete or deletecollection, or an HTTP method", explain.VerbParameter, verb)
}

// explain describes where the request would go.
func (e *explainer) explain(r *http.Request) *explain.Explanation {
	act := resource.ActionFrom(r.Context())
	out := &explain.Explanation{Request: explain.Request{
		Method: r.Method, Path: act.Path, Verb: act.Verb, IsResource: act.IsResource, Group: act.Group, Version: act.Version,
		Resource: act.Resource, Subresource: act.Subresource, Namespace: act.Namespace, Name: act.Name, LongRunning: act.LongRunning(),
	}}
	group, version := act.Group, act.Version
	if !act.IsResource {
		var ok bool
		if group, version, ok = groupVersionPath(act.Path); !ok {
			answered(out, explain.Gateway, 0, "The path is not below a group and version. Only the gateway itself may answer it, from memory.")
			return out
		}
	}
	rt := e.table().Lookup(group, version)
	if rt == nil {
		answered(out, explain.Nobody, http.StatusNotFound, "No APIService registers group %q, version %q, and the gateway does not serve it itself.", group, version)
		return out
	}
	out.APIService = e.explainAPIService(rt, group, version)
	if rt.Upstream != nil {
		out.Backend = explainBackend(rt, r)
	}
	explainRoute(out, r, rt)
	if out.Answerer != explain.Server && out.Backend != nil { // the request is not sent
		out.Backend.Pick, out.Backend.PickReason = "", ""
		for i := range out.Backend.Endpoints {
			out.Backend.Endpoints[i].Pickable, out.Backend.Endpoints[i].SharePercent = false, 0
		}
	}
	if act.IsResource && out.Answerer != explain.Nobody && e.lacks(act) {
		out.Reasons = append(out.Reasons, fmt.Sprintf("Discovery lists no resource %q in this group and version: clients like kubectl do not find it, and the likely answer is 404.", act.Resource))
	}
	return out
}

// lacks reports whether discovery describes the group/version of an action without its
// resource.
func (e *explainer) lacks(act *resource.Action) bool {
	gv := e.described(act.Group, act.Version)
	return gv != nil && !gv.Unknown && !slices.ContainsFunc(gv.Legacy, func(r metav1.APIResource) bool { return r.Name == act.Resource })
}

// explainRoute describes the answer to a request for a group/version that has a route.
func explainRoute(e *explain.Explanation, r *http.Request, rt *proxy.Route) {
	act := resource.ActionFrom(r.Context())
	switch {
	case !act.IsResource:
		answered(e, explain.Gateway, 0, "The path is discovery, which the gateway serves from memory; what it says of this group and version is %s.", strings.ToLower(e.APIService.Freshness))
		return
	case rt.Local:
		answered(e, explain.Gateway, 0, "The gateway serves the group and version itself, from etcd.")
		return
	case e.APIService.Automanaged:
		answered(e, explain.Server, 0, "APIService %s was registered for the server %q, which says that it serves the group and version.", rt.Name, e.APIService.Backend)
	case e.APIService.Service == "":
		answered(e, explain.Server, 0, "APIService %s registers the group and version with the server %q.", rt.Name, e.APIService.Backend)
	default:
		answered(e, explain.Server, 0, "APIService %s registers the group and version with the Service %s.", rt.Name, e.APIService.Service)
	}
	if err := rt.Unavailable(); err != nil {
		answered(e, explain.Nobody, int(err.ErrStatus.Code), "It is not available: %s: %s. The request is not sent.", rt.Condition.Reason, rt.Condition.Message)
		return
	}
	if err := rt.Refuse(r); err != nil {
		answered(e, explain.Nobody, int(resource.AsStatus(err).Code), "The gateway does not send such a request on: %v", err)
		return
	}
	if e.Backend.Pick == "" {
		answered(e, explain.Nobody, http.StatusServiceUnavailable, "None of the endpoints gets requests: %s", e.Backend.PickReason)
		return
	}
	answered(e, explain.Server, 0, "It would go to the endpoint %s: %s.", e.Backend.Pick, e.Backend.PickReason)
}

// answered adds a step.
func answered(e *explain.Explanation, by explain.Answerer, code int, reason string, args ...any) {
	e.Answerer, e.Code = by, code
	e.Reasons = append(e.Reasons, fmt.Sprintf(reason, args...))
}

// explainAPIService describes the registration of the group/version of a route.
func (e *explainer) explainAPIService(rt *proxy.Route, group, version string) *explain.APIService {
	out := &explain.APIService{
		Name: rt.Name, Available: rt.Condition.Available(), Reason: rt.Condition.Reason, Message: rt.Condition.Message,
		Freshness: e.freshness(group, version),
	}
	list, _ := e.listed()
	for _, a := range list {
		if a.Name != rt.Name {
			continue
		}
		out.Automanaged, out.Backend = apiservice.IsAutomanaged(a), a.Annotations[apiservice.BackendAnnotation]
		if ref := a.Spec.Service; ref != nil {
			out.Service = fmt.Sprintf("%s/%s:%d", ref.Namespace, ref.Name, apiservice.Port(ref))
		}
	}
	return out
}

// freshness returns the freshness of a group/version in discovery; "" if it is not there.
func (e *explainer) freshness(group, version string) string {
	switch gv := e.described(group, version); {
	case gv == nil:
		return ""
	case gv.Unknown:
		return "Unknown"
	case gv.Stale:
		return "Stale"
	}
	return "Current"
}

// described returns a group/version in discovery; nil if it is not there.
func (e *explainer) described(group, version string) *discovery.GroupVersion {
	docs := e.documents()
	if docs == nil {
		return nil
	}
	for i := range docs.GroupVersions {
		if gv := &docs.GroupVersions[i]; gv.Group == group && gv.Version == version {
			return gv
		}
	}
	return nil
}

// groupVersionPath splits the path of a group/version's discovery.
func groupVersionPath(path string) (group, version string, ok bool) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	switch {
	case len(parts) == 2 && parts[0] == "api":
		return "", parts[1], true
	case len(parts) == 3 && parts[0] == "apis":
		return parts[1], parts[2], true
	}
	return "", "", false
}
