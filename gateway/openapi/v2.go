package openapi

import (
	"context"
	"crypto/sha512"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	openapi_v2 "github.com/google/gnostic-models/openapiv2"
	"google.golang.org/protobuf/proto"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"portico/discovery"
	"portico/discovery/openapi"
	"portico/gateway/routing"
	"portico/resource/loop"
	"portico/resource/response"
)

const (
	mediaJSON       = "application/json"
	mediaProtobufV2 = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
	// mediaProtobufV2Old is an invalid media type, which clients request.
	mediaProtobufV2Old = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"

	// v2Wait is how long a request waits for a change before it gets the older document, and
	// v2First how long the first requests wait before they get what was read until then. A server
	// that hangs takes fetchTimeout.
	v2Wait  = 2 * time.Second
	v2First = 10 * time.Second
	// v2Idle is after what time without refresh the document is dropped.
	v2Idle = 10 * time.Minute
)

// v2Source is a group/version in OpenAPI v2.
type v2Source struct {
	apiService string // its APIService, or a name in logs
	key        string // "apis/G/V" or "api/v1"; "": all of its paths are taken
	// owner is the server of the v3 document, and url the URL of that with its hash; "": it has
	// none.
	owner, url string
	fetch      func(ctx context.Context) ([]byte, error)
}

// v2 makes and serves the OpenAPI v2 document of all group/versions, for clients without v3: Helm, and
// kubectl before 1.27. It is converted from the v3 documents in the background when it is requested,
// and dropped after v2Idle. A document that cannot be fetched or converted does not affect others, and
// its last good part remains. Safe for concurrent use.
type v2 struct {
	// sources returns the group/versions in the order of merging, and a value that differs
	// whenever they do.
	sources       func() (list []v2Source, state any)
	brokenChanged func()
	log           *slog.Logger
	wake          loop.Signal

	parts    map[string]*v2Part    // by APIService; of run only
	failures map[string]*v2Failure // by APIService; of run only
	logged   map[string]error      // of setBroken
	broken   atomic.Pointer[map[string]string]

	mu  sync.Mutex
	doc *v2Document // nil: none
	// refreshed is closed, and replaced, after each refresh.
	refreshed chan struct{}
}

// v2Document is the document. Immutable.
type v2Document struct {
	state    any // of the sources
	json     []byte
	etag     string // quoted
	made     time.Time
	protobuf func() ([]byte, error)
}

func newV2(sources func() ([]v2Source, any), brokenChanged func(), log *slog.Logger) *v2 {
	if log == nil {
		log = slog.Default()
	}
	return &v2{sources: sources, brokenChanged: brokenChanged, log: log, refreshed: make(chan struct{})}
}

// run makes the document on request until ctx ends.
func (v *v2) run(ctx context.Context) error {
	idle := time.NewTimer(v2Idle)
	defer idle.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-v.wake.C():
			v.refresh(ctx)
			idle.Reset(v2Idle)
		case <-idle.C:
			v.parts, v.failures = nil, nil
			v.broken.Store(nil)
			v.show(nil)
		}
	}
}

// refresh updates the document and wakes waiting requests.
func (v *v2) refresh(ctx context.Context) {
	list, state := v.sources()
	loader, loaded := newV2Loader(), make(chan struct{})
	go func() {
		defer close(loaded)
		v.load(ctx, list, loader)
	}()
	v.showFirst(list, loader, loaded)
	<-loaded
	parts := loader.parts
	v.failures = loader.failures
	if ctx.Err() != nil {
		return // fetches were cancelled
	}
	v.mu.Lock()
	next := v.doc
	v.mu.Unlock()
	failed := map[string]error{}
	for name, f := range v.failures {
		failed[name] = f.err
	}
	if next == nil || !maps.Equal(v.parts, parts) {
		made, err := v.document(list, parts, failed)
		if err != nil {
			v.log.Error("encoding OpenAPI v2 failed", "err", err)
			v.show(next)
			return
		}
		next = made
	}
	v.parts = parts
	v.setBroken(failed)
	current := *next
	current.state = state
	v.show(&current)
}

