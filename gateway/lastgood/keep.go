package lastgood

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"time"

	"portico/resource/etcd"
)

const (
	// maxKept bounds a document in etcd, in bytes: etcd takes no request of more
	// than 1.5 MiB. Larger ones are in the local copy only.
	maxKept = 1 << 20
	// keepRate bounds what one document costs etcd, in bytes a second: one that
	// changes all the time is written the less often the larger it is.
	keepRate = 10 << 10
	// farewell bounds the last writing of a gateway that stops.
	farewell = time.Second
)

// keepCopy keeps the local copy up to date until ctx ends, and once more then.
func (k *Keeper) keepCopy(ctx context.Context) error {
	if k.copy == nil {
		<-ctx.Done()
		return ctx.Err()
	}
	var written map[string][]byte
	save := func(ctx context.Context) {
		docs := k.Documents(ctx)
		if len(docs) == 0 || maps.EqualFunc(docs, written, same) {
			return
		}
		if err := k.copy.write(docs); err != nil {
			k.log.Error("the local last-good copy was not written", "err", err)
		}
		written = docs // one that cannot be written is not tried again unchanged
	}
	every(ctx, keepInterval, save)
	return ctx.Err()
}

// every calls f again and again until ctx ends, and once more then, with a
// context of its own.
func every(ctx context.Context, interval time.Duration, f func(ctx context.Context)) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		f(ctx)
		select {
		case <-tick.C:
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewell)
			defer cancel()
			f(last)
			return
		}
	}
}

// term is the writing of documents to etcd while the gateway is elected.
type term struct {
	*Keeper
	// stored is what is in etcd; nil is not known.
	stored map[string]etcd.Document
	// next is when a document may be written again.
	next map[string]time.Time
	// refused are documents that were too large when they were looked at last.
	refused map[string]int
}

// KeepEtcd keeps what is in etcd up to date until ctx ends, and once more then.
// It writes differences only.
func (k *Keeper) KeepEtcd(ctx context.Context) {
	if !k.Await(ctx) {
		return
	}
	t := &term{Keeper: k, next: map[string]time.Time{}, refused: map[string]int{}}
	every(ctx, keepInterval, func(now context.Context) {
		if err := t.turn(now, ctx.Err() != nil); err != nil && now.Err() == nil {
			k.log.Warn("writing last-good documents failed", "err", err)
			t.stored = nil
		}
	})
}

// turn writes what differs and may be written now; last says that there will be
// no other turn.
func (t *term) turn(ctx context.Context, last bool) (err error) {
	if t.stored == nil {
		if t.stored, err = t.cfg.Etcd.Read(ctx); err != nil {
			return err
		}
		t.catchUp(ctx, t.stored)
	}
	docs := t.Documents(ctx)
	now := time.Now()
	for name, data := range docs {
		stored, there := t.stored[name]
		if t.cfg.CopyOnly(name) || there && same(stored.Data, data) || !last && now.Before(t.next[name]) || t.refuse(name, data) {
			continue
		}
		at, err := t.cfg.Etcd.Write(ctx, name, data, stored.Revision)
		if err != nil {
			return t.failed(err)
		}
		t.stored[name] = etcd.Document{Data: data, Revision: at}
		t.next[name] = now.Add(time.Duration(len(data)) * time.Second / keepRate)
	}
	return t.drop(ctx, docs)
}

// catchUp takes over what another gateway has kept since this one read etcd: of
// what nobody has said to this one, it knows only how that was at its own start. What
// was said to this one replaces it, and so is newer.
func (k *Keeper) catchUp(ctx context.Context, stored map[string]etcd.Document) {
	k.Documents(ctx) // so that what was said is known as such
	newer := make(map[string][]byte)
	k.mu.Lock()
	for name, d := range stored {
		switch p := k.packed[name]; {
		case d.Data == nil || same(p.data, d.Data):
		case p.state == nil:
			newer[name] = d.Data
		case madeAt(p.data) <= madeAt(d.Data):
			p.data = bytes.Clone(p.data)
			setMade(p.data, madeAfter(d.Data))
			k.packed[name] = p
		}
	}
	k.mu.Unlock()
	k.Restore(newer)
}

// refuse reports whether a document is too large for etcd, and says so once.
func (t *term) refuse(name string, data []byte) bool {
	if len(data) <= maxKept {
		delete(t.refused, name)
		return false
	}
	if t.refused[name] == 0 {
		t.log.Warn("a last-good document is too large for etcd; it is in local copies only", "document", name, "bytes", len(data), "limit", maxKept)
	}
	t.refused[name] = len(data)
	return true
}

// drop removes the documents of APIServices and Backends that are gone.
func (t *term) drop(ctx context.Context, docs map[string][]byte) error {
	gone := t.cfg.Gone()
	for name, stored := range t.stored {
		if _, ok := docs[name]; ok || !gone(name) {
			continue
		}
		if err := t.cfg.Etcd.Delete(ctx, name, stored.Revision); err != nil {
			return t.failed(err)
		}
		delete(t.stored, name)
	}
	return nil
}

// failed has everything read anew. That a gateway which was elected before has
// written meanwhile is nothing to speak of.
func (t *term) failed(err error) error {
	t.stored = nil
	if errors.Is(err, etcd.ErrDocumentChanged) {
		return nil
	}
	return err
}
