package lastgood

import (
	"bytes"
	"crypto/rand"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// folderOf is a Folder in a state directory of which these documents are named.
func folderOf(t *testing.T, dir string, named map[Link]bool) *Folder {
	t.Helper()
	f, err := NewFolder(FolderConfig{StateDir: dir, Named: func() (map[Link]bool, bool) { return named, named != nil }})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *Folder) files(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir(f.dir)
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// What is named is kept for the next one, and what is not named any more leaves.
func TestFolder(t *testing.T) {
	dir := t.TempDir()
	a, b, unnamed := Link{"backend/a", "/openapi/v3/apis/a/v1?hash=1"}, Link{"backend/b", "/openapi/v3/apis/a/v1?hash=1"}, Link{"backend/a", "/openapi/v3/apis/a/v1?hash=0"}
	named := map[Link]bool{a: true, b: true}
	f := folderOf(t, dir, named)
	for _, l := range []Link{a, b, unnamed} {
		f.Keep(l, []byte("document of "+l.Owner))
	}
	if n := f.files(t); n != 0 {
		t.Errorf("%d files before it was their turn", n)
	}
	f.turn()
	if n := f.files(t); n != 2 {
		t.Errorf("%d files, want 2", n)
	}
	before, err := os.Stat(filepath.Join(f.dir, a.file()))
	if err != nil {
		t.Fatal(err)
	}
	f.Keep(a, []byte("document of "+a.Owner))
	f.turn()
	if after, err := os.Stat(filepath.Join(f.dir, a.file())); err != nil || !os.SameFile(before, after) {
		t.Errorf("what is kept was written again (%v)", err)
	}
	next := folderOf(t, dir, nil)
	next.turn()
	for _, l := range []Link{a, b} {
		if data, ok := next.Read(l); !ok || string(data) != "document of "+l.Owner {
			t.Errorf("%v: read %q", l, data)
		}
	}
	delete(named, b)
	last := folderOf(t, dir, named)
	last.turn()
	if _, ok := last.Read(b); ok || last.files(t) != 1 || last.total != before.Size() {
		t.Errorf("what is not named is there: %d files, %d bytes", last.files(t), last.total)
	}
}

// A file that was cut off, or is of something else, is none.
func TestFolderBroken(t *testing.T) {
	dir := t.TempDir()
	a := Link{"backend/a", "/openapi/v3/apis/a/v1?hash=1"}
	f := folderOf(t, dir, map[Link]bool{a: true})
	f.Keep(a, bytes.Repeat([]byte("document "), 100))
	f.turn()
	name := filepath.Join(f.dir, a.file())
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for _, broken := range [][]byte{{}, data[:len(data)-5], []byte("x")} {
		if err := os.WriteFile(name, broken, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name+".new", broken, 0o600); err != nil {
			t.Fatal(err)
		}
		f = folderOf(t, dir, map[Link]bool{a: true})
		if got, ok := f.Read(a); ok || f.files(t) != 0 || f.total != 0 {
			t.Errorf("%.10q: read %q; %d files", broken, got, f.files(t))
		}
	}
}

// Neither the folder nor what waits for it grows beyond its bound.
func TestFolderBounds(t *testing.T) {
	named := map[Link]bool{}
	f := folderOf(t, t.TempDir(), named)
	large := make([]byte, maxWaiting/2+1)
	for _, name := range []string{"a", "b", "c"} {
		l := Link{"backend/a", name}
		named[l] = true
		f.Keep(l, large)
		if f.waitingBytes > maxWaiting {
			t.Fatalf("%d bytes wait", f.waitingBytes)
		}
	}
	if n := f.files(t); n != 2 {
		t.Errorf("%d are written at once because too many wait, want 2", n)
	}
	f.turn()
	if n := f.files(t); n != 3 || f.waitingBytes != 0 {
		t.Errorf("%d files, %d bytes wait", n, f.waitingBytes)
	}
	f.Keep(Link{"backend/a", "a larger one"}, make([]byte, maxFolderDocument+1))
	if f.waitingBytes != 0 {
		t.Error("a document beyond the bound waits")
	}

	data := make([]byte, 1000) // what does not get smaller
	rand.Read(data)
	was := f.total
	f.total = maxFolder - 2500
	for _, name := range []string{"d", "e", "f"} {
		l := Link{"backend/a", name}
		named[l] = true
		f.Keep(l, data)
	}
	f.turn()
	if n := f.files(t); n != 5 || !f.full || f.total > maxFolder {
		t.Errorf("%d files, %d bytes, full %v", n, f.total, f.full)
	}
	f.total = was
	none := folderOf(t, "", named)
	none.Keep(Link{"backend/a", "a"}, data)
	if none.waitingBytes != 0 {
		t.Error("without a folder something waits for it")
	}
}

// What is not its own stays where it is, whatever it is called; what it began to
// write and did not end is removed.
func TestFolderOfOthers(t *testing.T) {
	dir := t.TempDir()
	f := folderOf(t, dir, nil)
	own := Link{"backend/a", "/openapi/v3/apis/a/v1?hash=1"}.file()
	others := []string{"my-spec.yaml", "my-spec.json.gz", "spec.new", "x" + own[1:], own + ".bak"}
	for _, name := range append(others, own, own+newSuffix) {
		if err := os.WriteFile(filepath.Join(f.dir, name), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	folder := Link{"backend/b", "/"}.file()
	if err := os.Mkdir(filepath.Join(f.dir, folder), 0o700); err != nil {
		t.Fatal(err)
	}
	next := folderOf(t, dir, map[Link]bool{})
	if next.total != 1 {
		t.Errorf("it counts %d bytes as its own", next.total)
	}
	next.turn()
	for _, name := range append(others, folder) {
		if _, err := os.Stat(filepath.Join(f.dir, name)); err != nil {
			t.Error(err)
		}
	}
	if n := next.files(t); n != len(others)+1 {
		t.Errorf("%d files are left of %d", n, len(others)+1)
	}
}

// That the folder is full is said once, though smaller documents still fit, and
// again once there was room.
func TestFolderSaysThatItIsFull(t *testing.T) {
	var said bytes.Buffer
	f, err := NewFolder(FolderConfig{StateDir: t.TempDir(), Logger: slog.New(slog.NewTextHandler(&said, nil))})
	if err != nil {
		t.Fatal(err)
	}
	f.sizes["x"], f.total = 10, maxFolder-10
	for range 3 {
		if f.room(11) || !f.room(10) {
			t.Error("the bound is another")
		}
	}
	if n := strings.Count(said.String(), "is full"); n != 1 {
		t.Errorf("said %d times", n)
	}
	f.remove("x")
	if !f.room(11) || f.room(21) || strings.Count(said.String(), "is full") != 2 {
		t.Errorf("once there was room: %s", &said)
	}
}

// A gateway that is out of descriptors cannot read what it has, and has it still.
func TestFolderKeepsWhatItCannotOpen(t *testing.T) {
	dir := t.TempDir()
	a := Link{"backend/a", "/openapi/v3/apis/a/v1?hash=1"}
	f := folderOf(t, dir, map[Link]bool{a: true})
	f.Keep(a, []byte("document"))
	f.turn()
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	none := limit
	none.Cur = 1
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &none); err != nil {
		t.Fatal(err)
	}
	_, ok := f.Read(a)
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if ok {
		t.Error("it was read")
	}
	if data, ok := f.Read(a); !ok || string(data) != "document" || f.total == 0 {
		t.Errorf("later it is %q", data)
	}
}

// What could not be written is when that works again.
func TestFolderWritesLater(t *testing.T) {
	a := Link{"backend/a", "/openapi/v3/apis/a/v1?hash=1"}
	f := folderOf(t, t.TempDir(), map[Link]bool{a: true})
	if err := os.Remove(f.dir); err != nil {
		t.Fatal(err)
	}
	f.Keep(a, []byte("document"))
	f.turn()
	if err := os.Mkdir(f.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	f.turn()
	if data, ok := f.Read(a); !ok || string(data) != "document" || f.waitingBytes != 0 {
		t.Errorf("later it is %q, %d bytes wait", data, f.waitingBytes)
	}
}
