package discovery

import (
	"encoding/json"
	"net/http"
	"time"

	apidiscovery "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"portico/resource/response"
)

// The discovery stream is Portico's own addition to the protocol (docs/wire.md 2.6). The response to
// GET /apis?watch=true for the aggregated form as JSON has a Content-Type that ends in
// stream=watch, and one JSON object per line ([StreamEvent]): first all groups as ADDED in the order
// of /apis, then changed groups as ADDED, MODIFIED or DELETED. A BOOKMARK ends the first state and
// each set of changes: the events before it are one snapshot, and its metadata.resourceVersion is
// the ETag of /apis. A BOOKMARK is sent every 10 s at least; its openAPI differs whenever the index
// at /openapi/v3 does. After 30 s of silence the connection is broken. A change of the order of
// groups is not sent. Streams do not resume: each begins with the whole state. Servers that do not
// know the parameter answer with the document, and so do these servers in other forms.
//
// A reader that names itself by follower=NAME acknowledges states (followers.go).

// StreamParameter is the parameter of the Content-Type that marks a stream.
const StreamParameter = ";stream=watch"

const (
	// streamHeartbeat is the longest time between two BOOKMARKs.
	streamHeartbeat = 10 * time.Second
	// streamWriteTimeout bounds each write.
	streamWriteTimeout = 30 * time.Second
)

// StreamEvent is one line of the stream.
type StreamEvent struct {
	Type watch.EventType `json:"type"`
	// Object is a group; of DELETED only the name, of BOOKMARK only the resourceVersion.
	Object apidiscovery.APIGroupDiscovery `json:"object"`
	// Resources is the legacy form of each version, which has storageVersionHash. Versions of
	// servers that never answered are not in it.
	Resources map[string][]metav1.APIResource `json:"resources,omitempty"`
	// OpenAPI, of BOOKMARK only, differs whenever the OpenAPI documents of the server change; "" if
	// the server does not report that.
	OpenAPI string `json:"openAPI,omitempty"`
	// State, of BOOKMARK only, is what a follower acknowledges once it shows the state; nil if the server
	// does not ask for that.
	State *State `json:"state,omitempty"`
}

// State is a state of the discovery and of the OpenAPI documents of one process.
type State struct {
	// Process is another text for each process.
	Process string `json:"process"`
	Serial  int64  `json:"serial"`
}

// serveStream sends snapshots until the client goes away or the server ends. A slow client gets
// several changes as one.
func serveStream(w http.ResponseWriter, r *http.Request, current *Current) {
	h := w.Header()
	h.Set("Content-Type", response.JSON.ContentType()+aggregatedParams+StreamParameter)
	h.Set("Cache-Control", "no-cache")
	h.Set("Vary", "Accept")
	control := http.NewResponseController(w)
	// The connection serves further requests.
	defer func() { _ = control.SetWriteDeadline(time.Time{}) }()
	tick := time.NewTicker(streamHeartbeat)
	defer tick.Stop()
	encoder := json.NewEncoder(w)
	f := current.Followers.join(r)
	defer f.leave()
	var sent *Snapshot
	for {
		now := current.now.Load()
		last := bookmark(now.snapshot.ETag(), now.openAPI)
		last.State = f.sent(now.serial)
		events := append(difference(sent, now.snapshot), last)
		for i := range events {
			// Fails for writers without deadlines.
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

// difference returns the events that lead from one snapshot (nil: nothing) to the next, without the
// core group: changed groups in the order of /apis, then deleted ones. An unchanged group is the
// same part in both.
func difference(from, to *Snapshot) (out []StreamEvent) {
	if from == to {
		return nil
	}
	var before map[string]*part
	if from != nil {
		before = from.byGroup
	}
	_, named := to.split()
	for _, p := range named {
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
	_, named = from.split()
	for _, p := range named {
		if name := p.versions[0].Group; to.byGroup[name] == nil {
			out = append(out, StreamEvent{Type: watch.Deleted, Object: apidiscovery.APIGroupDiscovery{ObjectMeta: metav1.ObjectMeta{Name: name}}})
		}
	}
	return out
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
