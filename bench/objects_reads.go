package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// pageSize is the limit of a page.
const pageSize = 500

// itemPage is what is read of a page.
type itemPage struct {
	names     []string
	next      string // the continue token
	revision  string
	remaining int64
	bytes     int
}

// page requests a list of a resource and decodes it.
func (m *manyObjects) page(ctx context.Context, t *items, query string) (*itemPage, error) {
	data, err := m.target.read(ctx, 0, request{path: t.all() + query})
	if err != nil {
		return nil, err
	}
	var list struct {
		Metadata struct {
			ResourceVersion, Continue string
			RemainingItemCount        int64
		}
		Items []struct{ Metadata struct{ Name string } }
	}
	if err := json.Unmarshal(data, &list); err != nil {
		return nil, fmt.Errorf("read list: %w", err)
	}
	p := &itemPage{next: list.Metadata.Continue, revision: list.Metadata.ResourceVersion, remaining: list.Metadata.RemainingItemCount, bytes: len(data)}
	for _, item := range list.Items {
		p.names = append(p.names, item.Metadata.Name)
	}
	return p, nil
}

// walk reads pages of a resource one after the other, over and over.
type walk struct {
	what string
	// next reads the page after the last one and returns the number of its objects; end is set with the last page.
	next func(ctx context.Context) (objects int, end bool, err error)
}

// apiWalk reads pages through the gateway. Only the token is read of them, and their length checked.
func (m *manyObjects) apiWalk(t *items) walk {
	token := ""
	return walk{fmt.Sprintf("of %d", t.n), func(ctx context.Context) (int, bool, error) {
		data, err := m.target.read(ctx, 0, request{path: fmt.Sprintf("%s?limit=%d&continue=%s", t.all(), pageSize, token)})
		if err != nil {
			return 0, false, err
		}
		_, rest, more := bytes.Cut(data, []byte(`"continue":"`))
		next, _, _ := bytes.Cut(rest, []byte(`"`))
		if token = string(next); more && len(data) < pageSize*itemBytes {
			return 0, false, fmt.Errorf("a page of %s has %d bytes", t.all(), len(data))
		}
		return pageSize, !more, nil
	}}
}

// etcdWalk reads the same pages from etcd.
func (m *manyObjects) etcdWalk(t *items) walk {
	from, end := t.keys(), clientv3.GetPrefixRangeEnd(t.keys())
	return walk{"from etcd", func(ctx context.Context) (int, bool, error) {
		res, err := m.etcd.client.Get(ctx, from, clientv3.WithRange(end), clientv3.WithLimit(pageSize))
		if err != nil {
			return 0, false, fmt.Errorf("read from etcd: %w", err)
		}
		if from = t.keys(); res.More {
			from = string(res.Kvs[len(res.Kvs)-1].Key) + "\x00"
		}
		return len(res.Kvs), !res.More, nil
	}}
}

// pages compares lists by pages of both resources and of etcd.
func (m *manyObjects) pages(ctx context.Context) error {
	walks := []walk{m.apiWalk(m.small), m.apiWalk(m.large), m.etcdWalk(m.large)}
	rates := make([][]float64, len(walks))
	for range m.o.rounds {
		for i, w := range walks {
			objects, began := 0, time.Now()
			for time.Since(began) < m.o.time {
				n, _, err := w.next(ctx)
				if err != nil {
					return err
				}
				objects += n
			}
			rates[i] = append(rates[i], float64(objects)/time.Since(began).Seconds())
		}
	}
	shares := func(of, to int) float64 {
		var all []float64
		for i := range rates[of] {
			all = append(all, rates[of][i]/rates[to][i])
		}
		return middle(all)
	}
	for i, w := range walks[:2] {
		m.figure(fmt.Sprintf("pages of %d %s", pageSize, w.what), fmt.Sprintf("%.0f objects/s", middle(rates[i])), "", true)
	}
	m.figure("the same pages from etcd", fmt.Sprintf("%.0f objects/s", middle(rates[2])), "", true)
	m.figure("pages of the large resource, share of the small one's rate", percent(shares(1, 0)), "80 %", shares(1, 0) >= 0.8)
	m.figure("pages of the large resource, share of etcd's rate", percent(shares(1, 2)), "", true)
	return nil
}

// middle returns the median.
func middle[T float64 | time.Duration](all []T) T {
	slices.Sort(all)
	return all[len(all)/2]
}

func percent(share float64) string { return fmt.Sprintf("%.0f %%", 100*share) }

// selected measures lists by a label and by a selectable field, each of a thousandth of the objects.
func (m *manyObjects) selected(ctx context.Context) error {
	before, idle := m.now, m.procs.memory()
	for _, s := range []struct{ what, query string }{
		{"label", "?labelSelector=shard%3Ds4"}, {"selectable field", "?fieldSelector=spec.color%3Dc7"}, {"selectable field, again", "?fieldSelector=spec.color%3Dc8"},
	} {
		for _, t := range []*items{m.small, m.large} {
			began := time.Now()
			p, err := m.page(ctx, t, s.query)
			if err != nil {
				return fmt.Errorf("list by %s: %w", s.what, err)
			}
			took := time.Since(began)
			if want := t.n / itemShare; len(p.names) != want {
				return fmt.Errorf("list by %s: %d objects, want %d", s.what, len(p.names), want)
			}
			m.figure(fmt.Sprintf("list by %s, %d of %d", s.what, len(p.names), t.n), fmt.Sprintf("%.1f ms", milliseconds(took)), "", true)
		}
	}
	now, err := m.collect(ctx)
	if err != nil {
		return err
	}
	n := float64(m.large.n)
	grown := (now.memory["crd"] - before.memory["crd"]) / n
	resident := float64(m.procs.memory()["crd"]-idle["crd"]) / n
	m.figure("memory of an object, crd, more after lists by selectable field", fmt.Sprintf("%.0f B live, %.0f B anonymous", grown, resident), "", true)
	m.now = now
	return nil
}

