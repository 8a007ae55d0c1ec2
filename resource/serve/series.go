package serve

import (
	"maps"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// maxSeries bounds the sets of labels that requests are counted under, about
// 1 KiB each. Once reached, new ones are counted without their resource.
const maxSeries = 4096

// Bounds of upstream's histograms of requests.
var (
	durationScale = inSeconds(0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1, 1.25, 1.5, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 45, 60)
	sliScale      = inSeconds(durationScale.bounds[2:]...)
	sizeScale     = scale{[]float64{1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9}, 1}

	durationBounds, sizeBounds = durationScale.units(), sizeScale.units()
)

// series are the numbers of one set of labels, looked up once for each request.
// Safe for concurrent use.
type series struct {
	labels labels
	codes  atomic.Pointer[map[int]*atomic.Uint64]
	// took is how long requests took that waited for nobody; of those that did,
	// waited has the whole time and worked what is left without the waiting. So
	// that nearly all are counted once, and are shown in both metrics.
	took           *distribution
	waiting        sync.Once
	waited, worked atomic.Pointer[distribution]
	*sharedSeries
}

// sharedSeries are the numbers that do not tell dry runs apart.
type sharedSeries struct {
	size *distribution // nil for verbs whose answers are not measured
	long atomic.Int64  // long-running requests under way
	// lasting: there have been long-running ones.
	lasting atomic.Bool
}

// newSeries returns the series of the labels; shared is nil for those without a
// dry run, which have their own.
func newSeries(l labels, shared *sharedSeries) *series {
	if shared == nil {
		shared = new(sharedSeries)
		if l.verb == http.MethodGet || l.verb == "LIST" {
			shared.size = newDistribution(sizeBounds)
		}
	}
	s := &series{labels: l, took: newDistribution(durationBounds), sharedSeries: shared}
	s.codes.Store(&map[int]*atomic.Uint64{})
	return s
}

// counter returns the counter of answers with the status.
func (s *series) counter(code int) *atomic.Uint64 {
	for {
		counters := s.codes.Load()
		if c := (*counters)[code]; c != nil {
			return c
		}
		more := maps.Clone(*counters)
		more[code] = new(atomic.Uint64)
		s.codes.CompareAndSwap(counters, &more)
	}
}

// observe counts a request that took so long, part of which it waited for
// others.
func (s *series) observe(took, waited time.Duration) {
	if waited <= 0 {
		s.took.observe(int64(took))
		return
	}
	s.waiting.Do(func() {
		s.worked.Store(newDistribution(durationBounds))
		s.waited.Store(newDistribution(durationBounds))
	})
	s.waited.Load().observe(int64(took))
	s.worked.Load().observe(int64(max(0, took-waited)))
}

// requestDescs are upstream's metrics of requests.
type requestDescs struct{ total, duration, sli, size, long *prometheus.Desc }

func newRequestDescs() requestDescs {
	of := func(name, help string, labels []string) *prometheus.Desc {
		return prometheus.NewDesc("apiserver_"+name, help, labels, nil)
	}
	all, fewer := labelNames(), withoutDryRun(labelNames())
	return requestDescs{
		total:    of("request_total", "Requests answered, by verb, dry run, resource, scope, component and status code.", append(labelNames(), "code")),
		duration: of("request_duration_seconds", "Time from the request's header to the end of its response, in seconds.", all),
		sli: of("request_sli_duration_seconds",
			"Time from the request's header to the end of its response without what it waited for admission webhooks, in seconds; dry runs are left out.", fewer),
		size: of("response_sizes", "Size of the bodies that answer GET and LIST, in bytes.", fewer),
		long: of("longrunning_requests", "Long-running requests under way.", fewer),
	}
}

// collect shows the series.
func (s *series) collect(d *requestDescs, to chan<- prometheus.Metric) {
	values := s.labels.values()
	for code, n := range *s.codes.Load() {
		with := append(values[:len(values):len(values)], strconv.Itoa(code))
		to <- prometheus.MustNewConstMetric(d.total, prometheus.CounterValue, float64(n.Load()), with...)
	}
	whole, own := []*distribution{s.took}, []*distribution{s.took}
	// waited is there last, so worked is there too.
	if waited := s.waited.Load(); waited != nil {
		whole, own = append(whole, waited), append(own, s.worked.Load())
	}
	if t := read(whole...); t.count > 0 {
		to <- t.metric(d.duration, durationScale, values...)
	}
	if s.labels.dryRun != "" {
		return
	}
	fewer := withoutDryRun(values)
	if t := read(own...); t.count > 0 {
		to <- t.metric(d.sli, sliScale, fewer...)
	}
	if s.size != nil {
		if t := read(s.size); t.count > 0 {
			to <- t.metric(d.size, sizeScale, fewer...)
		}
	}
	if s.lasting.Load() {
		to <- prometheus.MustNewConstMetric(d.long, prometheus.GaugeValue, float64(s.long.Load()), fewer...)
	}
}
