package routing

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	apireg "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico/apiservice"
	"portico/apiservice/backend"
	"portico/discovery/sources"
	"portico/gateway/proxy"
)

// newRESTSource makes the source of a REST server.
func newRESTSource(cfg sources.Config, r *backend.REST) *sources.RESTSource {
	return sources.NewRESTSource(cfg, sources.RESTConfig{
		Group: r.Group, Version: r.Version, OpenAPIPath: r.Document(), PathPrefix: r.PathPrefix,
	})
}

// asREST makes it the making of a REST server; nil: it is none. Everything else
// of it is set before.
func (m *making) asREST(r *backend.REST) {
	if r == nil {
		return
	}
	m.rest, m.only = r, []schema.GroupVersion{{Group: r.Group, Version: r.Version}}
	m.checkPath = r.Document()
	if at, ok := strings.CutSuffix(m.checkURL, rootPath); ok {
		m.checkURL = at + m.checkPath
	}
	m.id += fmt.Sprintf(" rest=%s/%s %q %q", r.Group, r.Version, r.OpenAPIPath, r.PathPrefix)
}

const restNotAllowed = "RESTNotAllowed"

// disguised is the condition of a Backend that would make a REST server of one
// that the gateway starts with; nil: it does not. Requests would be authorized by
// the group that the Backend makes up, and reach a server that takes the gateway's
// word for who the user is and what was allowed. Names are not looked up: this
// finds mistakes, and is no boundary.
func (s *Controller) disguised(st *BackendState) *apiservice.Condition {
	urls := make([]string, 0, len(st.Spec.Endpoints))
	for _, e := range st.Spec.Endpoints {
		urls = append(urls, e.URL)
	}
	return s.disguisedAt(st, urls)
}

// disguisedAt is disguised for a server that is at these URLs.
func (s *Controller) disguisedAt(st *BackendState, urls []string) *apiservice.Condition {
	if st.Spec.REST == nil {
		return nil
	}
	for _, c := range s.configured {
		for _, theirs := range c.spec.Endpoints {
			i := slices.IndexFunc(urls, func(u string) bool { return backend.SameAddress(u, theirs.URL) })
			if i < 0 {
				continue
			}
			return &apiservice.Condition{
				Status: apireg.ConditionFalse, Reason: restNotAllowed,
				Message: fmt.Sprintf("spec.rest: %s is the server %q, which the gateway starts with; what it serves is not to be had under another group", urls[i], c.Name),
			}
		}
	}
	return nil
}

// Judged reports whether it was found out, since this gateway began, how the server
// of a Backend is, if only that it is not there. That of one which the gateway will
// not send to (disguised) never is.
func (st *BackendState) Judged() bool {
	return st.Condition.Reason != restNotAllowed && st.Condition.Reason != Unchecked().Reason
}

// restRoute returns how requests for a REST server are to be sent; nil if it is
// none.
func (srv *Server) restRoute() *proxy.REST {
	if srv.REST == nil {
		return nil
	}
	prefix, known := srv.REST.PathPrefix()
	hosts := []string{srv.Up.Base().Host}
	for _, e := range srv.Up.Endpoints() {
		if e.Base != nil {
			hosts = append(hosts, e.Base.Host)
		}
	}
	return proxy.NewREST(srv.REST.GroupVersion(), prefix, known, hosts, srv.anyBody)
}
