package aggregate

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico/discovery"
)

// readTimeout bounds reading all documents of a server anew, as upstream's
// discovery manager does (5 s a request there).
const readTimeout = 5 * time.Second

// Config of a Source.
type Config struct {
	// Name is for errors.
	Name string
	// BaseURL has no path: "https://host:port".
	BaseURL string
	// Transport authenticates as the gateway and reaches the server. Required.
	Transport http.RoundTripper
	// StreamTransport is for Follow, whose request lasts; nil is Transport.
	StreamTransport http.RoundTripper
	// Identify adds the identity headers to a request. Required.
	Identify func(h http.Header)
	// GroupVersions are what is wanted of the server; nil is everything it
	// lists under /api and /apis.
	GroupVersions []schema.GroupVersion
	// OpenAPIChanged, if not nil, is called when a stream that is followed tells
	// that the server's OpenAPI documents changed, from the goroutine of Follow:
	// it must not wait for anything.
	OpenAPIChanged func()
	// Grace is how long a group/version that the server lists, but says it does
	// not have, counts as current. Default 60 s.
	Grace time.Duration
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
	index   verdict // of OpenAPI

	mu    sync.Mutex // never held while the server is asked
	parts map[string]part
	// heard: what is known is what the server itself said.
	heard atomic.Bool
	// whole: and that is everything it serves. Of mu.
	whole bool
	// absent are the group/versions that the server lists and does not have, and
	// since when. Of mu.
	absent map[schema.GroupVersion]time.Time
	// following: a stream tells of pathGroups.
	following bool
}

const (
	pathCore   = "/api"
	pathGroups = "/apis"
)

// part is what the server said under one path.
type part struct {
	// mark identifies the answer; "" is to be read again.
	mark string
	gvs  []discovery.GroupVersion
	// turn counts the answers: one that was asked for before another came is
	// not taken after it. What a stream tells is always the latest.
	turn int
	told bool
	// partial: of what the server listed there, some could not be read.
	partial bool
}

// NewSource returns a source; it asks nothing until Check or Follow.
func NewSource(cfg Config) *Source {
	s := &Source{cfg: cfg, parts: map[string]part{}}
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

// Check asks the server whether it still says what it said, and reads its
// documents anew if not; changed tells that GroupVersions has a new value. The
// error is that of the server: unreachable, or a bad answer. While a stream is
// followed, Check asks as well but leaves it to the stream to tell what changed.
func (s *Source) Check(ctx context.Context) (changed bool, err error) {
	return s.check(ctx, s.paths())
}

func (s *Source) check(ctx context.Context, paths []string) (changed bool, err error) {
	news := map[string]part{}
	for _, path := range paths {
		old := s.part(path)
		mark, err := s.mark(ctx, path, old.mark)
		if err != nil {
			return false, err
		}
		if mark != old.mark && !s.told(path) {
			news[path] = part{mark: mark, turn: old.turn}
		}
	}
	if len(news) == 0 {
		return false, nil
	}
	// The time limit of a probe does not fit reading everything.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readTimeout)
	defer cancel()
	for path, next := range news {
		gvs, whole, err := s.read(ctx, path)
		if errors.Is(err, errTold) {
			delete(news, path)
			continue
		}
		if err != nil {
			return false, err
		}
		if next.partial = !whole; next.partial {
			next.mark = ""
		}
		next.gvs = gvs
		news[path] = next
	}
	return s.take(news), nil
}

func (s *Source) part(path string) part {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.parts[path]
}

// told reports whether a stream tells of that path.
func (s *Source) told(path string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.following && path == pathGroups
}

// take makes answers what is known, except those that others overtook. It
// reports whether that is news.
func (s *Source) take(news map[string]part) (changed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for path, next := range news {
		now := s.parts[path].turn
		if next.told || next.turn == now {
			next.turn = now + 1
			s.parts[path] = next
			changed = true
		}
	}
	if !changed {
		return false
	}
	var all []discovery.GroupVersion
	whole := true
	for _, path := range s.paths() {
		p, read := s.parts[path]
		if !read {
			return false // the whole is not known yet
		}
		all = append(all, p.gvs...)
		whole = whole && !p.partial
	}
	s.known.Store(&all)
	s.heard.Store(true)
	s.whole = whole
	return true
}

// mark returns what identifies the server's present answer at path: its ETag,
// or a digest where there is none. known is the one before.
func (s *Source) mark(ctx context.Context, path, known string) (string, error) {
	accept := acceptLegacy
	if s.cfg.GroupVersions == nil {
		accept = acceptAggregated
	}
	answer, err := s.get(ctx, path, accept, known)
	if err != nil {
		return "", err
	}
	switch {
	case answer.code == http.StatusNotModified:
		return known, nil
	case answer.code == http.StatusNotFound && path == pathCore:
		return "none", nil // a server without the core group
	case answer.code != http.StatusOK:
		return "", fmt.Errorf("bad status from %s: %d", s.cfg.BaseURL+path, answer.code)
	}
	return answer.mark(), nil
}