// showFirst shows what is loaded after v2First, if there is no document yet.
func (v *v2) showFirst(list []v2Source, loader *v2Loader, loaded <-chan struct{}) {
	v.mu.Lock()
	known := v.doc != nil
	v.mu.Unlock()
	if known {
		return
	}
	timer := time.NewTimer(v2First)
	defer timer.Stop()
	select {
	case <-loaded:
		return
	case <-timer.C:
	}
	doc, err := v.document(list, loader.loaded(), map[string]error{})
	if err != nil {
		v.log.Error("encoding OpenAPI v2 failed", "err", err)
		return
	}
	doc.state = incomplete{}
	v.show(doc)
}

// incomplete is the state of a document that lacks what is not loaded yet. No sources have it.
type incomplete struct{}

func (v *v2) show(doc *v2Document) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.doc = doc
	close(v.refreshed)
	v.refreshed = make(chan struct{})
}

// document merges parts in the order of their sources. It adds the errors of parts that it omits to
// failed.
func (v *v2) document(list []v2Source, parts map[string]*v2Part, failed map[string]error) (*v2Document, error) {
	ordered := make([]*v2Part, 0, len(parts))
	for i := range list {
		if p := parts[list[i].apiService]; p != nil {
			ordered = append(ordered, p)
		}
	}
	data, err := mergeV2(ordered, maxV2, func(p *v2Part, err error) { failed[p.apiService] = &openapi.BrokenError{Err: err} })
	if err != nil {
		return nil, err
	}
	return &v2Document{
		json: data, etag: fmt.Sprintf(`"%X"`, sha512.Sum512(data)), made: time.Now(),
		protobuf: sync.OnceValues(func() ([]byte, error) { return v.protobuf(data, ordered) }),
	}, nil
}

// protobuf encodes a document. If that fails it omits the parts that cannot be encoded.
func (v *v2) protobuf(data []byte, parts []*v2Part) ([]byte, error) {
	out, err := toProtobuf(data)
	if err == nil {
		return out, nil
	}
	drop := func(p *v2Part, err error) {
		v.log.Warn("the protobuf form of OpenAPI v2 lacks a part", "apiservice", p.apiService, "err", openapi.Message(err))
	}
	parts = slices.DeleteFunc(slices.Clone(parts), func(p *v2Part) bool {
		text, err := mergeV2([]*v2Part{p}, maxV2, func(*v2Part, error) {})
		if err == nil {
			_, err = toProtobuf(text)
		}
		if err != nil {
			drop(p, err)
		}
		return err != nil
	})
	if data, err = mergeV2(parts, maxV2, drop); err != nil {
		return nil, err
	}
	return toProtobuf(data)
}

func toProtobuf(data []byte) ([]byte, error) {
	doc, err := openapi_v2.ParseDocument(data)
	if err != nil {
		return nil, err
	}
	return proto.Marshal(doc)
}

// setBroken sets brokenAPIServices, and logs errors that are new.
func (v *v2) setBroken(failed map[string]error) {
	now := map[string]string{}
	for name, err := range failed {
		if old := v.logged[name]; old == nil || old.Error() != err.Error() {
			v.log.Warn("the OpenAPI v2 document of an APIService cannot be made", "apiservice", name, "err", err)
		}
	}
	v.logged = failed
	for name, err := range failed {
		var broken *openapi.BrokenError
		if errors.As(err, &broken) {
			now[name] = openapi.Message(err)
		}
	}
	old := v.broken.Swap(&now)
	if v.brokenChanged != nil && (old == nil && len(now) > 0 || old != nil && !maps.Equal(*old, now)) {
		v.brokenChanged()
	}
}

