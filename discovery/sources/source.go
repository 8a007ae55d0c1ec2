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
	// Shown stands before paths in errors, for people who know where the server is by it.
	// "": paths stand alone, as those of a server with several addresses, or with an
	// address that its URL does not have.
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
	// Changed, if not nil, is called when GroupVersions or Unread have new values
	// that no Check and no Follow tells of, from a goroutine of the source's: it must
	// not wait for anything.
	Changed func()
	// OpenAPIChanged, if not nil, is called when a stream that is followed tells
	// that the server's OpenAPI documents changed, from the goroutine of Follow:
	// it must not wait for anything.
	OpenAPIChanged func()
	// Grace is how long a group/version that the server lists, but says it does
	// not have, counts as current. Default 60 s.
	Grace time.Duration
	// Limits bound what is taken of the server. Default DefaultLimits.
	Limits Limits
	// Previous, if not nil, is all that the server serves, as it said already (to
	// an earlier Source).
	Previous []discovery.GroupVersion
}

// Source is one server's discovery, last good answer kept. It is safe for
// concurrent use.
type Source struct {
	cfg     Config
	known   atomic.Pointer[[]discovery.GroupVersion]
	openAPI atomic.Pointer[openAPIAnswer]
	index   verdict    // of OpenAPI
	making  sync.Mutex // of one OpenAPI document at a time

	lifetime context.Context // of what is read beside Check
	end      context.CancelFunc
	readers  sync.WaitGroup

	mu    sync.Mutex // never held while the server is asked
	parts map[string]part
	// listings are what the server lists under a path and parts have not taken in.
	listings map[string]*listing
	// details are those of all group/versions in parts, and pauses the waits
	// before those that failed are read again, by path.
	details map[schema.GroupVersion]detail
	pauses  map[string]pause
	reading bool // beside Check
	closed  bool
	// heard: what is known is what the server itself said.
	heard atomic.Bool
	// whole: and that is everything it serves. Of mu.
	whole bool
	// absent are the group/versions that the server lists and does not have, and
	// since when. Of mu.
	absent map[schema.GroupVersion]time.Time
	// following: a stream tells of pathGroups.
	following bool
	// wants are those of Want. Never changed, only replaced.
	wants []schema.GroupVersion
	// again are those of ReadAgain that no reading has begun with.
	again map[schema.GroupVersion]bool
	// streamed is how much more streams may send; of Follow.
	streamed *meter
}

const (
	pathCore   = "/api"
	pathGroups = "/apis"
)

// part is what the server said under one path.
type part struct {
	// mark identifies the answer.
	mark string
	gvs  []discovery.GroupVersion
	// list is what they were read by; nil: a stream told them, or it is not asked
	// for details.
	list *listing
	// unread are those that failed, in the order of the list, and left says that
	// others were not come to yet.
	unread []Unread
	left   bool
	// invalid are those that are not asked for.
	invalid []Unread
	excess
	// again is when the first document is to be read again that did not fail; zero:
	// none is.
	again time.Time
	// turn counts the answers: one that was asked for before another came is
	// not taken after it. What a stream tells is always the latest.
	turn int
	told bool
	// partial: of what the server listed there, some could not be read.
	partial bool
}

// NewSource returns a source; it asks nothing until Check or Follow. Who calls
// Check has to Close it.
func NewSource(cfg Config) *Source {
	if cfg.Limits == (Limits{}) {
		cfg.Limits = DefaultLimits()
	}
	s := &Source{
		cfg: cfg, parts: map[string]part{}, listings: map[string]*listing{},
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

// GroupVersions returns what the server said last, to this source or to one
// before it; ok is false if it never did. What did not change is the same (the slices of a GroupVersion) as before.
// The result must not be changed.
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

// Check asks the server whether it still says what it said; changed tells that
// GroupVersions or Unread have new values. The error is that of the server:
// unreachable, or a bad answer to just that question. The documents that the
// answer names are read beside it (source_details.go), and are no reason for an
// error: Check waits a moment for them, and Config.Changed is called when it takes
// longer. While a stream is followed, Check asks as well but leaves it to the
// stream to tell what changed.
func (s *Source) Check(ctx context.Context) (changed bool, err error) {
	for _, path := range s.paths() {
		if err := s.list(ctx, path); err != nil {
			return false, err
		}
	}
	return s.readBeside(ctx), nil
}

// Close ends what is read of the server. Later Checks read nothing more. It does not
// wait: a large document may just be taken apart, which nobody can end (see Wait).
func (s *Source) Close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.end()
}

// Wait returns when nothing is read any more, after Close.
func (s *Source) Wait() { s.readers.Wait() }

func (s *Source) part(path string) part {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.parts[path]
}

// told reports whether a stream tells of that path.
func (s *Source) told(path string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.toldOf(path)
}

// toldOf is told; mu is held.
func (s *Source) toldOf(path string) bool { return s.following && path == pathGroups }

// take makes an answer what is known, unless another overtook it. It reports
// whether that is news.
func (s *Source) take(path string, next part) (changed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.parts[path]
	if next.told || s.listings[path] == next.list {
		delete(s.listings, path)
	}
	if !next.told && next.turn != old.turn {
		return false
	}
	next.turn = old.turn + 1
	s.parts[path] = next
	var all []discovery.GroupVersion
	whole := true
	for _, path := range s.paths() {
		p, read := s.parts[path]
		if !read {
			return false // the whole is not known yet
		}
		all = append(all, p.gvs...)
		whole = whole && !p.partial && p.more == 0 // nothing is taken away for want of room
	}
	if known := s.known.Load(); !next.told && s.heard.Load() && s.whole == whole && unchanged(*known, all) {
		return !sameUnread(old.unread, next.unread) || !sameUnread(old.invalid, next.invalid) || !sameUnread(old.beyond, next.beyond) || old.more != next.more
	}
	s.known.Store(&all)
	s.heard.Store(true)
	s.whole = whole
	return true
}

// unchanged reports whether two answers are the same, of what was kept as it was.
func unchanged(a, b []discovery.GroupVersion) bool {
	return slices.EqualFunc(a, b, func(a, b discovery.GroupVersion) bool {
		return a.Group == b.Group && a.Version == b.Version && a.Stale == b.Stale && a.Unknown == b.Unknown && a.Unlisted == b.Unlisted &&
			sameSlice(a.Legacy, b.Legacy) && sameSlice(a.Aggregated, b.Aggregated)
	})
}

func sameSlice[T any](a, b []T) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}
