package backup

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"portico/cmd/internal/embedetcd"
	"portico/cmd/portico/cli"
	"portico/resource/etcd"
	"portico/resource/serve/version"
)

const (
	// statusTimeout bounds the first question to etcd.
	statusTimeout = 10 * time.Second
	// snapshotAttempts is how many members may be behind the cluster.
	snapshotAttempts = 3

	timeFormat = time.RFC3339
)

// snapshot is a snapshot of etcd in a temporary file.
type snapshot struct {
	client *etcd.Client
	prefix string
	report io.Writer // of progress

	time     time.Time
	status   etcd.Status
	revision int64
	file     *os.File // has no name any more
	size     int64
	sum      []byte // SHA-256 of all of it
}

// take takes a snapshot that has every write until now. Its file is in a folder; reserve says
// whether the backup will be there as well.
func (s *snapshot) take(ctx context.Context, folder string, reserve bool) error {
	s.time = time.Now().UTC().Truncate(time.Second)
	if err := s.readStatus(ctx); err != nil {
		return err
	}
	need := uint64(s.status.Size)
	if reserve {
		need *= 2
	}
	if err := checkSpace(folder, need); err != nil {
		return err
	}
	for range snapshotAttempts {
		if err := s.download(ctx, folder); err != nil {
			return err
		}
		if s.revision >= s.status.Revision {
			return nil
		}
		s.file.Close()
	}
	return fmt.Errorf("etcd: the snapshot has revision %d and the cluster had %d before: a member is behind; name the others only with --etcd-servers", s.revision, s.status.Revision)
}

func (s *snapshot) readStatus(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	s.status, err = s.client.Status(ctx)
	return err
}

// download receives the snapshot and verifies etcd's hash of it.
func (s *snapshot) download(ctx context.Context, folder string) error {
	f, err := os.CreateTemp(folder, ".portico-snapshot-*") // mode 0600
	if err != nil {
		return fmt.Errorf("write snapshot: %w", err)
	}
	defer os.Remove(f.Name())
	p := cli.StartProgress(ctx, s.report, "receiving the snapshot of etcd", s.status.Size, cli.Size)
	defer p.Stop()
	if err := s.client.Snapshot(ctx, io.MultiWriter(f, p)); err != nil {
		return errors.Join(err, f.Close())
	}
	if s.sum, s.size, err = hashSnapshot(f); err != nil {
		return errors.Join(err, f.Close())
	}
	d, err := embedetcd.ReadDatabase(f.Name())
	if err != nil {
		return errors.Join(err, f.Close())
	}
	s.file, s.revision = f, d.Revision
	return nil
}

// hashSnapshot returns the hash and the size of a snapshot, after its own hash at its end, which
// is of all before, was found right.
func hashSnapshot(f *os.File) (sum []byte, size int64, err error) {
	if size, err = f.Seek(0, io.SeekEnd); err != nil || size < sha256.Size {
		return nil, 0, fmt.Errorf("the snapshot of etcd has %d bytes (%v)", size, err)
	}
	if _, err = f.Seek(0, io.SeekStart); err != nil {
		return nil, 0, err
	}
	hash, end := sha256.New(), make([]byte, sha256.Size)
	if _, err := io.CopyN(hash, f, size-sha256.Size); err != nil {
		return nil, 0, fmt.Errorf("read snapshot: %w", err)
	}
	if _, err := io.ReadFull(f, end); err != nil {
		return nil, 0, fmt.Errorf("read snapshot: %w", err)
	}
	if !bytes.Equal(hash.Sum(nil), end) {
		return nil, 0, errors.New("the snapshot of etcd does not have the hash at its end: run the command again")
	}
	hash.Write(end)
	return hash.Sum(nil), size, nil
}

// manifest describes the backup of the snapshot and files.
func (s *snapshot) manifest(ctx context.Context, files map[string][]byte) (*Manifest, error) {
	counts, err := s.client.Count(ctx, s.revision)
	if err != nil {
		return nil, err
	}
	m := &Manifest{
		FormatVersion: formatVersion, PorticoVersion: version.Version(), Time: s.time, Objects: counts,
		Etcd:  EtcdState{Revision: s.revision, ClusterID: fmt.Sprintf("%x", s.status.ClusterID), Version: s.status.Version, Prefix: s.prefix},
		Parts: []Part{{Name: snapshotName, Size: s.size, SHA256: hex.EncodeToString(s.sum)}},
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		sum := sha256.Sum256(files[name])
		m.Parts = append(m.Parts, Part{Name: name, Size: int64(len(files[name])), SHA256: hex.EncodeToString(sum[:])})
	}
	return m, nil
}

// encryptedIn returns how many values in etcd are encrypted, by provider, version and key, as in
// aescbc:v1:key1.
func encryptedIn(ctx context.Context, client *etcd.Client) (map[string]int64, error) {
	by := map[string]int64{}
	err := client.Scan(ctx, "", func(_ string, value []byte) error {
		if key := etcd.Encryption(value); key != "" {
			by[key]++
		}
		return nil
	})
	return by, err
}

// describeEncrypted returns a text of what encryptedIn returned.
func describeEncrypted(by map[string]int64) string {
	var parts []string
	for _, key := range slices.Sorted(maps.Keys(by)) {
		parts = append(parts, fmt.Sprintf("%d by %s", by[key], key))
	}
	return strings.Join(parts, ", ")
}

// openPart returns the content of a part; what is read of the snapshot is counted.
func openPart(p Part, snapshot *os.File, count io.Writer, files map[string][]byte) (io.ReadCloser, error) {
	if p.Name != snapshotName {
		return io.NopCloser(bytes.NewReader(files[p.Name])), nil
	}
	if _, err := snapshot.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	return io.NopCloser(io.TeeReader(snapshot, count)), nil
}

// spaceReserve is the space, in bytes, that is left on a disk: with less an embedded etcd on it
// rejects writes.
const spaceReserve = 80 << 20

// checkSpace returns an error if a folder has room for fewer bytes and the reserve.
func checkSpace(folder string, need uint64) error {
	need += spaceReserve
	free, err := embedetcd.FreeSpace(folder)
	if err != nil {
		return err
	}
	if free < need {
		return fmt.Errorf("%s has %s free and %s are needed: free space there, or choose another disk", folder, cli.Size(int64(free)), cli.Size(int64(need)))
	}
	return nil
}

// writeFile writes a file under a temporary name, reads it back, and renames it. Its mode is 0600.
func writeFile(file string, write func(io.Writer) error) (err error) {
	tmp := file + ".tmp"
	f, err := os.OpenFile(tmp, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("write backup: %w", err)
	}
	defer func() {
		f.Close()
		if err != nil {
			err = fmt.Errorf("write backup: %w", err)
			os.Remove(tmp)
		}
	}()
	if err := f.Chmod(0o600); err != nil {
		return err
	}
	written, found := sha256.New(), sha256.New()
	if err := write(io.MultiWriter(f, written)); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	if _, err := io.Copy(found, f); err != nil {
		return err
	}
	if !bytes.Equal(written.Sum(nil), found.Sum(nil)) {
		return fmt.Errorf("%s does not hold what was written: the disk is damaged", tmp)
	}
	if err := os.Rename(tmp, file); err != nil {
		return err
	}
	return syncFolder(filepath.Dir(file))
}

// syncFolder makes new names in a folder last.
func syncFolder(folder string) error {
	d, err := os.Open(folder)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
