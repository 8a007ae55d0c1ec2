package discovery

import (
	"encoding/json"
	"net/http"
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
	var sent map[string]*part
	for {
		now := current.now.Load()
		next := now.snapshot.partsOf(core)
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

// partsOf returns the groups (the core group alone, or all others).
func (s *Snapshot) partsOf(core bool) map[string]*part {
	out := make(map[string]*part, len(s.parts))
	for _, p := range s.parts {
		if name := p.versions[0].Group; (name == "") == core {
			out[name] = p
		}
	}
	return out
}

func (s *Snapshot) streamTag(core bool) string {
	if core {
		return s.coreV2.etag()
	}
	return s.groupsV2.etag()
}

// difference is what leads from one state to the next. A group that did not
// change is the same part in both; one that was built anew with the same content
// is sent once more.
func difference(from, to map[string]*part) []StreamEvent {
	var out []StreamEvent
	for name, p := range to {
		switch old := from[name]; {
		case old == nil:
			out = append(out, p.event(watch.Added))
		case old != p:
			out = append(out, p.event(watch.Modified))
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

func (p *part) event(kind watch.EventType) StreamEvent {
	e := StreamEvent{Type: kind, Object: aggregatedGroup(p.versions)}
	for i := range p.versions {
		gv := &p.versions[i]
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
