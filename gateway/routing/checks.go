package routing

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	apireg "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico/apiservice/availability"
	"portico/discovery/sources"
	"portico/gateway/upstream"
)

// minDiscoveryInterval bounds how often the discovery of a server with checks of its
// endpoints is read, which is more work than a check.
const minDiscoveryInterval = 500 * time.Millisecond

// checks returns the checks of a server. If it has one endpoint, reading its discovery is the
// check. Else each endpoint is checked by itself, and the discovery is read from one that
// gets requests.
func (srv *Server) checks(s *Controller) []availability.Target {
	policy, endpoints := srv.Up.Policy(), srv.Up.Endpoints()
	schedule := scheduleOf(policy)
	if srv.suspect != 0 {
		schedule.Suspect = srv.suspect
	}
	discovery := availability.Target{
		ID: srv.target, Version: srv.version(), Schedule: schedule,
		Probe: func(ctx context.Context) error { return s.Probe(ctx, srv) },
	}
	if srv.checkedByDiscovery() {
		url := endpoints[0].URL
		discovery.Version += " " + url
		discovery.Verdict = srv.Up.Verdict(url)
		discovery.OnChange = func(v availability.Verdict) { srv.Up.SetVerdict(url, v) }
		discovery.Answers = func() uint64 { return srv.Up.Answers(url) }
		return []availability.Target{discovery}
	}
	path := policy.HealthCheck.Path
	if path == "" {
		path = srv.checkPath
	}
	discovery.ID, discovery.Schedule = srv.discoveryTarget(), availability.Schedule{Interval: max(schedule.Interval, minDiscoveryInterval)}
	if discovery.Verdict = s.checker.Verdict(discovery.ID); !discovery.Verdict.Known {
		discovery.Verdict = s.checker.Verdict(srv.target) // while there was one endpoint
	}
	out := []availability.Target{discovery}
	for _, e := range endpoints {
		out = append(out, availability.Target{
			ID: srv.endpointID(e.URL), Version: srv.version() + " " + path, Schedule: schedule, Verdict: srv.Up.Verdict(e.URL),
			Probe: func(ctx context.Context) error {
				return stable(srv.Up.Probe(ctx, e.URL, path, identifyAggregator))
			},
			Answers: func() uint64 { return srv.Up.Answers(e.URL) },
			OnChange: func(v availability.Verdict) {
				srv.Up.SetVerdict(e.URL, v)
				if v.Healthy {
					s.checker.Hurry(srv.discoveryTarget())
				}
			},
		})
	}
	return out
}

// scheduleOf returns the schedule of a policy.
func scheduleOf(policy upstream.Policy) availability.Schedule {
	return availability.Schedule{
		Interval: policy.HealthCheck.Interval, Suspect: policy.HealthCheck.Suspect, Timeout: policy.HealthCheck.Timeout,
		Fall: policy.HealthCheck.Fall, Rise: policy.HealthCheck.Rise,
	}
}

func (srv *Server) endpointID(url string) string { return srv.target + " " + url }
func (srv *Server) discoveryTarget() string      { return srv.target + " discovery" }

// version differs from that of checks of an earlier server of the target, and of checks with
// other trust.
func (srv *Server) version() string { return fmt.Sprint(srv.serial, " ", srv.id, " ", srv.trust) }

// checkedByDiscovery reports whether reading the discovery is the check of the only endpoint.
func (srv *Server) checkedByDiscovery() bool {
	return len(srv.Up.Endpoints()) == 1 && srv.Up.Policy().HealthCheck.Path == ""
}

// Probe reads what changed in the discovery of a server. Check does so periodically.
func (s *Controller) Probe(ctx context.Context, srv *Server) error {
	if err := srv.Source.Check(ctx); err != nil {
		return stable(err)
	}
	srv.answered.Set()
	srv.openAPIChanged.Set()
	return nil
}

