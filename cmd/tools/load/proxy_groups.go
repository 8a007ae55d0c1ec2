package main

import (
	"context"
	"fmt"
	"net/http"
	"time"
)

// fewGroups is how many groups are registered for everything else.
const fewGroups = 10

// askedTimes is how often one after the other a document is asked for.
const askedTimes = 1000

// manyGroups measures whether more registered groups make anything slower.
func (r *proxyRun) manyGroups(ctx context.Context) error {
	for _, n := range []int{fewGroups, r.o.groups} {
		began := time.Now()
		if err := r.stack.register(ctx, n, r.backend); err != nil {
			return err
		}
		r.say("%d groups are registered, after %.1f s", n, time.Since(began).Seconds())
		if err := r.groupsAt(ctx, n); err != nil {
			return fmt.Errorf("with %d groups: %w", n, err)
		}
	}
	return nil
}

// groupsAt measures with n groups registered.
func (r *proxyRun) groupsAt(ctx context.Context, n int) error {
	m := proxyGroups{Groups: n}
	if err := r.rest(ctx); err != nil { // writes and checks of the registering
		return err
	}
	idle := r.gateway.cpu()
	if err := r.rest(ctx); err != nil {
		return err
	}
	m.IdleCPU = float64(r.gateway.cpu().since(idle)[r.gateway.name]) / float64(max(r.o.quiet, time.Millisecond))

	const aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
	accept := [2]string{"accept", aggregated}
	etag, err := r.etag(ctx, aggregated)
	if err != nil {
		return err
	}
	asked := requestFields("/apis", r.token, [2]string{"if-none-match", etag})
	asked[4] = accept
	if m.NotModified, err = r.oneByOne(ctx, asked, http.StatusNotModified); err != nil {
		return fmt.Errorf("/apis, unchanged: %w", err)
	}
	if m.GroupVersion, err = r.oneByOne(ctx, requestFields(proxyGroupPath(n-1), r.token), http.StatusOK); err != nil {
		return fmt.Errorf("discovery of a group/version: %w", err)
	}
	if m.Proxied, err = r.oneByOne(ctx, requestFields(proxyObject(n-1, "small"), r.token), http.StatusOK); err != nil {
		return fmt.Errorf("proxied: %w", err)
	}
	l := r.loadOf(http1, "small", smallObject)
	l.fields = requestFields(proxyObject(n-1, "small"), r.token)
	results, err := r.turns(ctx, fmt.Sprintf("%d groups, h1 %dB", n, smallObject), l, []*front{r.bare, r.gateway}, r.briefly())
	if err != nil {
		return err
	}
	s := results[r.gateway].all
	m.CPU = cpuOf(s, r.gateway) - m.IdleCPU*float64(s.took.Microseconds())/float64(max(s.ops, 1))
	m.Ratio = cpuOf(results[r.bare].all, r.bare) / m.CPU
	r.report.Groups = append(r.report.Groups, m)
	return nil
}

// etag returns the tag of the aggregated discovery document.
func (r *proxyRun) etag(ctx context.Context, accept string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+r.gateway.address+"/apis", nil)
	if err != nil {
		return "", err
	}
	req.Header.Set("Accept", accept)
	req.Header.Set("Authorization", "Bearer "+r.token)
	t := &http.Transport{TLSClientConfig: r.gateway.tls.Clone(), DisableKeepAlives: true}
	res, err := t.RoundTrip(req)
	if err != nil {
		return "", fmt.Errorf("read discovery: %w", err)
	}
	res.Body.Close()
	tag := res.Header.Get("Etag")
	if res.StatusCode != http.StatusOK || tag == "" {
		return "", fmt.Errorf("read discovery: %s, ETag %q", res.Status, tag)
	}
	return tag, nil
}

// oneByOne returns the median and the slowest hundredth of requests on one
// connection, each sent when the one before was answered.
func (r *proxyRun) oneByOne(ctx context.Context, f fields, code int) (proxyTimes, error) {
	conn, err := r.gateway.dial(ctx, http1)
	if err != nil {
		return proxyTimes{}, err
	}
	defer conn.Close()
	var s sample
	lane := newLane1(conn, f, func(began time.Time, _ int64) error {
		s.latencies = append(s.latencies, time.Since(began))
		return nil
	})
	lane.code = code
	for range askedTimes {
		if err := lane.send(time.Now()); err != nil {
			return proxyTimes{}, err
		}
		if err := lane.receive(); err != nil {
			return proxyTimes{}, err
		}
	}
	return proxyTimes{milliseconds(s.quantile(0.5)), milliseconds(s.quantile(0.99))}, nil
}
