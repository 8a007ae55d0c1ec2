package sources

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"sync"
	"time"

	apidiscovery "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico/discovery"
)

const (
	// fetchersPerServer is how many documents of a server are fetched at a time.
	fetchersPerServer = 8
	// documentTimeout bounds the request of one document, and maxDocument its size in bytes.
	documentTimeout = 5 * time.Second
	maxDocument     = 4 << 20
	// batchTime is how long documents are fetched before results are computed from them; the
	// rest follows in the next batch. A batch also ends after maxFailures failed requests.
	batchTime   = 2 * time.Second
	maxFailures = 16
	// fetchPatience is how long Check waits for the queue: the state and the content of a
	// server change together, unless the server is slow.
	fetchPatience = 500 * time.Millisecond
	// Documents are fetched again after documentLasts where the index has the aggregated form,
	// and after loneDocumentLasts where it does not show changes.
	documentLasts     = 10 * time.Minute
	loneDocumentLasts = time.Minute
	// retryFirst and retryMax are the first and the longest pause before failed documents are
	// fetched again. The next Check after the pause does so.
	retryFirst = time.Second
	retryMax   = 30 * time.Second
)

// document is the state of the legacy document (APIResourceList) of a group/version.
type document struct {
	// index and v2 are those at the last request, or of a later index that says the same.
	index *index
	v2    []apidiscovery.APIResourceDiscovery
	// fetched is the time of the last success, and err that of the last request.
	fetched time.Time
	err     error
	// absent is since when the server answers 404. Zero: it does not.
	absent time.Time
}

// fetched is the answer to the request of a document.
type fetched struct {
	index     *index // that named the document
	resources []metav1.APIResource
	truncated bool // there are more resources
	err       error
}

// changed reports whether an index says something new of a group/version since its document
// was requested.
func (d *document) changed(l *index, id schema.GroupVersion) bool {
	if d.index == l {
		return false
	}
	v, ok := l.v2[id]
	if !ok || !reflect.DeepEqual(d.v2, v.resources) {
		return true
	}
	d.index, d.v2 = l, v.resources
	return false
}

// lasts returns after what time the document of a group/version is fetched again.
func (l *index) lasts(id schema.GroupVersion) time.Duration {
	if _, ok := l.v2[id]; ok {
		return documentLasts
	}
	return loneDocumentLasts
}

// expected returns the group/versions of an index and those of Want that it does not list.
func (s *Source) expected(l *index) []schema.GroupVersion {
	if l.path != pathGroups {
		return l.ids
	}
	ids := slices.Clone(l.ids)
	for _, id := range s.wanted {
		if validName(l.path, id) && !l.listed[id] && len(ids) < s.cfg.Limits.GroupVersions {
			ids = append(ids, id)
		}
	}
	return ids
}

// due returns the documents to fetch now: those of Refetch, those that are new or old, and
// last those that failed, so that they do not delay the others. s.mu is held.
func (s *Source) due(paths ...string) []schema.GroupVersion {
	var requested, outdated, failed []schema.GroupVersion
	now := time.Now()
	paused := now.Before(s.retryAt)
	for _, path := range paths {
		l := s.indexes[path]
		if l == nil || l.document != nil || s.following && path == pathGroups {
			continue
		}
		for _, id := range s.expected(l) {
			d := s.documents[id]
			switch {
			case l.v2[id].stale, l.truncated[id]:
			case s.refetch[id]:
				delete(s.refetch, id)
				requested = append(requested, id)
			case d == nil || d.changed(l, id) || d.err == nil && now.Sub(d.fetched) >= l.lasts(id):
				outdated = append(outdated, id)
			case d.err != nil && !paused:
				failed = append(failed, id)
			}
		}
	}
	if paused && s.overloaded {
		return requested
	}
	return slices.Concat(requested, outdated, failed)
}

// startFetching starts the queue if it is not running and there is something to do. done is
// closed when the queue is empty; nil: nothing was started.
func (s *Source) startFetching() (done <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fetching != nil || s.lifetime.Err() != nil {
		return nil
	}
	ids := s.due(s.paths()...)
	if len(ids) == 0 && !s.outdated {
		return nil
	}
	finished := make(chan struct{})
	s.fetching = finished
	s.fetchers.Go(func() {
		defer close(finished)
		s.runQueue(ids)
	})
	return finished
}

// runQueue fetches documents and computes results until nothing is due.
func (s *Source) runQueue(ids []schema.GroupVersion) {
	for {
		if s.fetchAndUpdate(s.lifetime, ids) && s.cfg.Changed != nil {
			s.cfg.Changed()
		}
		s.mu.Lock()
		ids = s.due(s.paths()...)
		if s.lifetime.Err() != nil || len(ids) == 0 && !s.outdated {
			s.fetching = nil
			s.mu.Unlock()
			return
		}
		s.mu.Unlock()
	}
}

