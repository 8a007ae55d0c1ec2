package sources

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	apidiscovery "k8s.io/api/apidiscovery/v2"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/watch"

	"portico/discovery"
)

// streamSilence is after what silence a stream is broken: three heartbeats.
const streamSilence = 30 * time.Second

var (
	errNoStream = errors.New("the server does not stream discovery")
	errSilent   = fmt.Errorf("the stream was silent for %v", streamSilence)
	errUnknown  = errors.New("the server does not know the reader of the stream")
)

// IsNoStream reports whether an error of Follow says that the server has no stream.
func IsNoStream(err error) bool { return errors.Is(err, errNoStream) }

// Refused reports whether an error of Follow says that the server answered with an error
// status: repeating the request at once does not help. retryAfter is its Retry-After; 0: none.
func Refused(err error) (retryAfter time.Duration, refused bool) {
	var status *statusError
	if !errors.As(err, &status) {
		return 0, false
	}
	return status.retryAfter, true
}

// Follow opens the discovery stream of the server and updates GroupVersions from it until ctx
// or the stream ends. It calls changed after the first state and after each change, from its
// own goroutine; later events wait meanwhile. The error is never nil. GroupVersions remain when
// the stream ends: availability is judged by Check. The core group is not in the stream and
// left to Check. Follow may run beside Check, once at a time, and only for a source of
// everything that its server lists.
func (s *Source) Follow(ctx context.Context, changed func()) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silence := time.AfterFunc(streamSilence, func() { cancel(errSilent) })
	defer silence.Stop()
	if err := s.fetchCore(ctx, changed); err != nil {
		return err
	}
	body, err := s.openStream(ctx)
	if err != nil {
		return err
	}
	defer body.Close()
	acknowledging := make(chan struct{})
	go func() {
		defer close(acknowledging)
		s.acknowledge(ctx, cancel)
	}()
	defer func() {
		cancel(nil)
		<-acknowledging
	}()
	st := &stream{source: s, known: s.knownVersions(), groups: map[string]streamGroup{}, outdated: true}
	defer st.end()
	lines := bufio.NewScanner(&limitedReader{body, s})
	lines.Buffer(nil, s.cfg.Limits.Group)
	lines.Split(wholeLines)
	for lines.Scan() {
		silence.Reset(streamSilence)
		isNew, err := st.apply(lines.Bytes())
		if err != nil {
			return fmt.Errorf("read discovery stream of %s: %w", s.cfg.Name, err)
		}
		if isNew {
			changed()
		}
	}
	return fmt.Errorf("read discovery stream of %s: %w", s.cfg.Name, streamError(ctx, lines.Err()))
}

// fetchCore reads the core group if it was not read yet: without it nothing is known.
func (s *Source) fetchCore(ctx context.Context, changed func()) error {
	s.mu.Lock()
	known := s.results[pathCore] != nil
	s.mu.Unlock()
	if known {
		return nil
	}
	if err := s.requestIndex(ctx, pathCore); err != nil {
		return err
	}
	s.mu.Lock()
	ids := s.due(pathCore)
	s.mu.Unlock()
	if s.fetchAndUpdate(ctx, ids) {
		changed()
	}
	return nil
}

// openStream requests the stream and returns its body.
func (s *Source) openStream(ctx context.Context) (io.ReadCloser, error) {
	req, err := s.newRequest(ctx, http.MethodGet, pathGroups+"?watch=true&"+discovery.FollowerParameter+"="+s.follower, acceptAggregated)
	if err != nil {
		return nil, err
	}
	transport := s.cfg.StreamTransport
	if transport == nil {
		transport = s.cfg.Transport
	}
	res, err := transport.RoundTrip(req)
	if err != nil {
		return nil, streamError(ctx, err)
	}
	switch {
	case lacksStream(res.StatusCode):
		err = errNoStream
	case res.StatusCode != http.StatusOK:
		err = &statusError{s.cfg.Shown + req.URL.RequestURI(), res.StatusCode, retryAfter(res.Header)}
	case !strings.Contains(res.Header.Get("Content-Type"), discovery.StreamParameter):
		err = errNoStream
	default:
		s.mu.Lock()
		s.following = true
		s.mu.Unlock()
		return res.Body, nil
	}
	return nil, errors.Join(err, res.Body.Close())
}

// lacksStream reports whether a status says that a server does not know the request, not that
// it refuses it for now.
func lacksStream(code int) bool {
	switch code {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusRequestTimeout, http.StatusTooManyRequests:
		return false
	case http.StatusNotImplemented:
		return true
	}
	return code >= 400 && code < 500
}

// wholeLines is bufio.ScanLines without the part of a line at the end of a broken stream.
func wholeLines(data []byte, _ bool) (advance int, line []byte, err error) {
	end := bytes.IndexByte(data, '\n') + 1
	if end == 0 {
		return 0, nil, nil
	}
	return end, data[:end], nil
}

// streamError returns why reading ended.
func streamError(ctx context.Context, err error) error {
	switch {
	case errors.Is(err, bufio.ErrTooLong):
		return errTooLong
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err == nil:
		return errors.New("the server ended it")
	}
	return err
}

// limitedReader fails when streams exceed Limits.Rate and Burst.
type limitedReader struct {
	r io.Reader
	s *Source
}

func (l *limitedReader) Read(p []byte) (n int, err error) {
	n, err = l.r.Read(p)
	if l.s.streamRate != nil && !l.s.streamRate.AllowN(time.Now(), n) {
		return 0, errTooLong
	}
	return n, err
}

