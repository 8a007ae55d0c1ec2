package adopt

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"

	"portico/cmd/internal/embedetcd"
	"portico/cmd/portico/cli"
	"portico/resource/etcd"
)

// openSnapshot starts an etcd on a copy of a snapshot, in a temporary folder.
func openSnapshot(ctx context.Context, file string) (endpoint string, stop func(), err error) {
	if _, err := os.Stat(file); err != nil {
		return "", nil, fmt.Errorf("--snapshot: %w", err)
	}
	folder, err := os.MkdirTemp("", "portico-")
	if err != nil {
		return "", nil, fmt.Errorf("copy snapshot: %w", err)
	}
	stop = func() { os.RemoveAll(folder) }
	log := slog.New(slog.DiscardHandler)
	data := filepath.Join(folder, "etcd")
	if err := embedetcd.Restore(embedetcd.RestoreConfig{Snapshot: file, Dir: data, Logger: log}); err != nil {
		stop()
		return "", nil, fmt.Errorf("--snapshot: %w", err)
	}
	server, err := embedetcd.Start(ctx, embedetcd.Config{Dir: data, SocketDir: folder, Logger: log})
	if err != nil {
		stop()
		return "", nil, fmt.Errorf("--snapshot: %w", err)
	}
	return server.Endpoint(), func() { server.Close(); os.RemoveAll(folder) }, nil
}

// saveSnapshot writes a snapshot of etcd to a new file with mode 0600.
func saveSnapshot(ctx context.Context, client *etcd.Client, file string, errOut io.Writer) (err error) {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("--snapshot-to: %w", err)
	}
	status, err := client.Status(ctx)
	if err == nil {
		p := cli.StartProgress(ctx, errOut, "saving a snapshot of etcd", status.Size, cli.Size)
		err = client.Snapshot(ctx, io.MultiWriter(f, p))
		p.Stop()
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		os.Remove(file)
	}
	return err
}
