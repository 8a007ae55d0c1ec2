package sources

import (
	"context"
	"crypto/rand"
	"errors"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico/discovery"
	"portico/resource/loop"
)

// Config of a Source.
type Config struct {
	// Name is used in errors.
	Name string
	// BaseURL has no path: "https://host:port".
	BaseURL string
	// Shown precedes paths in errors. Empty for a server with several addresses.
	Shown string
	// Transport reaches the server and authenticates as the gateway. Required.
	Transport http.RoundTripper
	// StreamTransport is the transport of Follow. Default Transport.
	StreamTransport http.RoundTripper
	// Identify adds the identity headers to a request. Required.
	Identify func(h http.Header)
	// GroupVersions limits the source to these group/versions. nil: everything that the
	// server lists under /api and /apis.
	GroupVersions []schema.GroupVersion
	// Changed is called when GroupVersions or Unread return new values and Follow does not
	// report it. It is called from goroutines of the source and must not block. Optional.
	Changed func()
	// OpenAPIChanged is called when the stream reports that the OpenAPI documents of the
	// server changed, from the goroutine of Follow. It must not block. Optional.
	OpenAPIChanged func()
	// Grace is how long a group/version remains current that the server lists and answers
	// with 404. Default 60 s.
	Grace time.Duration
	// Limits bound what is accepted from the server. Default DefaultLimits.
	Limits Limits
	// Previous is everything that the server serves, as an earlier Source fetched it.
	// Optional.
	Previous []discovery.GroupVersion
}

// Source is the discovery of one server. It is safe for concurrent use.
type Source struct {
	cfg        Config
	known      atomic.Pointer[knowledge] // nil before the first result
	openAPI    atomic.Pointer[openAPIAnswer]
	openAPIErr verdict
	converting sync.Mutex    // one OpenAPI document at a time
	streamRate *rate.Limiter // of all streams, in bytes; nil: no limit

	follower   string // names the source to the server
	announced  atomic.Pointer[discovery.State]
	shown      atomic.Pointer[discovery.State] // by Acknowledge
	newlyShown loop.Signal

	lifetime context.Context // of background fetches
	end      context.CancelFunc
	fetchers sync.WaitGroup

	mu        sync.Mutex // not held during requests
	indexes   map[string]*index
	results   map[string]*result
	documents map[schema.GroupVersion]*document
	fetching  chan struct{} // closed when the queue is empty; nil: no fetch is running
	outdated  bool          // indexes or wanted changed since results were computed
	following bool          // a stream reports /apis
	// wanted are the group/versions of Want, and refetch those of Refetch that were not
	// fetched yet.
	wanted  []schema.GroupVersion
	refetch map[schema.GroupVersion]bool
	// overloaded: the last batch ended because of too many failures. Documents that failed
	// are fetched again after retryAt; retryPause is the pause before that.
	overloaded bool
	retryAt    time.Time
	retryPause time.Duration
}

const (
	pathCore   = "/api"
	pathGroups = "/apis"
)

// knowledge is what a source has read of a server. Immutable.
type knowledge struct {
	groupVersions []discovery.GroupVersion
	fetched       bool // from the server, not restored
	complete      bool // everything that the server serves is included
	unread        []Unread
	dropped       int
}

// Unread is a group/version that the server lists. Its description could not be read (the
// error of the request), is beyond the limits (ErrBeyondLimits) or is not requested because
// of its name (ErrInvalidName). Earlier descriptions of it remain.
type Unread struct {
	GroupVersion schema.GroupVersion
	Err          error
}

// NewSource returns a source. It sends no request before Check or Follow. The caller must
// Close it.
func NewSource(cfg Config) *Source {
	if cfg.Limits == (Limits{}) {
		cfg.Limits = DefaultLimits()
	}
	if cfg.Grace == 0 {
		cfg.Grace = graceDefault
	}
	s := &Source{
		cfg: cfg, follower: rand.Text(), indexes: map[string]*index{}, results: map[string]*result{},
		documents: map[schema.GroupVersion]*document{}, refetch: map[schema.GroupVersion]bool{},
	}
	if cfg.Limits.Rate > 0 {
		s.streamRate = rate.NewLimiter(rate.Limit(cfg.Limits.Rate), int(cfg.Limits.Burst))
	}
	s.lifetime, s.end = context.WithCancel(context.Background())
	if cfg.Previous != nil {
		s.known.Store(&knowledge{groupVersions: cfg.Previous, fetched: true, complete: true})
	}
	return s
}

// Check requests the indexes of the server. The error says that the server cannot be reached
// or that an index is invalid. Documents that an index names are fetched in the background;
// Check waits up to fetchPatience for them and does not return their errors. The index of /apis
// is not requested while it is streamed: with thousands of groups it is megabytes, which a busy
// server encodes for longer than a check may take. One Check may run at a time.
func (s *Source) Check(ctx context.Context) error {
	if err := s.lifetime.Err(); err != nil {
		return err
	}
	for _, path := range s.paths() {
		if s.isStreamed(path) {
			continue
		}
		if err := s.requestIndex(ctx, path); err != nil {
			return err
		}
	}
	if done := s.startFetching(); done != nil {
		timer := time.NewTimer(fetchPatience)
		defer timer.Stop()
		select {
		case <-done:
		case <-ctx.Done():
		case <-timer.C:
		}
	}
	return nil
}