// stream is the state of an open stream.
type stream struct {
	source *Source
	known  knownVersions // when the stream began
	groups map[string]streamGroup
	names  []string // of groups, sorted
	// versions and size are the sums over all groups.
	versions, size int
	outdated       bool // groups differ from the stored result
	stored         bool // a result was stored
	openAPI        string
}

// streamGroup is the last state of a group.
type streamGroup struct {
	groupVersions []discovery.GroupVersion
	invalid       []Unread
	size          int // in bytes
}

// apply decodes and applies one event. isNew reports that GroupVersions changed or that the
// first state is complete. What precedes a BOOKMARK is not visible before it.
func (st *stream) apply(line []byte) (isNew bool, err error) {
	if countElements(line) > st.source.cfg.Limits.Elements {
		return false, errTooLong
	}
	var e discovery.StreamEvent
	if err := json.Unmarshal(line, &e); err != nil {
		return false, fmt.Errorf("decode event: %w", err)
	}
	name := e.Object.Name
	if len(name) > validation.DNS1123SubdomainMaxLength {
		name = clip(name)
	}
	if e.Type != watch.Bookmark && name == "" {
		return false, fmt.Errorf("a %s names no group", e.Type)
	}
	switch e.Type {
	case watch.Added, watch.Modified:
		g, err := st.decodeGroup(&e)
		if err != nil {
			return false, err
		}
		return false, st.put(name, g)
	case watch.Deleted:
		st.remove(name)
	case watch.Bookmark:
		if changed := st.source.cfg.OpenAPIChanged; e.OpenAPI != st.openAPI && changed != nil {
			changed()
		}
		st.openAPI = e.OpenAPI
		if st.outdated {
			isNew = st.store(e.Object.ResourceVersion)
		}
		return st.source.announce(e.State) || isNew, nil
	}
	return false, nil
}

// put replaces a group.
func (st *stream) put(name string, g streamGroup) error {
	st.remove(name)
	at, _ := slices.BinarySearch(st.names, name)
	st.names = slices.Insert(st.names, at, name)
	st.groups[name] = g
	st.versions, st.size = st.versions+len(g.groupVersions)+len(g.invalid), st.size+g.size
	if limits := &st.source.cfg.Limits; st.versions > limits.GroupVersions || st.size > limits.Memory {
		return errTooLong
	}
	return nil
}

func (st *stream) remove(name string) {
	st.outdated = true
	g, ok := st.groups[name]
	if !ok {
		return
	}
	at, _ := slices.BinarySearch(st.names, name)
	st.names = slices.Delete(st.names, at, at+1)
	delete(st.groups, name)
	st.versions, st.size = st.versions-len(g.groupVersions)-len(g.invalid), st.size-g.size
}

// decodeGroup returns the state of a group after an event. Unchanged versions are reused. A
// version that the server reports as stale remains as it was known.
func (st *stream) decodeGroup(e *discovery.StreamEvent) (g streamGroup, err error) {
	before := st.known
	if old, ok := st.groups[e.Object.Name]; ok {
		before = knownVersions{}
		for i := range old.groupVersions {
			before[idOf(&old.groupVersions[i])] = old.groupVersions[i]
		}
	}
	g.groupVersions = make([]discovery.GroupVersion, 0, len(e.Object.Versions))
	for _, v := range e.Object.Versions {
		id := schema.GroupVersion{Group: e.Object.Name, Version: v.Version}
		if v.Version == "" {
			return g, fmt.Errorf("group %s has a version without a name", clip(id.Group))
		}
		if !validName(pathGroups, id) {
			g.invalid = append(g.invalid, invalid(id))
			continue
		}
		legacy, hasLegacy := e.Resources[v.Version]
		_, known := before[id]
		stale := v.Freshness == apidiscovery.DiscoveryFreshnessStale
		gv := before.stale(id)
		if !stale || !known && hasLegacy {
			gv = discovery.GroupVersion{Group: id.Group, Version: id.Version, Stale: stale, Legacy: legacy, Aggregated: complete(v.Resources)}
			if !hasLegacy {
				gv.Legacy = discovery.Flatten(id.Group, id.Version, gv.Aggregated)
			}
			discovery.SortLegacy(gv.Legacy)
			gv = before.reuse(gv)
		}
		g.groupVersions = append(g.groupVersions, gv)
		g.size += gv.Size()
	}
	return g, nil
}

// store makes the groups the result of /apis. It replaces the index: an answer to an earlier
// request of Check is older than the stream.
func (st *stream) store(etag string) (isNew bool) {
	s := st.source
	r := &result{etag: etag}
	for _, name := range st.names {
		g := st.groups[name]
		r.groupVersions, r.unread = append(r.groupVersions, g.groupVersions...), append(r.unread, g.invalid...)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.indexes, pathGroups)
	s.results[pathGroups] = r
	first := !st.stored
	st.outdated, st.stored = false, true
	return s.store() || first
}

// end leaves /apis to Check again, which fetches no document that the stream contained.
func (st *stream) end() {
	s := st.source
	s.mu.Lock()
	defer s.mu.Unlock()
	s.following = false
	if !st.stored {
		return
	}
	maps.DeleteFunc(s.documents, func(id schema.GroupVersion, _ *document) bool { return id.Group != "" })
	now, gvs := time.Now(), s.results[pathGroups].groupVersions
	for i := range gvs {
		s.documents[idOf(&gvs[i])] = &document{v2: gvs[i].Aggregated, fetched: now}
	}
}
