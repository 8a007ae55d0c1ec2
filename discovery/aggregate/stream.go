package aggregate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	apidiscovery "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"portico/discovery"
)

// streamSilence is how long a stream may be silent before it counts as dead:
// three heartbeats.
const streamSilence = 30 * time.Second

// errNoStream says that the server does not tell of changes; it has to be
// asked.
var errNoStream = errors.New("the server does not stream discovery")

// IsNoStream reports whether an error of Follow says that the server does not
// know how to tell of changes.
func IsNoStream(err error) bool { return errors.Is(err, errNoStream) }

// Follow has the server tell of changes in its groups until ctx ends or the
// stream does, and calls changed after each. Its error is never nil. What was
// known stays when a stream breaks: that is no verdict on the server, which
// Check is for. It may run beside Check, once at a time. Only a source of
// everything that its server lists can follow, and the core group is left to
// Check.
func (s *Source) Follow(ctx context.Context, changed func()) error {
	if _, known := s.GroupVersions(); !known {
		if _, err := s.Check(ctx); err != nil {
			return err
		}
		changed()
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.cfg.BaseURL+"/apis?watch=true", nil)
	if err != nil {
		return fmt.Errorf("make request: %w", err)
	}
	req.Header.Set("Accept", acceptAggregated)
	req.Header.Set("User-Agent", "portico-gateway")
	s.cfg.Identify(req.Header)
	transport := s.cfg.StreamTransport
	if transport == nil {
		transport = s.cfg.Transport
	}
	res, err := transport.RoundTrip(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("bad status from %s: %d", req.URL, res.StatusCode)
	}
	if !strings.Contains(res.Header.Get("Content-Type"), "stream=watch") {
		return errNoStream
	}
	silence := time.AfterFunc(streamSilence, cancel)
	defer silence.Stop()
	f := &following{source: s, groups: map[string][]discovery.GroupVersion{}}
	decoder := json.NewDecoder(res.Body)
	for {
		var e discovery.StreamEvent
		if err := decoder.Decode(&e); err != nil {
			if errors.Is(err, io.EOF) {
				err = errors.New("the server ended it")
			}
			return fmt.Errorf("read discovery stream of %s: %w", s.cfg.Name, err)
		}
		silence.Reset(streamSilence)
		if f.apply(&e) {
			changed()
		}
	}
}

// following is a stream as far as it was read.
type following struct {
	source *Source
	groups map[string][]discovery.GroupVersion
	// dirty: groups differ from what the source knows.
	dirty bool
}

// apply takes one event in and reports whether the source knows something new.
func (f *following) apply(e *discovery.StreamEvent) (changed bool) {
	name := e.Object.Name
	switch e.Type {
	case watch.Added, watch.Modified:
		f.groups[name], f.dirty = f.source.groupOf(e, f.groups[name]), true
	case watch.Deleted:
		delete(f.groups, name)
		f.dirty = true
	case watch.Bookmark:
		if !f.dirty {
			return false
		}
		f.dirty = false
		return f.source.adopt(f.groups, e.Object.ResourceVersion)
	}
	return false
}

// groupOf makes the entries of a group. What its server could not tell of a
// version (Stale) stays as it was known.
func (s *Source) groupOf(e *discovery.StreamEvent, old []discovery.GroupVersion) []discovery.GroupVersion {
	out := make([]discovery.GroupVersion, 0, len(e.Object.Versions))
	for _, v := range e.Object.Versions {
		resources, told := e.Resources[v.Version]
		if !told || v.Freshness == apidiscovery.DiscoveryFreshnessStale {
			at := slices.IndexFunc(old, func(gv discovery.GroupVersion) bool { return gv.Version == v.Version })
			if at >= 0 {
				out = append(out, old[at])
			}
			continue
		}
		slices.SortFunc(resources, func(a, b metav1.APIResource) int { return strings.Compare(a.Name, b.Name) })
		out = append(out, discovery.GroupVersion{
			Group: e.Object.Name, Version: v.Version, Legacy: resources, Aggregated: complete(v.Resources),
		})
	}
	return out
}

// adopt makes the groups what the source knows, beside the core group, which
// the stream of /apis does not tell of.
func (s *Source) adopt(groups map[string][]discovery.GroupVersion, etag string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	known, ok := s.GroupVersions()
	if !ok {
		return false
	}
	var out []discovery.GroupVersion
	for _, gv := range known {
		if gv.Group == "" {
			out = append(out, gv)
		}
	}
	names := make([]string, 0, len(groups))
	for name := range groups {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		out = append(out, groups[name]...)
	}
	s.known.Store(&out)
	s.etag["/apis"] = etag
	return true
}
