package routing

import (
	"time"

	"golang.org/x/time/rate"
	apireg "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico/apiservice"
)

// outageBurst and outagePause limit the lines about one subject: a server that comes and goes
// must not fill the log.
const (
	outageBurst = 6
	outagePause = 10 * time.Second
)

// subject is what may be unavailable: kind is "backend", "endpoint" or "apiservice".
type subject struct{ kind, name string }

// outage is what was logged last of a subject.
type outage struct {
	down  bool
	lines *rate.Limiter
}

// logOutages logs what became unavailable, as a warning, and what is available again. A state that
// is not known changes nothing.
func (r *reconcile) logOutages() {
	found := r.availability()
	for of := range r.s.outages {
		if _, exists := found[of]; !exists {
			delete(r.s.outages, of)
		}
	}
	for of, c := range found {
		last := r.s.outages[of]
		down := c.Status == apireg.ConditionFalse
		switch {
		case last == nil && !down, last != nil && (last.down == down || !down && !c.Available()):
			continue
		case last == nil && !r.over(r.s.began, outagePause):
			continue // servers may start with the gateway
		case last == nil:
			last = &outage{lines: rate.NewLimiter(rate.Every(outagePause), outageBurst)}
			r.s.outages[of] = last
		}
		if !last.lines.AllowN(r.now, 1) {
			r.over(r.now, outagePause) // again then
			continue
		}
		if last.down = down; down {
			r.s.log.Warn("became unavailable", of.kind, of.name, "reason", c.Reason, "err", c.Message)
		} else {
			r.s.log.Info("is available again", of.kind, of.name)
		}
	}
}

// availability returns the conditions of all Backends, of the endpoints of those with several, and
// of APIServices. An APIService that is not available because its Backend is not is left out.
func (r *reconcile) availability() map[subject]apiservice.Condition {
	out := map[subject]apiservice.Condition{}
	for _, st := range r.backendStates.List {
		out[subject{"backend", st.Name}] = st.Condition
		if st.Server == nil {
			continue
		}
		endpoints := st.Server.Up.Endpoints()
		for i := range endpoints {
			if len(endpoints) > 1 && endpoints[i].Weight > 0 {
				out[subject{"endpoint", st.Name + " " + endpoints[i].URL}] = endpointCondition(st.Server, endpoints[i].URL)
			}
		}
	}
	for _, a := range r.n.apiservices {
		st := r.backendStates.ByName[a.Annotations[apiservice.BackendAnnotation]]
		if ref := a.Spec.Service; ref != nil {
			st = r.backendStates.byService[keyOf(ref)]
		}
		if st == nil || st.Condition.Available() {
			out[subject{"apiservice", a.Name}] = r.conditions[a.Name]
		}
	}
	return out
}

// endpointCondition is the verdict on an endpoint as a condition.
func endpointCondition(srv *Server, url string) apiservice.Condition {
	switch v := srv.Up.Verdict(url); {
	case !v.Known:
		return Unchecked()
	case !v.Healthy:
		return apiservice.FailedDiscoveryCheck(url, v.Err)
	}
	return apiservice.Passed()
}
