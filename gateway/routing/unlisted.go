package routing

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	apireg "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico/apiservice"
	"portico/apiservice/availability"
	"portico/discovery/sources"
	"portico/gateway/upstream"
)

// maxUnlistedRead is how much is read of an answer that only has to be there, in
// bytes: one that is read to its end leaves its connection to others.
const maxUnlistedRead = 64 << 10

// errNotServed says that a server answers and does not have a group/version.
var errNotServed = errors.New("bad status")

// judgeUnlisted completes the judgement of an APIService that shares the server of a
// Backend, where that is well but does not list the group/version (see the package's
// documentation). What the gateway registers itself is not asked for: where the
// server lists it no more, the APIService goes. Nor are REST servers, which have no
// such paths.
func (s *Controller) judgeUnlisted(a *apireg.APIService, p routeDecision, m *merge) routeDecision {
	srv := p.server
	if srv == nil || srv.REST != nil || apiservice.IsAutomanaged(a) || !p.condition.Available() || m.lists(srv, groupVersion(a)) {
		return p
	}
	check := srv.unlistedTarget(s, a)
	m.unlisted[srv] = append(m.unlisted[srv], check)
	v := s.checker.Verdict(check.ID)
	switch {
	case !v.Known:
		p.condition = storedCondition(a)
	case !v.Healthy:
		p.condition, p.since = apiservice.FailedDiscoveryCheck(srv.urlOf(discoveryPath(a)), v.Err), v.Since
		if p.absent = errors.Is(v.Err, errNotServed); p.absent {
			p.condition = p.condition.Kept()
		}
	}
	return p
}

// lists reports whether a server lists a group/version: the last time that it was
// asked or, if it was not yet, before.
func (m *merge) lists(srv *Server, gv schema.GroupVersion) bool {
	if listed, known := srv.Source.Lists(gv); known {
		return listed
	}
	told := m.servedBy(srv)[gv]
	return told != nil && !told.Unlisted
}

// unlistedTarget is the check of a group/version that the server does not list.
func (srv *Server) unlistedTarget(s *Controller, a *apireg.APIService) availability.Target {
	path, gv := discoveryPath(a), groupVersion(a)
	shown := srv.urlOf(path)
	return availability.Target{
		// Of a server that is elsewhere now, nothing is known.
		ID: srv.target + " " + shown, Version: srv.version(), Schedule: scheduleOf(srv.Up.Policy()),
		Probe: func(ctx context.Context) error { return stable(srv.ask(ctx, path, shown)) },
		OnChange: func(v availability.Verdict) {
			if v.Healthy {
				srv.Source.Refetch(gv)
				s.checker.Hurry(srv.target)
				s.checker.Hurry(srv.discoveryTarget())
			}
		},
	}
}

// ask asks the server for a path, which is shown otherwise; an answer of 200 is good.
func (srv *Server) ask(ctx context.Context, path, shown string) error {
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
	_, _ = io.CopyN(io.Discard, res.Body, maxUnlistedRead) // what it says does not matter
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

// scheduleOf is how often a policy has a server checked.
func scheduleOf(policy upstream.Policy) availability.Schedule {
	return availability.Schedule{
		Interval: policy.Check.Interval, Suspect: policy.Check.Suspect, Timeout: policy.Check.Timeout,
		Fall: policy.Check.Fall, Rise: policy.Check.Rise,
	}
}