// Close cancels all fetches and prevents new ones. It does not wait for them (see Wait).
func (s *Source) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.end()
}

// Wait returns when all fetches have ended, after Close.
func (s *Source) Wait() { s.fetchers.Wait() }

// GroupVersions returns what the server serves; ok is false before the first result. The
// slices of an unchanged GroupVersion are the same as in the last call. The caller must not
// modify the result.
func (s *Source) GroupVersions() (gvs []discovery.GroupVersion, ok bool) {
	k := s.known.Load()
	if k == nil {
		return nil, false
	}
	return k.groupVersions, true
}

// Served returns GroupVersions. complete reports that the server serves nothing else: a
// group/version that is missing was removed.
func (s *Source) Served() (gvs []discovery.GroupVersion, complete bool) {
	k := s.load()
	return k.groupVersions, k.complete
}

// Fetched reports whether GroupVersions came from the server, not from Restore.
func (s *Source) Fetched() bool { return s.load().fetched }

// Unread returns the group/versions that the server lists and that could not be read.
func (s *Source) Unread() []Unread { return s.load().unread }

// Dropped returns how many group/versions are left out because of the limits, including
// those that Unread names.
func (s *Source) Dropped() int { return s.load().dropped }

func (s *Source) load() knowledge {
	if k := s.known.Load(); k != nil {
		return *k
	}
	return knowledge{}
}

// Restore sets GroupVersions unless they were fetched from the server. It reports whether it
// did.
func (s *Source) Restore(gvs []discovery.GroupVersion) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.Fetched() {
		return false
	}
	s.known.Store(&knowledge{groupVersions: gvs})
	return true
}

// Want sets the group/versions that APIServices register for the server. Those that the
// server does not list are fetched after the next Check: servers made with
// custom-metrics-apiserver list nothing in the aggregated form. A 404 for one of them is no
// failure. Want has no effect on a source with Config.GroupVersions.
func (s *Source) Want(gvs []schema.GroupVersion) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Equal(s.wanted, gvs) {
		s.wanted, s.outdated = slices.Clone(gvs), true
	}
}

// Refetch fetches the document of a wanted group/version after the next Check, whatever the
// last result was.
func (s *Source) Refetch(gv schema.GroupVersion) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if slices.Contains(s.wanted, gv) {
		s.refetch[gv] = true
	}
}

// Lists reports whether the last index has a group/version. known is false while there is no
// index, or a stream replaces it.
func (s *Source) Lists(gv schema.GroupVersion) (listed, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.indexes[indexPath(gv)]
	return l != nil && l.listed[gv], l != nil
}

// paths returns the paths of the indexes.
func (s *Source) paths() []string {
	if s.cfg.GroupVersions == nil {
		return []string{pathCore, pathGroups}
	}
	paths := make([]string, 0, len(s.cfg.GroupVersions))
	for _, gv := range s.cfg.GroupVersions {
		paths = append(paths, groupVersionPath(gv))
	}
	return paths
}

func (s *Source) isStreamed(path string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.following && path == pathGroups
}

// indexPath returns the path of the index that lists a group/version.
func indexPath(gv schema.GroupVersion) string {
	if gv.Group == "" {
		return pathCore
	}
	return pathGroups
}

func groupVersionPath(gv schema.GroupVersion) string { return indexPath(gv) + "/" + gv.String() }

// store combines the results of all paths and reports whether something changed. s.mu is held.
func (s *Source) store() (changed bool) {
	next := &knowledge{fetched: true, complete: true}
	for _, path := range s.paths() {
		r := s.results[path]
		if r == nil {
			return false
		}
		next.groupVersions = append(next.groupVersions, r.groupVersions...)
		next.unread = append(next.unread, r.unread...)
		next.dropped += r.named + r.dropped
		next.complete = next.complete && !r.incomplete && r.dropped == 0
	}
	old := s.load()
	same := unchanged(old.groupVersions, next.groupVersions)
	if same {
		next.groupVersions = old.groupVersions
	}
	s.known.Store(next)
	return !same || !old.fetched || old.complete != next.complete || old.dropped != next.dropped || !sameUnread(old.unread, next.unread)
}

// unchanged compares two lists by the identity of their slices.
func unchanged(a, b []discovery.GroupVersion) bool {
	return slices.EqualFunc(a, b, func(a, b discovery.GroupVersion) bool { return a.Same(&b) })
}

func sameSlice[T any](a, b []T) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

// sameUnread ignores the texts of errors, which may differ with each request.
func sameUnread(a, b []Unread) bool {
	return slices.EqualFunc(a, b, func(a, b Unread) bool {
		return a.GroupVersion == b.GroupVersion && errors.Is(a.Err, ErrBeyondLimits) == errors.Is(b.Err, ErrBeyondLimits)
	})
}
