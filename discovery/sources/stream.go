package sources

import (
	"bufio"
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
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/watch"

	"portico/discovery"
)

// streamSilence is how long a stream may be silent before it counts as dead:
// three heartbeats.
const streamSilence = 30 * time.Second

var (
	// errNoStream says that the server does not tell of changes; it has to be
	// asked.
	errNoStream = errors.New("the server does not stream discovery")
	errSilent   = fmt.Errorf("nothing came for %v", streamSilence)
)

// IsNoStream reports whether an error of Follow says that the server does not
// know how to tell of changes.
func IsNoStream(err error) bool { return errors.Is(err, errNoStream) }

// Refused reports whether an error of Follow says that the server answered, and not
// with what it was asked for: it is there, and asking again at once does not help.
// retryAfter is when it said that it may be asked again; 0: it did not.
func Refused(err error) (retryAfter time.Duration, refused bool) {
	var status *statusError
	if !errors.As(err, &status) {
		return 0, false
	}
	return status.retryAfter, true
}

// Follow has the server tell of changes in its groups until ctx ends or the
// stream does, and calls changed after each, from its own goroutine; changes
// that come while it runs wait. Its error is never nil. What was known stays
// when a stream breaks: that is no verdict on the server, which Check is for. It
// may run beside Check, once at a time. Only a source of everything that its
// server lists can follow, and the core group is left to Check.
func (s *Source) Follow(ctx context.Context, changed func()) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silence := time.AfterFunc(streamSilence, func() { cancel(errSilent) })
	defer silence.Stop()
	if s.part(pathCore).generation == 0 {
		// Without it the whole is not known.
		if err := s.list(ctx, pathCore); err != nil {
			return err
		}
		if l := s.index(pathCore); l != nil && s.read(ctx, l) {
			changed()
		}
	}
	body, err := s.openStream(ctx)
	if err != nil {
		return err
	}
	defer body.Close()
	defer s.setFollowing(false)
	f := &following{
		source: s, known: s.knownVersions(), groups: map[string]group{}, dropped: map[string]int{},
		// The first state is news in any case: it ends what Check began.
		dirty: true,
	}
	lines := &lineReader{r: bufio.NewReader(body), most: s.cfg.Limits.Group, meter: s.streamed}
	s.streamed.silent = 0
	for {
		line, cut, err := lines.next()
		if err != nil {
			return fmt.Errorf("read discovery stream of %s: %w", s.cfg.Name, streamError(ctx, err))
		}
		silence.Reset(streamSilence)
		e, news, err := f.take(line, cut)
		if err != nil {
			return fmt.Errorf("read discovery stream of %s: %w", s.cfg.Name, err)
		}
		if e.Type == watch.Bookmark {
			s.streamed.silent = 0
		}
		if news {
			changed()
		}
		if f.room {
			return fmt.Errorf("read discovery stream of %s: %w", s.cfg.Name, errRoom)
		}
	}
}

// openStream asks for the stream and returns it once the server has begun it.
func (s *Source) openStream(ctx context.Context) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.cfg.BaseURL+pathGroups+"?watch=true", nil)
	if err != nil {
		return nil, fmt.Errorf("make request: %w", err)
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
		return nil, streamError(ctx, err)
	}
	switch {
	case takesNoStream(res.StatusCode):
		err = errNoStream
	case res.StatusCode != http.StatusOK:
		err = &statusError{s.cfg.Shown + req.URL.RequestURI(), res.StatusCode, retryAfter(res.Header)}
	case !strings.Contains(res.Header.Get("Content-Type"), discovery.StreamParameter):
		err = errNoStream
	default:
		s.setFollowing(true)
		return res.Body, nil
	}
	return nil, errors.Join(err, res.Body.Close())
}

// takesNoStream reports whether a status says that a server knows no such request, and
// not that it refuses this one for now.
func takesNoStream(code int) bool {
	switch code {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusRequestTimeout, http.StatusTooManyRequests:
		return false
	case http.StatusNotImplemented:
		return true
	}
	return code >= 400 && code < 500
}

// streamError says why reading ended: err may only be how it showed.
func streamError(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, io.EOF):
		return errors.New("the server ended it")
	}
	return err
}

func (s *Source) setFollowing(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.following = on
}

// group is what a stream told of a group.
type group struct {
	gvs     []discovery.GroupVersion
	invalid []Unread // that none can have the name of
	size    int      // of gvs, in bytes
	// squeezed: some of it is left out for want of memory.
	squeezed bool
	excess
}

// versions is how many are kept of the group.
func (g *group) versions() int { return len(g.gvs) + len(g.invalid) }

// following is a stream as far as it was read.
type following struct {
	source *Source
	// known is what the source knew when the stream began.
	known knownVersions
	// groups are what the stream told, names their names in order.
	groups map[string]group
	names  []string
	// versions and size are those of all groups.
	versions, size int
	// dropped is how many group/versions there are of groups that are not kept at all, by
	// name: of the first maxNamedBeyond of them.
	dropped map[string]int
	// room: there is room for what was left out, and the server has to be asked for it.
	room bool
	// dirty: groups differ from what the source knows.
	dirty bool
	// openAPI is what the stream told last of the state of OpenAPI.
	openAPI string
}

