package sources

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico/discovery"
)

// Config of a Source.
type Config struct {
	// Name is for errors.
	Name string
	// BaseURL has no path: "https://host:port".
	BaseURL string
	// Shown stands before paths in errors. "": paths stand alone, as for a server with
	// several addresses.
	Shown string
	// Transport authenticates as the gateway and reaches the server. Required.
	Transport http.RoundTripper
	// StreamTransport is for Follow, whose request lasts; nil is Transport.
	StreamTransport http.RoundTripper
	// Identify adds the identity headers to a request. Required.
	Identify func(h http.Header)
	// GroupVersions are what is wanted of the server; nil is everything it
	// lists under /api and /apis.
	GroupVersions []schema.GroupVersion
	// Changed, if not nil, is called when GroupVersions or Unread have new values that
	// neither Check nor Follow reports, from a goroutine of the source. It must not block.
	Changed func()
	// OpenAPIChanged, if not nil, is called when the followed stream says that the
	// server's OpenAPI documents changed, from the goroutine of Follow. It must not block.
	OpenAPIChanged func()
	// Grace is how long a group/version that the server lists and answers 404 for is
	// current. Default 60 s.
	Grace time.Duration
	// Limits bound what is taken of the server. Default DefaultLimits.
	Limits Limits
	// Previous, if not nil, is all that the server serves, as an earlier Source read it.
	Previous []discovery.GroupVersion
}

// Source is one server's discovery, last good answer kept. It is safe for
// concurrent use.
type Source struct {
	cfg            Config
	known          atomic.Pointer[[]discovery.GroupVersion]
	openAPI        atomic.Pointer[openAPIAnswer]
	openAPIVerdict verdict
	making         sync.Mutex // of one OpenAPI document at a time

	lifetime context.Context // of what is read beside Check
	end      context.CancelFunc
	readers  sync.WaitGroup

	mu    sync.Mutex // never held while the server is asked
	parts map[string]part
	// indexes are those that have not been read into parts, by path.
	indexes map[string]*index
	// details are those of all group/versions in parts, and pauses the pauses before those
	// that failed are fetched again, by path.
	details map[schema.GroupVersion]detail
	pauses  map[string]pause
	reading bool // beside Check
	closed  bool
	// heard: what is known was read of the server, not restored.
	heard atomic.Bool
	// whole: and that is everything it serves. Of mu.
	whole bool
	// absent says since when the server answers 404 for a group/version that it lists. Of
	// mu.
	absent map[schema.GroupVersion]time.Time
	// following: a stream has the groups.
	following bool
	// wants are those of Want. Never changed, only replaced.
	wants []schema.GroupVersion
	// refetch are those of Refetch that no reading has begun with.
	refetch map[schema.GroupVersion]bool
	// streamed is how much more streams may send; of Follow.
	streamed *meter
}

const (
	pathCore   = "/api"
	pathGroups = "/apis"
)

// part is what is known of one path.
type part struct {
	// mark identifies the answer: its ETag, or its digest.
	mark string
	gvs  []discovery.GroupVersion
	// list is the index that they were read by; nil: they came by a stream.
	list *index
	// unread are those that failed, in the order of the index, and left says that others
	// were not fetched yet.
	unread []Unread
	left   bool
	// invalid are those that are not fetched because of their names.
	invalid []Unread
	excess
	// again is when the first document is to be read again that did not fail; zero:
	// none is.
	refetchAt time.Time
	// generation counts the answers: an answer to a request that was sent before a later
	// answer came is dropped. What a stream sends is always the latest.
	generation int
	told       bool
	// partial: some of what the server lists could not be read.
	partial bool
}

// NewSource returns a source. It sends nothing before Check or Follow. After a Check it
// must be closed.
func NewSource(cfg Config) *Source {
	if cfg.Limits == (Limits{}) {
		cfg.Limits = DefaultLimits()
	}
	s := &Source{
		cfg: cfg, parts: map[string]part{}, indexes: map[string]*index{},
		details: map[schema.GroupVersion]detail{}, pauses: map[string]pause{}, streamed: newMeter(cfg.Limits),
	}
	s.lifetime, s.end = context.WithCancel(context.Background())
	if cfg.Previous != nil {
		s.known.Store(&cfg.Previous)
		s.heard.Store(true)
		s.whole = true
	}
	return s
}

// GroupVersions returns what the server serves as it was read last, by this source or an
// earlier one; ok is false if it never was. The slices of a GroupVersion that did not change
// are the same as before. The result must not be changed.
func (s *Source) GroupVersions() (gvs []discovery.GroupVersion, ok bool) {
	if p := s.known.Load(); p != nil {
		return *p, true
	}
	return nil, false
}

// paths returns where the wanted documents are.
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

// Check asks the server whether its indexes have changed; changed reports that
// GroupVersions or Unread have new values. The error says that the server cannot be reached
// or that an index cannot be used. The documents that an index names are fetched beside it
// (source_details.go), and their errors are not returned: Check waits a moment for them, and
// Config.Changed is called when they take longer. The index of a path that is streamed is not
// requested: of thousands of groups it is megabytes, which a busy server renders for longer
// than a check may take.
func (s *Source) Check(ctx context.Context) (changed bool, err error) {
	for _, path := range s.paths() {
		if s.told(path) {
			continue
		}
		if err := s.list(ctx, path); err != nil {
			return false, err
		}
	}
	return s.readBeside(ctx), nil
}

// Close ends all fetches. Later Checks fetch nothing. It does not wait: decoding a large
// document cannot be interrupted (see Wait).
func (s *Source) Close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.end()
}

// Wait returns when all fetches have ended, after Close.
func (s *Source) Wait() { s.readers.Wait() }

func (s *Source) part(path string) part {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.parts[path]
}

// told reports whether a stream has that path.
func (s *Source) told(path string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.toldOf(path)
}

// toldOf is told; mu is held.
func (s *Source) toldOf(path string) bool { return s.following && path == pathGroups }

// take makes next what is known of a path, unless a later answer came. It reports whether
// something changed.
func (s *Source) take(path string, next part) (changed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.parts[path]
	if next.told || s.indexes[path] == next.list {
		delete(s.indexes, path)
	}
	if !next.told && next.generation != old.generation {
		return false
	}
	next.generation = old.generation + 1
	s.parts[path] = next
	var all []discovery.GroupVersion
	whole := true
	for _, path := range s.paths() {
		p, read := s.parts[path]
		if !read {
			return false // not all paths are read yet
		}
		all = append(all, p.gvs...)
		whole = whole && !p.partial && p.more == 0 // what exceeds a limit is still served
	}
	if known := s.known.Load(); !next.told && s.heard.Load() && s.whole == whole && unchanged(*known, all) {
		return !sameUnread(old.unread, next.unread) || !sameUnread(old.invalid, next.invalid) || !sameUnread(old.beyond, next.beyond) || old.more != next.more
	}
	s.known.Store(&all)
	s.heard.Store(true)
	s.whole = whole
	return true
}

// unchanged reports whether two results are equal, by the identity of their slices.
func unchanged(a, b []discovery.GroupVersion) bool {
	return slices.EqualFunc(a, b, func(a, b discovery.GroupVersion) bool {
		return a.Group == b.Group && a.Version == b.Version && a.Stale == b.Stale && a.Unknown == b.Unknown && a.Unlisted == b.Unlisted &&
			sameSlice(a.Legacy, b.Legacy) && sameSlice(a.Aggregated, b.Aggregated)
	})
}

func sameSlice[T any](a, b []T) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}