// fetchAndUpdate fetches one batch of documents and computes the results of all indexes. It
// reports whether something changed.
func (s *Source) fetchAndUpdate(ctx context.Context, ids []schema.GroupVersion) (changed bool) {
	s.mu.Lock()
	s.outdated = false
	indexes := maps.Clone(s.indexes)
	s.mu.Unlock()
	batch := s.fetchBatch(ctx, ids, indexes)
	if ctx.Err() != nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.record(batch)
	known, now := s.knownVersions(), time.Now()
	for _, r := range s.results {
		// store publishes nothing until every path has a result; the documents of one that has are not
		// fetched again.
		for _, gv := range r.groupVersions {
			known[idOf(&gv)] = gv
		}
	}
	for _, path := range s.paths() {
		if l := s.indexes[path]; l != nil {
			s.results[path] = s.resultOf(l, known, batch, now)
		}
	}
	return s.store()
}

// fetchBatch requests documents until batchTime has passed or maxFailures failed.
func (s *Source) fetchBatch(ctx context.Context, ids []schema.GroupVersion, indexes map[string]*index) map[schema.GroupVersion]fetched {
	var mu sync.Mutex
	batch, failures, memory := make(map[schema.GroupVersion]fetched, len(ids)), 0, s.cfg.Limits.Memory
	queue := make(chan schema.GroupVersion)
	var fetchers sync.WaitGroup
	for range min(fetchersPerServer, len(ids)) {
		fetchers.Go(func() {
			for id := range queue {
				if ctx.Err() != nil {
					continue
				}
				f := s.fetchDocument(ctx, id)
				f.index = indexes[indexPath(id)]
				mu.Lock()
				if memory -= discovery.LegacySize(f.resources); memory < 0 {
					f.resources, f.truncated = []metav1.APIResource{}, true
				}
				if batch[id] = f; f.err != nil {
					failures++
				}
				mu.Unlock()
			}
		})
	}
	overloaded := func() bool {
		mu.Lock()
		defer mu.Unlock()
		return failures >= maxFailures
	}
	began := time.Now()
	for _, id := range ids {
		if overloaded() || time.Since(began) >= batchTime {
			break
		}
		queue <- id
	}
	close(queue)
	fetchers.Wait()
	return batch
}

func (s *Source) fetchDocument(ctx context.Context, gv schema.GroupVersion) (f fetched) {
	ctx, cancel := context.WithTimeout(ctx, documentTimeout)
	defer cancel()
	a, err := s.do(ctx, request{path: groupVersionPath(gv), accept: acceptLegacy, limit: maxDocument, truncate: true})
	switch {
	case err != nil:
		f.err = err
	case a.code == http.StatusNotFound:
		f.err = errAbsent
	case a.code != http.StatusOK:
		f.err = badStatus(a)
	default:
		f.resources, f.truncated, f.err = a.decodeResources(gv, &s.cfg.Limits)
	}
	return f
}

// record updates the states of documents after a batch, and when failed ones are fetched
// again. s.mu is held.
func (s *Source) record(batch map[schema.GroupVersion]fetched) {
	now := time.Now()
	failed, succeeded := 0, 0
	for id, f := range batch {
		if s.indexes[indexPath(id)] == nil || f.index == nil {
			continue // a stream replaced the index
		}
		d, old := &document{index: f.index, v2: f.index.v2[id].resources, fetched: now, err: f.err}, s.documents[id]
		if errors.Is(f.err, errAbsent) {
			if d.absent = now; old != nil && !old.absent.IsZero() {
				d.absent = old.absent
			}
			if !f.index.listed[id] {
				d.err = nil // that the server lacks it is a good answer
			}
		}
		if d.err == nil {
			succeeded++
		} else {
			failed++
			if d.fetched = (time.Time{}); old != nil {
				d.fetched = old.fetched
			}
		}
		s.documents[id] = d
	}
	switch {
	case failed > 0 && (succeeded > 0 || s.retryPause == 0):
		s.retryPause = retryFirst
	case failed > 0:
		s.retryPause = min(2*s.retryPause, retryMax)
	case succeeded > 0:
		s.retryPause = 0
	}
	if failed > 0 {
		s.retryAt, s.overloaded = now.Add(s.retryPause), failed >= maxFailures
	}
	s.forget()
}

// forget removes the states of documents that no index expects. s.mu is held.
func (s *Source) forget() {
	expected := map[schema.GroupVersion]bool{}
	for _, l := range s.indexes {
		for _, id := range s.expected(l) {
			expected[id] = true
		}
	}
	maps.DeleteFunc(s.documents, func(id schema.GroupVersion, _ *document) bool {
		return s.indexes[indexPath(id)] != nil && !expected[id]
	})
}