// take takes the text of one event in, of which the end may be cut off, and reports
// whether the source knows something new. An error is that of the server, which talks
// nonsense.
func (f *following) take(text []byte, cut bool) (e discovery.StreamEvent, news bool, err error) {
	if cut || elements(text) > f.source.cfg.Limits.Elements {
		return e, false, f.takeLarge(text, cut)
	}
	if err := json.Unmarshal(text, &e); err != nil {
		return e, false, fmt.Errorf("decode event: %w", err)
	}
	news, err = f.apply(&e)
	return e, news, err
}

func (f *following) apply(e *discovery.StreamEvent) (news bool, err error) {
	name := e.Object.Name
	if len(name) > validation.DNS1123SubdomainMaxLength {
		name = clip(name) // which no group has, and is not kept as long as it is
	}
	if e.Type != watch.Bookmark && name == "" {
		return false, fmt.Errorf("a %s names no group", e.Type)
	}
	switch e.Type {
	case watch.Added, watch.Modified:
		g, err := f.groupOf(e)
		if err != nil {
			return false, err
		}
		f.put(name, g)
	case watch.Deleted:
		if f.remove(name) && f.leftOut() {
			f.room = true
		}
	case watch.Bookmark:
		f.tellOpenAPI(e.OpenAPI)
		if f.dirty {
			f.dirty = false
			return f.adopt(e.Object.ResourceVersion), nil
		}
	}
	return false, nil
}

// put makes a group what the server says of it now, as far as there is room.
func (f *following) put(name string, g group) {
	f.remove(name)
	limits := &f.source.cfg.Limits
	if f.versions+g.versions() > limits.GroupVersions {
		if len(f.dropped) < maxNamedBeyond {
			f.dropped[name] = g.versions() + g.more
		}
		return
	}
	for i := range g.gvs {
		gv := &g.gvs[i]
		if size := gv.Size(); f.size+g.size+size > limits.Memory {
			g.name(schema.GroupVersion{Group: gv.Group, Version: gv.Version})
			*gv = discovery.GroupVersion{Group: gv.Group, Version: gv.Version, Unknown: true}
			g.squeezed = true
		} else {
			g.size += size
		}
	}
	at, _ := slices.BinarySearch(f.names, name)
	f.names = slices.Insert(f.names, at, name)
	f.groups[name] = g
	f.versions, f.size = f.versions+g.versions(), f.size+g.size
}

// remove forgets a group, and reports whether it was kept.
func (f *following) remove(name string) bool {
	f.dirty = true
	delete(f.dropped, name)
	at, have := slices.BinarySearch(f.names, name)
	if !have {
		return false
	}
	g := f.groups[name]
	f.names = slices.Delete(f.names, at, at+1)
	delete(f.groups, name)
	f.versions, f.size = f.versions-g.versions(), f.size-g.size
	return true
}

// leftOut reports whether something is left out that there may be room for later.
func (f *following) leftOut() bool {
	return len(f.dropped) > 0 || slices.ContainsFunc(f.names, func(name string) bool { return f.groups[name].squeezed })
}

// tellOpenAPI passes on that OpenAPI changed. At the beginning of a stream it
// may have changed while nobody listened.
func (f *following) tellOpenAPI(state string) {
	if state == f.openAPI {
		return
	}
	f.openAPI = state
	if told := f.source.cfg.OpenAPIChanged; told != nil {
		told()
	}
}

// groupOf makes the entries of a group, those that did not change as they were.
// What its server cannot tell of a version (Stale) stays as it was known. Those that no
// group/version can have the name of are left out, as they are of a list.
func (f *following) groupOf(e *discovery.StreamEvent) (g group, err error) {
	before := f.known
	if told, ok := f.groups[e.Object.Name]; ok {
		before = knownVersions{}
		for _, gv := range told.gvs {
			before[schema.GroupVersion{Group: gv.Group, Version: gv.Version}] = gv
		}
	}
	g.gvs = make([]discovery.GroupVersion, 0, len(e.Object.Versions))
	for _, v := range e.Object.Versions {
		id := schema.GroupVersion{Group: e.Object.Name, Version: v.Version}
		if v.Version == "" {
			return g, fmt.Errorf("group %s has a version without a name", clip(id.Group))
		}
		if !validName(pathGroups, id) {
			g.invalid = append(g.invalid, invalid(id))
			continue
		}
		legacy, told := e.Resources[v.Version]
		_, known := before[id]
		stale := v.Freshness == apidiscovery.DiscoveryFreshnessStale
		if stale && (known || !told) {
			g.gvs = append(g.gvs, before.stale(id))
			continue
		}
		gv := discovery.GroupVersion{Group: id.Group, Version: id.Version, Stale: stale, Legacy: legacy, Aggregated: complete(v.Resources)}
		if !told {
			gv.Legacy = discovery.Flatten(id.Group, id.Version, gv.Aggregated)
		}
		slices.SortFunc(gv.Legacy, func(a, b metav1.APIResource) int { return strings.Compare(a.Name, b.Name) })
		g.gvs = append(g.gvs, before.keep(gv))
	}
	return g, nil
}

// adopt makes the groups what the source knows, beside the core group, which
// the stream does not tell of.
func (f *following) adopt(etag string) (news bool) {
	told := part{mark: etag, told: true}
	for _, n := range f.dropped {
		told.more += n
	}
	for _, name := range f.names {
		g := f.groups[name]
		told.gvs, told.invalid = append(told.gvs, g.gvs...), append(told.invalid, g.invalid...)
		for _, u := range g.beyond {
			told.name(u.GroupVersion)
		}
		told.more += g.more
	}
	f.source.noteTold(told.gvs)
	return f.source.take(pathGroups, told)
}