// medians compares GET, create and the way of an event to a watch for both resources, in turns.
func (m *manyObjects) medians(ctx context.Context) error {
	both := []*items{m.small, m.large}
	gets, creates, events := make([][]time.Duration, 2), make([][]time.Duration, 2), make([][]time.Duration, 2)
	var watches []*lineWatch
	for at, t := range both {
		now, err := m.page(ctx, t, "?limit=1")
		if err != nil {
			return err
		}
		w, err := m.openLines(ctx, at, t.list(0)+"?watch=true&resourceVersion="+now.revision)
		if err != nil {
			return err
		}
		defer w.close()
		watches = append(watches, w)
	}
	for i := range m.o.gets {
		for at, t := range both {
			began := time.Now()
			if _, err := m.target.discard(ctx, 2, request{path: t.path(i * 7919 % t.n)}); err != nil {
				return fmt.Errorf("get: %w", err)
			}
			gets[at] = append(gets[at], time.Since(began))
			began = time.Now()
			body := t.body((t.n/itemNamespaces+i)*itemNamespaces, false) // new names in the first namespace
			if _, err := m.target.discard(ctx, 3, request{method: "POST", path: t.list(0), contentType: jsonType, body: body}); err != nil {
				return fmt.Errorf("create: %w", err)
			}
			creates[at] = append(creates[at], time.Since(began))
			line, err := watches[at].next(ctx)
			if err != nil || !strings.HasPrefix(line.text, `{"type":"ADDED"`) {
				return fmt.Errorf("watch: %.200s (%w)", line.text, err)
			}
			events[at] = append(events[at], line.at.Sub(began))
		}
	}
	for _, f := range []struct {
		what string
		took [][]time.Duration
	}{{"GET of the latest state", gets}, {"create", creates}, {"from the create to its event at a watch", events}} {
		small, large := middle(f.took[0]), middle(f.took[1])
		share := float64(small) / float64(large)
		m.figure(fmt.Sprintf("%s, of %d and of %d, median", f.what, m.small.n, m.large.n), fmt.Sprintf("%.2f and %.2f ms, %s", milliseconds(small), milliseconds(large), percent(share)), "80 %", share >= 0.8)
	}
	return nil
}

// lineWatch reads the lines of a watch.
type lineWatch struct {
	close func()
	lines chan timedLine
}

type timedLine struct {
	text string
	at   time.Time
}

// openLines opens a watch.
func (m *manyObjects) openLines(ctx context.Context, connection int, path string) (*lineWatch, error) {
	ctx, cancel := context.WithCancel(ctx)
	res, err := m.target.open(ctx, connection, request{path: path})
	if err != nil {
		cancel()
		return nil, fmt.Errorf("watch: %w", err)
	}
	w := &lineWatch{close: cancel, lines: make(chan timedLine, 16)}
	go func() {
		defer close(w.lines)
		defer res.Body.Close()
		lines := bufio.NewScanner(res.Body)
		for lines.Scan() {
			select {
			case w.lines <- timedLine{lines.Text(), time.Now()}:
			case <-ctx.Done():
				return
			}
		}
	}()
	return w, nil
}

// next returns the next line; an error if there is none for lostAfter.
func (w *lineWatch) next(ctx context.Context) (timedLine, error) {
	select {
	case line, ok := <-w.lines:
		if !ok {
			return line, fmt.Errorf("the watch ended")
		}
		return line, nil
	case <-time.After(lostAfter):
		return timedLine{}, fmt.Errorf("no event for %v", lostAfter)
	case <-ctx.Done():
		return timedLine{}, context.Cause(ctx)
	}
}

// oldWatchBar is the longest time until a watch from an old revision is refused.
const oldWatchBar = 50 * time.Millisecond

// oldWatches measures how a watch from a revision is answered that the server does not hold any more, and then one that etcd does
// not hold either.
func (m *manyObjects) oldWatches(ctx context.Context) error {
	refused := func(what string) error {
		var took []time.Duration
		for range 20 {
			began := time.Now()
			w, err := m.openLines(ctx, 4, m.large.all()+"?watch=true&resourceVersion="+m.old)
			if err != nil {
				return err
			}
			line, err := w.next(ctx)
			w.close()
			if err != nil || !strings.Contains(line.text, `"code":410`) {
				return fmt.Errorf("a watch from revision %s: %.200s (%w)", m.old, line.text, err)
			}
			took = append(took, line.at.Sub(began))
		}
		m.figure(what+": 410 after", fmt.Sprintf("%.1f ms", milliseconds(middle(took))), fmt.Sprint(oldWatchBar), middle(took) < oldWatchBar)
		return nil
	}
	if err := refused("watch from a revision that the server does not hold"); err != nil {
		return err
	}
	old, err := strconv.ParseInt(m.old, 10, 64)
	if err != nil {
		return fmt.Errorf("read resourceVersion: %w", err)
	}
	if _, err := m.etcd.client.Compact(ctx, old+1); err != nil && !strings.Contains(err.Error(), "compacted") {
		return fmt.Errorf("compact: %w", err)
	}
	return refused("watch from a revision that is compacted")
}
