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
// asks for GET /apis?watch=true (or /api, for the core group) in the aggregated
// form as JSON, and where the answer's Content-Type ends in stream=watch, the
// body is JSON objects, a line each ([StreamEvent]): first all groups as ADDED in
// the order of /apis, then, as they change, whole groups as ADDED, MODIFIED or
// DELETED. A BOOKMARK ends the first state and each set of changes: what was sent
// until then is one snapshot, and the ETag under which the same path answers
// without watch is the BOOKMARK's metadata.resourceVersion. A BOOKMARK comes every
// 10 s at least, also without a change, and its openAPI, of servers that tell it,
// differs whenever the index at /openapi/v3 does; a client that hears nothing for three
// times that long should take the connection for dead. Where a group stands among
// the others is not told when it changes. Streams do not resume: a new one begins
// with the whole state. Servers that do not know the parameter, or a client that
// asks for another form, give and get the plain document.

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
	// OpenAPI, set in a BOOKMARK only, stands for the state of the server's
	// OpenAPI documents: another text says that they changed. "" says nothing.
	OpenAPI string `json:"openAPI,omitempty"`
}

// serveStream sends the snapshots as they come until the client goes away or
// the server ends. A client that reads slowly gets what it missed as one change:
// nobody waits for it.
func serveStream(w http.ResponseWriter, r *http.Request, current *Current) {
	h := w.Header()
	h.Set("Content-Type", mediaJSON+aggregatedParams+StreamParameter)
	h.Set("Cache-Control", "no-cache")
	h.Set("Vary", "Accept")
	core := r.URL.Path == "/api" || r.URL.Path == "/api/"
	control := http.NewResponseController(w)
	// The connection goes on to serve other requests.
	defer func() { _ = control.SetWriteDeadline(time.Time{}) }()
	tick := time.NewTicker(streamHeartbeat)
	defer tick.Stop()
	encoder := json.NewEncoder(w)
	var sent *Snapshot
	for {
		now := current.now.Load()
		events := append(difference(sent, now.snapshot, core), bookmark(now.snapshot.streamTag(core), now.openAPI))
		for i := range events {
			// Writers without deadlines block for as long as their clients do.
			_ = control.SetWriteDeadline(time.Now().Add(streamWriteTimeout))
			if encoder.Encode(&events[i]) != nil {
				return
			}
		}
		if control.Flush() != nil {
			return
		}
		sent = now.snapshot
		select {
		case <-r.Context().Done():
			return
		case <-now.replaced:
		case <-tick.C:
		}
	}
}

func (s *Snapshot) streamTag(core bool) string {
	if core {
		return s.coreV2.etag()
	}
	return s.groupsV2.etag()
}

// difference is what leads from one snapshot (nil: nothing) to the next, of the
// core group or of all others: what is there in the order of /apis, then what is
// gone. A group that did not change is the same part in both.
func difference(from, to *Snapshot, core bool) (out []StreamEvent) {
	if from == to {
		return nil
	}
	partsOf := func(s *Snapshot) []*part {
		first, named := s.split()
		if core {
			return first
		}
		return named
	}
	var before map[string]*part
	if from != nil {
		before = from.byGroup
	}
	for _, p := range partsOf(to) {
		switch old := before[p.versions[0].Group]; {
		case old == nil:
			out = append(out, p.event(watch.Added))
		case old != p:
			out = append(out, p.event(watch.Modified))
		}
	}
	if from == nil {
		return out
	}
	for _, p := range partsOf(from) {
		if name := p.versions[0].Group; to.byGroup[name] == nil {
			out = append(out, StreamEvent{Type: watch.Deleted, Object: apidiscovery.APIGroupDiscovery{ObjectMeta: metav1.ObjectMeta{Name: name}}})
		}
	}
	return out
}

// sameBuild reports whether two entries are the same, built once. Priorities
// show in the order only.
func sameBuild(a, b GroupVersion) bool {
	return a.Version == b.Version && a.Stale == b.Stale && a.Unknown == b.Unknown && a.Absent == b.Absent && sameSlice(a.Aggregated, b.Aggregated) && sameSlice(a.Legacy, b.Legacy)
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

func bookmark(etag, openAPI string) StreamEvent {
	return StreamEvent{
		Type: watch.Bookmark, Object: apidiscovery.APIGroupDiscovery{ObjectMeta: metav1.ObjectMeta{ResourceVersion: etag}},
		OpenAPI: openAPI,
	}
}
