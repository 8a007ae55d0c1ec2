package backup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"time"

	"portico/cmd/internal/datadir"
	"portico/cmd/internal/embedetcd"
	"portico/cmd/portico/cli"
	"portico/resource/etcd"
	"portico/resource/identity"
	"portico/resource/masterlease"
)

// startTimeout bounds the start of the restored etcd.
const startTimeout = 2 * time.Minute

// restored describes the etcd that was restored.
type restored struct {
	folder   string
	revision int64
	objects  int64
	// encrypted are the numbers of encrypted objects by key.
	encrypted map[string]int64
}

// restoreEtcd makes the data folder of etcd in work, and starts an etcd on it once to count
// objects.
func (r *restoration) restoreEtcd(ctx context.Context, dir *datadir.Dir, work string) (*restored, error) {
	member := &restored{folder: filepath.Join(work, "etcd")}
	snapshot := filepath.Join(work, "snapshot.db")
	if r.from != "" {
		broken, err := r.readBroken()
		if err != nil {
			return nil, err
		}
		defer broken.Close()
		snapshot = embedetcd.DatabaseFile(broken.File("etcd"))
	} else if err := r.read(ctx, snapshot, 2); err != nil { // the snapshot, and the copy of it
		return nil, err
	}
	p := cli.StartProgress(ctx, r.errOut, "restoring etcd", 0, cli.Size)
	defer p.Stop()
	log := slog.New(slog.DiscardHandler)
	if err := embedetcd.Restore(embedetcd.RestoreConfig{Snapshot: snapshot, NoHash: r.from != "", Dir: member.folder, BumpRevision: r.bump, Logger: log}); err != nil {
		return nil, err
	}
	if r.from == "" {
		if err := os.Remove(snapshot); err != nil {
			return nil, fmt.Errorf("restore: %w", err)
		}
	}
	return member, r.inspect(ctx, dir, member, log)
}

// inspect compares what the restored etcd serves with the manifest.
func (r *restoration) inspect(ctx context.Context, dir *datadir.Dir, member *restored, log *slog.Logger) error {
	all := ctx
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	server, err := embedetcd.Start(ctx, embedetcd.Config{Dir: member.folder, SocketDir: dir.Run, Logger: log, OnFatal: func(err error) {
		fmt.Fprintf(r.errOut, "portico: start the restored etcd: %v\n", err)
		os.Exit(1)
	}})
	if err != nil {
		return err
	}
	defer server.Close()
	client, err := etcd.Open(etcd.Config{Endpoints: []string{server.Endpoint()}, Prefix: r.manifest.Etcd.Prefix, Logger: log})
	if err != nil {
		return err
	}
	defer client.Close()
	counts, err := client.Count(ctx, 0)
	if err != nil {
		return err
	}
	// The processes that were backed up are not the processes of this installation.
	if err := client.RemoveProcesses(ctx, identity.Path, masterlease.Path+"/"); err != nil {
		return err
	}
	status, err := client.Status(ctx)
	if err != nil {
		return err
	}
	member.revision, member.objects = status.Revision, (&Manifest{Objects: counts}).total()
	if r.from == "" && !maps.Equal(counts, r.manifest.Objects) {
		return fmt.Errorf("restore: the restored etcd has %d objects and the manifest names %d", member.objects, r.manifest.total())
	}
	member.encrypted, err = encryptedIn(all, client)
	return err
}

// readBroken reads the keys of an installation with an etcd that does not start. The result locks
// its folder.
func (r *restoration) readBroken() (*datadir.Dir, error) {
	if _, err := os.Stat(embedetcd.DatabaseFile(filepath.Join(r.from, "etcd"))); err != nil {
		return nil, fmt.Errorf("--from-data-dir: %w", err)
	}
	broken, err := datadir.Open(r.from)
	if err != nil {
		return nil, fmt.Errorf("--from-data-dir: %w", err)
	}
	d, err := embedetcd.ReadDatabase(embedetcd.DatabaseFile(broken.File("etcd")))
	if err == nil {
		r.files, err = readFiles(broken.File(datadir.PKIFolder), "")
	}
	if err != nil {
		broken.Close()
		return nil, fmt.Errorf("--from-data-dir: %w", err)
	}
	r.manifest = &Manifest{Etcd: EtcdState{Revision: d.Revision}}
	return broken, nil
}

// read reads the backup: the snapshot to a file, on a disk that must have room for it some times,
// and the rest to memory.
func (r *restoration) read(ctx context.Context, snapshot string, room uint64) error {
	r.files = map[string][]byte{}
	var p *cli.Progress
	err := readFile(r.file, &r.keys, func(m *Manifest) error {
		r.manifest = m
		p = cli.StartProgress(ctx, r.errOut, "reading the backup", m.Parts[0].Size, cli.Size)
		return checkSpace(filepath.Dir(snapshot), room*uint64(m.Parts[0].Size))
	}, func(part Part) (io.WriteCloser, error) {
		if part.Name != snapshotName {
			return &memory{name: part.Name, to: r.files}, nil
		}
		f, err := os.OpenFile(snapshot, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		return &counted{io.MultiWriter(f, p), f}, err
	})
	if p != nil {
		p.Stop()
	}
	return err
}

// counted is a file that is synced, and the progress of what is written to it.
type counted struct {
	io.Writer
	file *os.File
}

func (c *counted) Close() error { return errors.Join(c.file.Sync(), c.file.Close()) }

// memory is a small file that goes into a map when it is closed.
type memory struct {
	bytes.Buffer
	name string
	to   map[string][]byte
}

func (m *memory) Close() error { m.to[m.name] = m.Bytes(); return nil }