// brokenAPIServices returns why parts of the document are invalid, by APIService. Unavailable servers
// are not included. The caller must not modify it.
func (v *v2) brokenAPIServices() map[string]string {
	if all := v.broken.Load(); all != nil {
		return *all
	}
	return nil
}

// ServeHTTP serves the document. The first requests wait until there is one.
func (v *v2) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	media, ok := openapi.Negotiate(r.Header.Values("Accept"), mediaProtobufV2, mediaProtobufV2Old)
	if !ok {
		response.WriteStatus(w, r, response.NotAcceptable(mediaJSON, mediaProtobufV2))
		return
	}
	doc := v.await(r.Context())
	if doc == nil {
		response.WriteStatus(w, r, apierrors.NewTimeoutError("the OpenAPI v2 document was not made within the time of the request", 1))
		return
	}
	h := w.Header()
	h.Set("Vary", "Accept")
	h.Set("ETag", doc.etag)
	h.Set("Last-Modified", doc.made.UTC().Format(http.TimeFormat))
	if doc.unchanged(r) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	body := doc.json
	if media == mediaProtobufV2 {
		var err error
		if body, err = doc.protobuf(); err != nil {
			response.WriteStatus(w, r, fmt.Errorf("encode OpenAPI v2: %w", err))
			return
		}
	}
	response.WriteBody(w, r, http.StatusOK, media, body)
}

// await refreshes the document and waits for that up to v2Wait, or until there is a document; nil:
// the request ended before.
func (v *v2) await(ctx context.Context) *v2Document {
	var waited <-chan time.Time
	_, state := v.sources()
	for range 2 { // the first refresh may have begun before the request
		v.mu.Lock()
		doc, refreshed := v.doc, v.refreshed
		v.mu.Unlock()
		if doc != nil && doc.state == state {
			return doc
		}
		v.wake.Set()
		if waited == nil && doc != nil {
			timer := time.NewTimer(v2Wait)
			defer timer.Stop()
			waited = timer.C
		}
		select {
		case <-refreshed:
		case <-waited:
			return doc
		case <-ctx.Done():
			return doc
		}
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.doc
}

// unchanged reports whether the client has the current document.
func (doc *v2Document) unchanged(r *http.Request) bool {
	if len(r.Header.Values("If-None-Match")) > 0 {
		return discovery.MatchesETag(r, doc.etag)
	}
	since, err := http.ParseTime(r.Header.Get("If-Modified-Since"))
	return err == nil && !doc.made.Truncate(time.Second).After(since)
}

// v2Sources returns the sources of OpenAPI v2, and the index as their state.
func (d *Documents) v2Sources() (list []v2Source, state any) {
	index := d.cfg.Index()
	if index == nil {
		return nil, nil
	}
	for _, p := range index.Parts() {
		s := v2Source{apiService: p.APIService, key: p.Key, owner: "gateway", url: d.own.URL(p.Key)}
		s.fetch = func(ctx context.Context) ([]byte, error) {
			data, _, err := d.own.JSON(ctx, p.Key)
			return data, err
		}
		if p.Server != nil {
			_, link := index.Server(p.Key)
			s.owner, s.url = p.Server.OpenAPIOwner(), link
			s.fetch = func(ctx context.Context) ([]byte, error) { return d.fetch(ctx, p.Server, link) }
		}
		list = append(list, s)
	}
	return append(list, d.v2Paths(index)), index
}

// v2Paths is the source of the paths of discovery and others that belong to no group/version. It is
// merged last: these are the first to be left out of a document that is too large.
func (d *Documents) v2Paths(index *routing.OpenAPI) v2Source {
	keys := slices.Clone(d.paths)
	for _, group := range index.Groups() {
		if group != "" {
			keys = append(keys, openapi.GroupKey(group))
		}
	}
	return v2Source{
		apiService: "paths without a group and version", owner: "gateway", url: strings.Join(keys, " "),
		fetch: func(context.Context) ([]byte, error) { return d.own.PathsJSON(keys) },
	}
}
