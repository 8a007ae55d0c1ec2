package lastgood

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"os"
	"time"

	"portico/resource/etcd"
)

const (
	// saveInterval is the time between two comparisons of the current state with what is
	// saved.
	saveInterval = 2 * time.Second
	// maxEtcdDocument bounds a document in etcd, in bytes: etcd refuses requests above
	// 1.5 MiB.
	maxEtcdDocument = 1 << 20
	// etcdRate bounds the bytes per second that one document costs etcd: a document that
	// changes all the time is written less often the larger it is.
	etcdRate = 10 << 10
	// lastSave bounds the save of a gateway that stops.
	lastSave = time.Second
)

// every calls save each saveInterval until ctx ends, and once more then.
func every(ctx context.Context, save func(ctx context.Context, last bool)) {
	tick := time.NewTicker(saveInterval)
	defer tick.Stop()
	for {
		save(ctx, false)
		select {
		case <-tick.C:
		case <-ctx.Done():
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastSave)
			defer cancel()
			save(ctx, true)
			return
		}
	}
}

// readFile returns the documents of the local file, none if there is no valid one.
func (k *Keeper) readFile() (docs map[string][]byte) {
	if k.file == "" {
		return nil
	}
	data, err := os.ReadFile(k.file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = json.Unmarshal(data, &docs)
	}
	if err != nil {
		k.log.Warn("the local last-good file is not used", "err", err)
		return nil
	}
	return docs
}

// keepFile updates the local file until ctx ends. A write that fails is repeated after the
// next change.
func (k *Keeper) keepFile(ctx context.Context) error {
	if k.file == "" {
		<-ctx.Done()
		return ctx.Err()
	}
	var written map[string][]byte
	every(ctx, func(ctx context.Context, _ bool) {
		docs := k.Documents(ctx)
		if len(docs) == 0 || maps.EqualFunc(docs, written, same) {
			return
		}
		if err := writeFile(k.file, docs); err != nil {
			k.log.Error("writing the local last-good file failed", "err", err)
		}
		written = docs
	})
	return ctx.Err()
}

// writeFile replaces the local file, which is a JSON object of documents by name.
func writeFile(file string, docs map[string][]byte) error {
	data, err := json.Marshal(docs)
	if err != nil {
		return err
	}
	if err := os.WriteFile(file+".new", data, 0o600); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}

// etcdWriter writes documents to etcd while the gateway is elected.
type etcdWriter struct {
	*Keeper
	stored map[string]etcd.Document // in etcd; nil: not read
	next   map[string]time.Time     // when a document may be written again
}

// KeepEtcd updates the documents in etcd until ctx ends. Only the elected gateway calls it.
// It writes what this gateway read itself: a restored document comes from etcd, or is later
// than that only until its server answers.
func (k *Keeper) KeepEtcd(ctx context.Context) {
	if !k.Await(ctx) {
		return
	}
	w := &etcdWriter{Keeper: k, next: map[string]time.Time{}}
	every(ctx, func(ctx context.Context, last bool) {
		if err := w.save(ctx, last); err != nil {
			w.stored = nil // read again: another gateway may have written
			if !errors.Is(err, etcd.ErrDocumentChanged) && ctx.Err() == nil {
				k.log.Warn("writing last-good documents failed", "err", err)
			}
		}
	})
}

// save writes the documents that changed and may be written again, all of them if last.
func (w *etcdWriter) save(ctx context.Context, last bool) (err error) {
	if w.stored == nil {
		if w.stored, err = w.cfg.Etcd.Read(ctx); err != nil {
			return err
		}
	}
	w.update(ctx)
	w.mu.Lock()
	docs := maps.Clone(w.saved)
	w.mu.Unlock()
	now := time.Now()
	for name, d := range docs {
		old := w.stored[name]
		if d.state == nil || w.cfg.LocalOnly(name) || len(d.data) > maxEtcdDocument || same(old.Data, d.data) || !last && now.Before(w.next[name]) {
			continue
		}
		revision, err := w.cfg.Etcd.Write(ctx, name, d.data, old.Revision)
		if err != nil {
			return err
		}
		w.stored[name] = etcd.Document{Data: d.data, Revision: revision}
		w.next[name] = now.Add(time.Duration(len(d.data)) * time.Second / etcdRate)
	}
	gone := w.cfg.Gone()
	for name, d := range w.stored {
		if !gone(name) {
			continue
		}
		if err := w.cfg.Etcd.Delete(ctx, name, d.Revision); err != nil {
			return err
		}
		delete(w.stored, name)
	}
	return nil
}
