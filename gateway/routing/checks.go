package routing

import (
	"context"
	"time"

	"portico/apiservice/availability"
	"portico/gateway/upstream"
)

// minDiscoveryInterval bounds how often a server whose endpoints are checked by
// themselves is asked for its discovery, which is more work than a check.
const minDiscoveryInterval = 500 * time.Millisecond

// checks are what is asked of a server to know whether it is there. A server
// with one endpoint is asked for its discovery, which is needed anyway. Of
// several each is asked by itself, and discovery is read from one of those that
// get requests.
func (srv *Server) checks(s *Controller) []availability.Target {
	policy := srv.Up.Policy()
	schedule := scheduleOf(policy)
	if srv.suspect != 0 {
		schedule.Suspect = srv.suspect
	}
	discovery := srv.availabilityTarget(s)
	discovery.Schedule = schedule
	endpoints := srv.Up.Endpoints()
	if srv.checkedByDiscovery() {
		// Another address is another endpoint.
		discovery.Version += " " + endpoints[0].URL
		discovery.Verdict = srv.Up.Verdict(endpoints[0].URL)
		discovery.OnChange = func(v availability.Verdict) { srv.Up.SetVerdict(endpoints[0].URL, v) }
		return []availability.Target{discovery}
	}
	path := policy.Check.Path
	if path == "" {
		path = srv.checkPath
	}
	// Discovery says nothing of the endpoints, and nothing is urgent about it: what
	// changes in it shows within the interval.
	discovery.ID, discovery.Schedule = srv.discoveryTarget(), availability.Schedule{Interval: max(schedule.Interval, minDiscoveryInterval)}
	if discovery.Verdict = s.checker.Verdict(discovery.ID); !discovery.Verdict.Known {
		discovery.Verdict = s.checker.Verdict(srv.target) // while there was one endpoint
	}
	out := []availability.Target{discovery}
	for _, e := range endpoints {
		out = append(out, srv.endpointTarget(s, e, path, schedule))
	}
	return out
}

// endpointTarget is the check of one endpoint.
func (srv *Server) endpointTarget(s *Controller, e upstream.Endpoint, path string, schedule availability.Schedule) availability.Target {
	return availability.Target{
		ID: srv.endpointID(e.URL), Version: srv.version() + " " + path, Schedule: schedule, Verdict: srv.Up.Verdict(e.URL),
		Probe: func(ctx context.Context) error {
			return stable(srv.Up.Probe(ctx, e.URL, path, identifyAggregator))
		},
		OnChange: func(v availability.Verdict) {
			srv.Up.SetVerdict(e.URL, v)
			if v.Healthy {
				s.checker.Hurry(srv.discoveryTarget())
			}
		},
	}
}

func (srv *Server) endpointID(url string) string { return srv.target + " " + url }
func (srv *Server) discoveryTarget() string      { return srv.target + " discovery" }

// suspect has an endpoint checked at once.
func (s *Controller) suspect(srv *Server, url string) {
	s.checker.Suspect(srv.target)
	s.checker.Suspect(srv.endpointID(url))
}

// Verdict is what is known of a server: it is there while one of its endpoints
// is that gets requests. It is of the endpoints that the server has now: those that
// came a moment ago are not known.
func (s *Controller) Verdict(srv *Server) availability.Verdict { return together(srv.Up.Verdicts()) }

// DiscoveryVerdict is what is known of reading the server's discovery.
func (s *Controller) DiscoveryVerdict(srv *Server) availability.Verdict {
	if list := srv.Up.Endpoints(); len(list) == 1 && srv.checkedByDiscovery() {
		return srv.Up.Verdict(list[0].URL)
	}
	return s.checker.Verdict(srv.discoveryTarget())
}

// Current reports whether the verdicts on a server are those of its present checks, which
// use the trust that its Backend names now, and not those of earlier ones.
func (s *Controller) Current(srv *Server) bool {
	if srv.checkedByDiscovery() {
		return !s.checker.Verdict(srv.target).Earlier
	}
	for _, e := range srv.Up.Endpoints() {
		if s.checker.Verdict(srv.endpointID(e.URL)).Earlier {
			return false
		}
	}
	return !s.checker.Verdict(srv.discoveryTarget()).Earlier
}

// checkedByDiscovery reports whether reading the server's discovery is the check of
// its only endpoint.
func (srv *Server) checkedByDiscovery() bool {
	return len(srv.Up.Endpoints()) == 1 && srv.Up.Policy().Check.Path == ""
}

// together makes one verdict of those on a server's endpoints: good as long as
// one is, bad when all are; and while any is unknown, that.
func together(verdicts []availability.Verdict) availability.Verdict {
	var sum availability.Verdict
	unknown := len(verdicts) == 0
	var goodSince, badSince time.Time
	for _, v := range verdicts {
		switch {
		case !v.Known:
			unknown = true
		case v.Healthy:
			if !sum.Healthy || v.Since.Before(goodSince) {
				goodSince = v.Since
			}
			sum.Healthy = true
		case v.Since.After(badSince):
			badSince, sum.Err = v.Since, v.Err
		}
	}
	switch {
	case sum.Healthy:
		return availability.Verdict{Known: true, Healthy: true, Since: goodSince}
	case unknown:
		return availability.Verdict{}
	}
	sum.Known, sum.Since = true, badSince
	return sum
}
