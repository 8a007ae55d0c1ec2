package gateway

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"strings"
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
func (l *lastGood) keepCopy(ctx context.Context) error {
	if l.copy == nil {
		<-ctx.Done()
		return ctx.Err()
	}
	var written map[string][]byte
	save := func(ctx context.Context) {
		docs := l.collect(ctx)
		if len(docs) == 0 || maps.EqualFunc(docs, written, bytes.Equal) {
			return
		}
		if err := l.copy.write(docs); err != nil {
			l.log.Error("the local last-good copy was not written", "err", err)
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

// keeper is who writes the documents to etcd, for one term as the elected
// gateway.
type keeper struct {
	*lastGood
	// stored is what is in etcd; nil is not known.
	stored map[string]etcd.Document
	// next is when a document may be written again.
	next map[string]time.Time
	// refused are documents that were too large when they were looked at last.
	refused map[string]int
}

// keepEtcd keeps what is in etcd up to date until ctx ends, and once more then.
// It writes differences only.
func (l *lastGood) keepEtcd(ctx context.Context) {
	if !l.await(ctx) {
		return
	}
	k := &keeper{lastGood: l, next: map[string]time.Time{}, refused: map[string]int{}}
	every(ctx, keepInterval, func(now context.Context) {
		if err := k.turn(now, ctx.Err() != nil); err != nil && now.Err() == nil {
			l.log.Warn("writing last-good documents failed", "err", err)
			k.stored = nil
		}
	})
}

// turn writes what differs and may be written now; last says that there will be
// no other turn.
func (k *keeper) turn(ctx context.Context, last bool) (err error) {
	if k.stored == nil {
		if k.stored, err = k.etcd.Read(ctx); err != nil {
			return err
		}
	}
	docs := k.collect(ctx)
	now := time.Now()
	for name, data := range docs {
		stored, there := k.stored[name]
		if strings.HasPrefix(name, documentsOfOwn) || there && bytes.Equal(stored.Data, data) || !last && now.Before(k.next[name]) || k.refuse(name, data) {
			continue
		}
		at, err := k.etcd.Write(ctx, name, data, stored.Revision)
		if err != nil {
			return k.failed(err)
		}
		k.stored[name] = etcd.Document{Data: data, Revision: at}
		k.next[name] = now.Add(time.Duration(len(data)) * time.Second / keepRate)
	}
	return k.drop(ctx, docs)
}

// refuse reports whether a document is too large for etcd, and says so once.
func (k *keeper) refuse(name string, data []byte) bool {
	if len(data) <= maxKept {
		delete(k.refused, name)
		return false
	}
	if k.refused[name] == 0 {
		k.log.Warn("a last-good document is too large for etcd; it is in local copies only", "document", name, "bytes", len(data), "limit", maxKept)
	}
	k.refused[name] = len(data)
	return true
}

// drop removes the documents of APIServices and Backends that are gone.
func (k *keeper) drop(ctx context.Context, docs map[string][]byte) error {
	gone := k.gone()
	for name, stored := range k.stored {
		if _, ok := docs[name]; ok || !gone(name) {
			continue
		}
		if err := k.etcd.Delete(ctx, name, stored.Revision); err != nil {
			return k.failed(err)
		}
		delete(k.stored, name)
	}
	return nil
}

// failed has everything read anew. That a gateway which was elected before has
// written meanwhile is nothing to speak of.
func (k *keeper) failed(err error) error {
	k.stored = nil
	if errors.Is(err, etcd.ErrDocumentChanged) {
		return nil
	}
	return err
}
