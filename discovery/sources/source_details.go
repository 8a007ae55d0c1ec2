package sources

import (
	"context"
	"errors"
	"net/http"
	"reflect"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico/discovery"
)

// A server's lists say which group/versions it has and, in the v2 form, most of
// what there is to know of them; the rest (storageVersionHash, and everything of
// servers without that form) is in a document for each. These are details: a
// server that is far away may have hundreds, and some of a healthy one may fail.
// So they are read beside the checks, several at a time and only those of which
// the list says something new, and what was read counts whatever became of the
// others.

const (
	// readersPerServer is how many documents of a server are read at a time.
	readersPerServer = 8
	// documentTimeout bounds reading one, and maxDetail how much is read of it, in bytes.
	documentTimeout = 5 * time.Second
	maxDetail       = 4 << 20
	// readFor is how long documents are read before those that are there count; the
	// others follow.
	readFor = 2 * time.Second
	// maxFailures is how many documents may fail, the others being well or not,
	// before the server is left alone for a while.
	maxFailures = 16
	// patience is how long Check waits for what it found to be read: that a server
	// is there and what it serves are known together, unless it is far away.
	patience = 500 * time.Millisecond
	// detailLasts is how old a document may get of which the v2 form says nothing
	// new, and loneDetailLasts where there is no v2 form.
	detailLasts     = 10 * time.Minute
	loneDetailLasts = time.Minute
)

// reading is what became of one document.
type reading struct {
	legacy []metav1.APIResource
	// cut: there was more than is taken.
	cut bool
	err error
}

// readBeside has what is due read, unless that is under way, and waits a moment
// for it. It reports whether something new is known by then; of what comes later,
// Config.Changed tells.
func (s *Source) readBeside(ctx context.Context) (changed bool) {
	s.mu.Lock()
	first := s.next()
	if s.reading || s.closed || first == nil {
		s.mu.Unlock()
		return false
	}
	s.reading = true
	result, left := make(chan bool), make(chan struct{})
	s.readers.Go(func() { s.readAll(first, result, left) })
	s.mu.Unlock()
	defer close(left)
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case changed = <-result:
	case <-ctx.Done():
	case <-timer.C:
	}
	return changed
}

// readAll reads until nothing is due, and says whether that brought news: to
// whoever waits for the result or, once that one has left, by Config.Changed.
func (s *Source) readAll(l *index, result chan<- bool, left <-chan struct{}) {
	news := false
	tell := func() {
		if news && s.cfg.Changed != nil {
			s.cfg.Changed()
		}
		news = false
	}
	for l != nil {
		news = s.read(s.lifetime, l) || news
		select {
		case <-left:
			tell()
		default:
		}
		s.mu.Lock()
		if l = s.next(); l == nil {
			s.reading = false
		}
		s.mu.Unlock()
	}
	select {
	case result <- news:
	case <-left:
		tell()
	}
}

// next returns what is to be read; nil: nothing is. mu is held.
func (s *Source) next() *index {
	if s.closed {
		return nil
	}
	now := time.Now()
	for _, path := range s.paths() {
		if s.toldOf(path) {
			continue
		}
		if l := s.indexes[path]; l != nil {
			return l
		}
		p := s.parts[path]
		due := !p.refetchAt.IsZero() && !now.Before(p.refetchAt) || len(p.unread) > 0 || p.partial
		if p.list != nil && (p.left || path == pathGroups && len(s.refetch) > 0 || due && !now.Before(s.pauses[path].until)) {
			return p.list
		}
	}
	return nil
}

// read reads what is wanted of a list and makes it known, with what cannot be had
// as it was before. It reports whether something new is known.
func (s *Source) read(ctx context.Context, l *index) (changed bool) {
	known, generation := s.knownVersions(), s.generationOf(l)
	l = s.withUnlisted(l)
	var next part
	if l.document != nil {
		next = s.readOne(ctx, l, known)
	} else {
		results, left := s.fetch(ctx, l.path, s.wanted(l, known))
		next = s.assemble(l, known, results)
		next.left = left
	}
	if ctx.Err() != nil || s.told(l.path) {
		s.drop(l)
		return false
	}
	next.mark, next.list, next.generation, next.invalid, next.more = l.mark, l, generation, l.invalid, next.more+l.more
	s.within(&next, known)
	return s.take(l.path, next)
}

// generationOf returns the generation of what the reading of a list begins with.
func (s *Source) generationOf(l *index) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.parts[l.path]; p.list == l {
		return p.generation
	}
	return l.generation
}

// drop forgets a list that is not to be read.
func (s *Source) drop(l *index) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.indexes[l.path] == l {
		delete(s.indexes, l.path)
	}
}

// wanted returns the group/versions whose documents are to be read: those that
// the list says something new of, that failed, or whose document is old. First come
// those of Refetch; those that failed come last: they shall not keep the others from
// being read.
func (s *Source) wanted(l *index, known knownVersions) (out []schema.GroupVersion) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	waits := now.Before(s.pauses[l.path].until)
	isNew := s.parts[l.path].list != l
	var first, failed []schema.GroupVersion
	for _, id := range l.ids {
		v, d := l.aggregated[id], s.details[id]
		k, have := known[id]
		switch {
		case v.stale, l.large[id]: // the server itself does not have it, or it is too much
		case s.refetch[id]:
			first = append(first, id)
		case d.err != nil && waits && reflect.DeepEqual(d.tried, v.resources):
		case d.err != nil:
			failed = append(failed, id)
		case !have, k.Unknown, k.Stale, now.Sub(d.read) >= l.lasts(),
			l.lone(id) && isNew, !l.lone(id) && !reflect.DeepEqual(k.Aggregated, v.resources):
			out = append(out, id)
		}
	}
	if l.path == pathGroups {
		s.refetch = nil
	}
	return slices.Concat(first, out, failed)
}

