package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"portico/cmd/e2e"
	"portico/cmd/internal/testtools"
	"portico/internal/testing/await"
)

// An etcd that dies takes nothing with it: the gateway serves what it has in memory,
// and writes pass again once etcd was started again.
func TestKilledEtcd(t *testing.T) {
	t.Parallel()
	up := e2e.Install(t, t.TempDir())
	e2e.Create(t, up, "before")
	client := e2e.HTTPClient(t, up.Config(t))
	gateway, etcd := up.Child(t, "gateway"), up.Child(t, "etcd")
	if err := syscall.Kill(etcd, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/apis", "/api/v1", "/livez?exclude=etcd", "/api/v1/namespaces/default/configmaps/before?resourceVersion=0"} {
		if code, body := e2e.Get(t, client, up.Endpoint+path, ""); code != http.StatusOK {
			t.Errorf("%s without etcd: %d %s", path, code, body)
		}
	}
	if err := up.Await("etcd is ready again"); err != nil {
		t.Fatal(err)
	}
	e2e.Eventually(t, "a write passes", func() error {
		code, answer := up.Do(t, http.MethodPost, "/api/v1/namespaces/default/configmaps", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"after"}}`)
		if code != http.StatusCreated && code != http.StatusConflict {
			return fmt.Errorf("%d %s", code, answer)
		}
		return nil
	})
	e2e.Expect(t, up, "before")
	if now := up.Child(t, "gateway"); now != gateway {
		t.Errorf("the gateway was started again: process %d, %d before", now, gateway)
	}
}

// damages are changes of a data folder of etcd, and what the error of the start says.
var damages = map[string]struct {
	damage func(t *testing.T, etcd string)
	want   string
}{
	"short database":    {truncate("member/snap/db", 100), "read database DB: invalid database; RESTORE"},
	"half a database":   {truncate("member/snap/db", 20<<10), "RESTORE"},
	"text as database":  {overwrite("member/snap/db", 0, strings.Repeat("x", 1<<20)), "read database DB: invalid database; RESTORE"},
	"lost pages":        {overwrite("member/snap/db", 8<<10, strings.Repeat("x", 100<<10)), "RESTORE"},
	"no database":       {remove("member/snap/db"), "which continues entry 1; RESTORE"},
	"empty database":    {truncate("member/snap/db", 0), "which continues entry 1; RESTORE"},
	"short log":         {truncate("member/wal/*.wal", 2000), "a part of the log is lost; RESTORE"},
	"log of zeros":      {overwrite("member/wal/*.wal", 2000, strings.Repeat("\x00", 1<<20)), "RESTORE"},
	"text in the log":   {overwrite("member/wal/*.wal", 1500, strings.Repeat("x", 200)), "RESTORE"},
	"empty log":         {truncate("member/wal/*.wal", 0), "a part of the log is lost; RESTORE"},
	"no log":            {remove("member/wal"), "a part of the log is lost; RESTORE"},
	"newer etcd":        {store("meta", "storageVersion", "3.99.0"), "it was written by etcd 3.99 and this is etcd 3.7: start a portico as new as the one that wrote it"},
	"member of three":   {store("members", "00000000000000aa", `{"id":170,"name":"other","peerURLs":["http://10.0.0.1:2380"]}`), "it is of a cluster of 2 members (other, portico) and the embedded etcd has one; RESTORE"},
	"unwritable folder": {func(t *testing.T, etcd string) { link(t, etcd, "/proc/self") }, "WRITABLE"},
}

// files returns the files that match a pattern in a folder.
func files(t *testing.T, folder, pattern string) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(folder, pattern))
	if err != nil || len(names) == 0 {
		t.Fatalf("no %s in %s: %v", pattern, folder, err)
	}
	return names
}

func truncate(pattern string, size int64) func(*testing.T, string) {
	return func(t *testing.T, etcd string) {
		for _, name := range files(t, etcd, pattern) {
			if err := os.Truncate(name, size); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func overwrite(pattern string, at int64, text string) func(*testing.T, string) {
	return func(t *testing.T, etcd string) {
		for _, name := range files(t, etcd, pattern) {
			f, err := os.OpenFile(name, os.O_WRONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := f.WriteAt([]byte(text), at); err != nil {
				t.Fatal(err)
			}
			f.Close()
		}
	}
}

func remove(name string) func(*testing.T, string) {
	return func(t *testing.T, etcd string) {
		if err := os.RemoveAll(filepath.Join(etcd, name)); err != nil {
			t.Fatal(err)
		}
	}
}

// link replaces a folder by a link.
func link(t *testing.T, folder, to string) {
	remove("")(t, folder)
	if err := os.Symlink(to, folder); err != nil {
		t.Fatal(err)
	}
}

// store puts a value into etcd's database.
func store(bucket, key, value string) func(*testing.T, string) {
	return func(t *testing.T, etcd string) {
		db, err := bbolt.Open(filepath.Join(etcd, "member", "snap", "db"), 0o600, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		if err := db.Update(func(tx *bbolt.Tx) error { return tx.Bucket([]byte(bucket)).Put([]byte(key), []byte(value)) }); err != nil {
			t.Fatal(err)
		}
	}
}

// copyData copies the keys and the data of etcd.
func copyData(t *testing.T, from, to string) {
	t.Helper()
	for _, folder := range []string{"etcd", "pki"} {
		if err := os.CopyFS(filepath.Join(to, folder), os.DirFS(filepath.Join(from, folder))); err != nil {
			t.Fatal(err)
		}
	}
}

// Damaged data of etcd ends the start with one sentence, which names the folder and the remedy, and
// without a stack. A torn end of the log is repaired, and a line says so. What the database has is restored without
// the log.
func TestDamagedEtcdData(t *testing.T) {
	t.Parallel()
	e2e.NeedsInstallation(t)
	work := t.TempDir()
	dir := filepath.Join(work, "first")
	up, err := e2e.Launch(dir)
	if err != nil {
		t.Fatal(err)
	}
	e2e.Create(t, up, "kept")
	if err := up.Stop(); err != nil {
		t.Fatal(err)
	}
	broken, restored := filepath.Join(work, "broken"), filepath.Join(work, "restored")
	copyData(t, dir, broken)
	remove("member/wal")(t, filepath.Join(broken, "etcd"))
	program := e2e.Program(t, testtools.Portico)
	if out, err := exec.Command(program, "restore", "--from-data-dir="+broken, "--data-dir="+restored).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	// The log of an etcd that was restored does not begin with the first entry, so that etcd cannot
	// make the database anew from it.
	if up, err = e2e.Launch(restored); err != nil {
		t.Fatal(err)
	}
	e2e.Expect(t, up, "kept")
	if err := up.Stop(); err != nil {
		t.Fatal(err)
	}
	for name, tc := range damages {
		damaged := t.TempDir()
		copyData(t, restored, damaged)
		tc.damage(t, filepath.Join(damaged, "etcd"))
		refused(t, name, program, damaged, tc.want)
	}
	tearLog(t, filepath.Join(dir, "etcd"))
	torn := e2e.Install(t, dir)
	e2e.Expect(t, torn, "kept")
	if out := torn.Output.String(); strings.Count(out, "the write-ahead log ended within an entry, which was cut off") != 1 || !strings.Contains(out, ".wal.broken\n") {
		t.Errorf("up does not say in a line what etcd cut off:\n%s", out)
	}
}

// refused runs `portico up` on damaged data.
func refused(t *testing.T, name, program, dir, want string) {
	t.Helper()
	etcd := filepath.Join(dir, "etcd")
	want = strings.NewReplacer("DB", filepath.Join(etcd, "member", "snap", "db"),
		"; RESTORE", fmt.Sprintf(" (its log: %s); RESTORE", filepath.Join(dir, "logs", "etcd.log"))).Replace(want)
	want = strings.NewReplacer("RESTORE", fmt.Sprintf("the data in %s is damaged: restore a backup (portico restore FILE --data-dir=NEW), or what its database has (portico restore --from-data-dir=%s --data-dir=NEW)", etcd, dir),
		"WRITABLE", fmt.Sprintf("make %s writable for this user, or choose another --data-dir", etcd)).Replace(want)
	ctx, cancel := context.WithTimeout(t.Context(), await.Patience())
	defer cancel()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, program, "up", "--listen=127.0.0.1:0", "--data-dir="+dir)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	start := time.Now()
	if err := cmd.Run(); err == nil || ctx.Err() != nil {
		t.Fatalf("%s: up ran on damaged data:\n%s%s", name, &stdout, &stderr)
	}
	t.Logf("%s, %v: %s", name, time.Since(start).Round(time.Millisecond), &stderr)
	lines := strings.Split(strings.TrimSpace(stderr.String()), "\n")
	last := lines[len(lines)-1]
	if !strings.HasPrefix(last, "portico: start etcd: ") || !strings.Contains(last, want) {
		t.Errorf("%s: the last line is %q, not %q", name, last, want)
	}
	if len(lines) > 1 || strings.Contains(stdout.String(), "etcd ended") || strings.Contains(stderr.String()+stdout.String(), "goroutine") {
		t.Errorf("%s: more than one line:\n%s%s", name, &stdout, &stderr)
	}
}

// tearLog writes the beginning of a record, as a machine does that loses power, to the end of the
// write-ahead log: the length of a record, and less than that.
func tearLog(t *testing.T, etcd string) {
	t.Helper()
	names := files(t, etcd, "member/wal/*.wal")
	name := names[len(names)-1]
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	end := (len(bytes.TrimRight(data, "\x00")) + 7) &^ 7 // records are aligned
	record := append(binary.LittleEndian.AppendUint64(nil, 4096), strings.Repeat("x", 100)...)
	copy(data[end:], record)
	if err := os.WriteFile(name, data, 0o600); err != nil {
		t.Fatal(err)
	}
}
