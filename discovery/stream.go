package discovery

import (
	"encoding/json"
	"net/http"
	"slices"
	"time"

	apidiscovery "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// The stream of discovery is Portico's own addition to the protocol. A client
// asks for /apis?watch=true (or /api) in the aggregated form, and where the
// answer's Content-Type says stream=watch, the body is JSON objects, a line
// each: first all groups as ADDED, then, as they change, groups as ADDED,
// MODIFIED or DELETED. A BOOKMARK ends the first state and each set of changes:
// what was sent until then is one snapshot, whose ETag is the BOOKMARK's
// resourceVersion. Servers that do not know the parameter answer as always.

// StreamParameter is the parameter of the Content-Type that marks a stream.
const StreamParameter = ";stream=watch"

const (
	// streamHeartbeat is how often a BOOKMARK is sent at least, so that both
	// sides notice a connection that is dead.
	streamHeartbeat = 10 * time.Second
	// streamWriteTimeout is how long a reader may take to read what is sent.
	streamWriteTimeout = 30 * time.Second
)

// StreamEvent is one line of the stream.
type StreamEvent struct {
	Type watch.EventType `json:"type"`
	// Object is a group. In a DELETED only its name is set, and in a BOOKMARK
	// only its resourceVersion.
	Object apidiscovery.APIGroupDiscovery `json:"object"`
	// Resources is the unaggregated form of each version, which says more of
	// some things (storageVersionHash). It is not sent of group/versions whose
	// server never answered.
	Resources map[string][]metav1.APIResource `json:"resources,omitempty"`
}

// serveStream sends the snapshots as they come until the client goes away or
// the server ends.
func serveStream(w http.ResponseWriter, r *http.Request, current *Current) {
	w.Header().Set("Content-Type", mediaJSON+aggregatedParams+StreamParameter)
	w.Header().Set("Cache-Control", "no-cache")
	core := r.URL.Path == "/api" || r.URL.Path == "/api/"
	control := http.NewResponseController(w)
	tick := time.NewTicker(streamHeartbeat)
	defer tick.Stop()
	encoder := json.NewEncoder(w)
	var sent map[string]*groupState
	for {
		now := current.now.Load()
		next := now.snapshot.groupStates(core)
		events := difference(sent, next)
		events = append(events, bookmark(now.snapshot.streamTag(core)))
		// Writers without deadlines block for as long as their clients do.
		_ = control.SetWriteDeadline(time.Now().Add(streamWriteTimeout))
		for i := range events {
			if encoder.Encode(&events[i]) != nil {
				return
			}
		}
		if control.Flush() != nil {
			return
		}
		sent = next
		select {
		case <-r.Context().Done():
			_ = control.SetWriteDeadline(time.Time{})
			return
		case <-now.replaced:
		case <-tick.C:
		}
	}
}

// groupState is a group in a snapshot.
type groupState struct {
	name     string
	versions []GroupVersion
}

// groupStates returns the groups (the core group alone, or all others).
func (s *Snapshot) groupStates(core bool) map[string]*groupState {
	out := map[string]*groupState{}
	for i := range s.GroupVersions {
		gv := &s.GroupVersions[i]
		if (gv.Group == "") != core {
			continue
		}
		g := out[gv.Group]
		if g == nil {
			g = &groupState{name: gv.Group}
			out[gv.Group] = g
		}
		g.versions = append(g.versions, *gv)
	}
	return out
}

func (s *Snapshot) streamTag(core bool) string {
	if core {
		return s.coreV2.etag
	}
	return s.groupsV2.etag
}

// difference is what leads from one state to the next. What was built once is
// shared between snapshots, so that comparing where it is tells what changed; a
// group that was built anew with the same content is sent once more.
func difference(from, to map[string]*groupState) []StreamEvent {
	var out []StreamEvent
	for name, g := range to {
		old := from[name]
		switch {
		case old == nil:
			out = append(out, g.event(watch.Added))
		case !slices.EqualFunc(old.versions, g.versions, sameBuild):
			out = append(out, g.event(watch.Modified))
		}
	}
	for name := range from {
		if to[name] == nil {
			out = append(out, StreamEvent{Type: watch.Deleted, Object: apidiscovery.APIGroupDiscovery{ObjectMeta: metav1.ObjectMeta{Name: name}}})
		}
	}
	return out
}

// sameBuild reports whether two entries are the same, built once.
func sameBuild(a, b GroupVersion) bool {
	return a.Version == b.Version && a.Stale == b.Stale && a.Unknown == b.Unknown && sameSlice(a.Aggregated, b.Aggregated) && sameSlice(a.Legacy, b.Legacy)
}

func sameSlice[T any](a, b []T) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

func (g *groupState) event(kind watch.EventType) StreamEvent {
	e := StreamEvent{Type: kind, Object: apidiscovery.APIGroupDiscovery{ObjectMeta: metav1.ObjectMeta{Name: g.name}}}
	for i := range g.versions {
		gv := &g.versions[i]
		e.Object.Versions = append(e.Object.Versions, apidiscovery.APIVersionDiscovery{
			Version: gv.Version, Resources: gv.Aggregated, Freshness: gv.freshness(),
		})
		if gv.Unknown {
			continue
		}
		if e.Resources == nil {
			e.Resources = map[string][]metav1.APIResource{}
		}
		e.Resources[gv.Version] = gv.Legacy
	}
	return e
}

func bookmark(etag string) StreamEvent {
	return StreamEvent{Type: watch.Bookmark, Object: apidiscovery.APIGroupDiscovery{ObjectMeta: metav1.ObjectMeta{ResourceVersion: etag}}}
}