// lasts is how old a document may get that the list says nothing new of.
func (l *index) lasts() time.Duration {
	if l.aggregated == nil {
		return loneDetailLasts
	}
	return detailLasts
}

// fetch reads the documents of group/versions, as far as time and the server
// allow; left says that there was no time for some of them.
func (s *Source) fetch(ctx context.Context, path string, ids []schema.GroupVersion) (results map[schema.GroupVersion]reading, left bool) {
	began, failures, room := time.Now(), 0, s.cfg.Limits.Memory
	results = make(map[schema.GroupVersion]reading, len(ids))
	var mu sync.Mutex
	take := func() (id schema.GroupVersion, ok bool) {
		mu.Lock()
		defer mu.Unlock()
		if len(ids) == 0 || failures >= maxFailures || ctx.Err() != nil || s.told(path) {
			return id, false
		}
		if left = time.Since(began) >= readFor; left {
			return id, false
		}
		id, ids = ids[0], ids[1:]
		return id, true
	}
	var readers sync.WaitGroup
	for range min(readersPerServer, len(ids)) {
		readers.Go(func() {
			for id, ok := take(); ok; id, ok = take() {
				r := s.readLegacy(ctx, id)
				mu.Lock()
				if room -= discovery.LegacySize(r.legacy); room < 0 {
					r.legacy, r.cut = []metav1.APIResource{}, true
				}
				if results[id] = r; r.err != nil {
					failures++
				}
				mu.Unlock()
			}
		})
	}
	readers.Wait()
	return results, left
}

// readLegacy asks for the document of one group/version.
func (s *Source) readLegacy(ctx context.Context, gv schema.GroupVersion) (r reading) {
	ctx, cancel := context.WithTimeout(ctx, documentTimeout)
	defer cancel()
	a, err := s.getDocument(ctx, maxDetail, groupVersionPath(gv))
	if err != nil {
		return reading{err: err}
	}
	var large map[schema.GroupVersion]bool
	r.legacy, large, r.err = a.legacy(gv, &s.cfg.Limits)
	r.cut = large[gv]
	return r
}

// assemble makes of a list and the documents that were read what there is to know.
func (s *Source) assemble(l *index, known knownVersions, results map[schema.GroupVersion]reading) part {
	p := part{gvs: make([]discovery.GroupVersion, 0, len(l.ids))}
	errs, again := s.note(l, results)
	p.refetchAt = again
	absent := s.absences(l.path, known)
	for _, id := range l.ids {
		v, err := l.aggregated[id], errs[id]
		r, read := results[id]
		var gv discovery.GroupVersion
		ok := true
		switch {
		case v.stale:
			gv = known.stale(id)
		case l.large[id]:
			p.name(id)
			gv = known.stale(id)
		case read && r.err == nil:
			if r.cut {
				p.name(id)
			}
			gv = known.keep(describe(id, r.legacy, v))
		case errors.Is(err, errAbsent) && l.expected[id]: // nor does the server say that it has it
			ok = false
		case errors.Is(err, errAbsent):
			p.partial = true
			gv, ok = absent.take(id)
		default:
			gv, ok = known.unread(id, v)
			if err != nil {
				p.unread = append(p.unread, Unread{id, err})
				ok = ok || !l.expected[id] // what is listed is there, if unknown
			} else if !ok { // it was not come to yet
				p.partial = true
			}
		}
		if ok {
			gv.Unlisted = l.expected[id]
			p.gvs = append(p.gvs, gv)
		}
	}
	absent.end()
	return p
}

// describe makes what is known of a group/version of both forms.
func describe(id schema.GroupVersion, legacy []metav1.APIResource, v version) discovery.GroupVersion {
	g := discovery.GroupVersion{Group: id.Group, Version: id.Version, Legacy: legacy, Aggregated: v.resources}
	if g.Aggregated == nil || v.stale {
		g.Aggregated = discovery.Aggregate(id.Group, id.Version, legacy)
	}
	return g
}

// readOne makes of the document of the one group/version that is wanted there,
// which was the answer to the check, what there is to know: its v2 form is in the
// list of all that the server has.
func (s *Source) readOne(ctx context.Context, l *index, known knownVersions) part {
	id := l.ids[0]
	v, err := s.readVersion(ctx, id)
	errs, _ := s.note(l, map[schema.GroupVersion]reading{id: {err: err}})
	var p part
	gv := describe(id, l.document, v)
	if err := errs[id]; err != nil {
		p.unread = []Unread{{id, err}}
		if k, ok := known[id]; ok && !k.Unknown && reflect.DeepEqual(k.Legacy, l.document) {
			gv = k
		}
	}
	if l.large[id] {
		p.name(id)
	}
	p.gvs = []discovery.GroupVersion{known.keep(gv)}
	return p
}

// readVersion returns what the v2 form says of a group/version; nothing where the
// server has no such form.
func (s *Source) readVersion(ctx context.Context, id schema.GroupVersion) (version, error) {
	ctx, cancel := context.WithTimeout(ctx, documentTimeout)
	defer cancel()
	path := pathGroups
	if id.Group == "" {
		path = pathCore
	}
	a, err := s.getList(ctx, s.cfg.Limits.Document, path, acceptAggregated)
	switch {
	case err != nil:
		return version{}, err
	case a.code == http.StatusTooManyRequests || a.code >= http.StatusInternalServerError:
		return version{}, badStatus(a)
	case a.code != http.StatusOK || !a.aggregated:
		return version{}, nil
	}
	l := &index{}
	err = l.versions(a, &s.cfg.Limits)
	return l.aggregated[id], err
}