// suspect checks an endpoint at once.
func (s *Controller) suspect(srv *Server, url string) {
	s.checker.Suspect(srv.target)
	s.checker.Suspect(srv.endpointID(url))
}

// Verdict returns the verdict on a server: it is healthy while an endpoint is that gets
// requests. Endpoints that were just added are unknown.
func (s *Controller) Verdict(srv *Server) availability.Verdict { return together(srv.Up.Verdicts()) }

// DiscoveryVerdict returns the verdict on reading the discovery of a server.
func (s *Controller) DiscoveryVerdict(srv *Server) availability.Verdict {
	if list := srv.Up.Endpoints(); len(list) == 1 && srv.checkedByDiscovery() {
		return srv.Up.Verdict(list[0].URL)
	}
	return s.checker.Verdict(srv.discoveryTarget())
}

// Current reports whether the verdicts on a server are those of its present checks, which use
// the trust that its Backend names now, and not those of earlier ones.
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

// together combines the verdicts on the endpoints of a server: healthy if one is, unhealthy if
// all are, else unknown.
func together(verdicts []availability.Verdict) availability.Verdict {
	var healthy, unhealthy availability.Verdict
	unknown := len(verdicts) == 0
	for _, v := range verdicts {
		switch {
		case !v.Known:
			unknown = true
		case v.Healthy:
			if !healthy.Healthy || v.Since.Before(healthy.Since) {
				healthy = availability.Verdict{Known: true, Healthy: true, Since: v.Since}
			}
		case !unhealthy.Known || v.Since.After(unhealthy.Since):
			unhealthy = availability.Verdict{Known: true, Err: v.Err, Since: v.Since}
		}
	}
	switch {
	case healthy.Healthy:
		return healthy
	case unknown:
		return availability.Verdict{}
	}
	return unhealthy
}

// maxUnlistedRead bounds how much of the answer to a check is read, in bytes: an answer that
// is read to its end leaves its connection to others.
const maxUnlistedRead = 64 << 10

// errNotServed is the error of a server that answers 404 for a group/version.
var errNotServed = errors.New("bad status")

// unlistedTarget is the check of a group/version that the server does not list: its document
// is requested. Once that passes, discovery reads it.
func (srv *Server) unlistedTarget(s *Controller, a *apireg.APIService) availability.Target {
	path, gv := discoveryPath(a), groupVersion(a)
	shown := srv.urlOf(path)
	return availability.Target{
		ID: srv.target + " " + shown, Version: srv.version(), Schedule: scheduleOf(srv.Up.Policy()),
		Probe: func(ctx context.Context) error { return stable(srv.get(ctx, path, shown)) },
		OnChange: func(v availability.Verdict) {
			if v.Healthy {
				srv.Source.Refetch(gv)
				s.checker.Hurry(srv.target)
				s.checker.Hurry(srv.discoveryTarget())
			}
		},
	}
}

// get requests a path, which errors call shown. A status other than 200 is an error.
func (srv *Server) get(ctx context.Context, path, shown string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, srv.Up.Base().String()+path, nil)
	if err != nil {
		return fmt.Errorf("make request: %w", err)
	}
	req.Header.Set("Accept", "application/json")
	identifyAggregator(req.Header)
	res, err := srv.Up.Pinned().RoundTrip(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	_, _ = io.CopyN(io.Discard, res.Body, maxUnlistedRead)
	switch res.StatusCode {
	case http.StatusOK:
		return nil
	case http.StatusNotFound:
		return fmt.Errorf("%w from %s: %d", errNotServed, shown, res.StatusCode)
	}
	return sources.BadStatus(shown, res.StatusCode)
}

// urlOf names a path of the server in messages; of Controller.Run only.
func (srv *Server) urlOf(path string) string {
	if base, ok := strings.CutSuffix(srv.checkURL, rootPath); ok {
		return base + path
	}
	return path + " of " + srv.checkURL
}
