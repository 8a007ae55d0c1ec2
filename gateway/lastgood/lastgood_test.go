package lastgood

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"portico/discovery"
	"portico/resource"
	"portico/resource/etcd"
	"portico/resource/rest"
)

func TestUnpackIsBounded(t *testing.T) {
	large, err := Pack(strings.Repeat("x", maxUnpacked))
	if err != nil {
		t.Fatal(err)
	}
	var into string
	if err := Unpack(large, &into); err == nil || !strings.Contains(err.Error(), "larger") {
		t.Errorf("%d bytes unpack to more than the bound: %v", len(large), err)
	}
}

func TestLocalCopy(t *testing.T) {
	c, err := newLocalCopy(filepath.Join(t.TempDir(), "state"))
	if err != nil {
		t.Fatal(err)
	}
	if docs, err := c.read(); docs != nil || err != nil {
		t.Errorf("without a file: %v, %v", docs, err)
	}
	want := map[string][]byte{"backend/core": {1, 2, 3}, "core/services": {4}}
	for range 2 { // a second one replaces the first
		if err := c.write(want); err != nil {
			t.Fatal(err)
		}
	}
	docs, err := c.read()
	if err != nil || !maps.EqualFunc(docs, want, bytes.Equal) {
		t.Errorf("read %v, %v", docs, err)
	}
	if info, err := os.Stat(c.file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file: %v, %v", info, err)
	}
	whole, err := os.ReadFile(c.file)
	if err != nil {
		t.Fatal(err)
	}
	for _, broken := range [][]byte{{}, whole[:len(whole)-1], append([]byte("x"), whole...), bytes.Replace(whole, []byte("core/"), []byte("cure/"), 1)} {
		if err := os.WriteFile(c.file, broken, 0o600); err != nil {
			t.Fatal(err)
		}
		if docs, err := c.read(); err == nil || docs != nil {
			t.Errorf("%.60q: read %v", broken, docs)
		}
	}
	if err := c.write(map[string][]byte{"x": make([]byte, maxCopy)}); err == nil {
		t.Error("a copy beyond the bound was written")
	}
}

// Who is elected takes over what others have kept since it started, unless it has
// heard something itself.
func TestCatchUp(t *testing.T) {
	var said []Document
	broken := errors.New("broken")
	restored := map[string]string{}
	k, err := New(Config{
		Now: func(context.Context) []Document { return said },
		Restore: func(name string, data []byte) error {
			if string(data) == "broken" {
				return broken
			}
			restored[name] = string(data)
			return nil
		},
		Gone: func() func(string) bool { return func(string) bool { return false } },
	})
	if err != nil {
		t.Fatal(err)
	}
	old := []byte("old")
	k.Restore(map[string][]byte{"newer": old, "heard": old, "broken": old, "same": old, "unread": old, "mine": old})
	said = []Document{{Name: "heard", State: 1, Value: func() any { return "x" }}}
	clear(restored)
	heard := k.Documents(t.Context())["heard"]
	k.catchUp(t.Context(), map[string]etcd.Document{
		"newer": {Data: []byte("new")}, "heard": {Data: []byte("new")}, "broken": {Data: []byte("broken")},
		"same": {Data: old}, "unread": {}, "unknown": {Data: []byte("new")},
	})
	docs := k.Documents(t.Context())
	for name, want := range map[string]string{
		"newer": "new", "heard": string(heard), "broken": "old", "same": "old", "unread": "old", "unknown": "new", "mine": "old",
	} {
		if string(docs[name]) != want {
			t.Errorf("%s: %q is kept, want %q", name, docs[name], want)
		}
	}
	if want := map[string]string{"newer": "new", "unknown": "new"}; !maps.Equal(restored, want) {
		t.Errorf("restored %v, want %v", restored, want)
	}
}

func FuzzParseCopy(f *testing.F) {
	good, err := formatCopy(map[string][]byte{"backend/core": {1}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte(copyMagic))
	f.Add([]byte(copyMagic + "\n{}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		docs, err := parseCopy(data)
		if err != nil {
			return
		}
		again, err := formatCopy(docs)
		if err != nil {
			t.Fatal(err)
		}
		if reread, err := parseCopy(again); err != nil || len(reread) != len(docs) {
			t.Fatalf("%v, then %v (%v)", docs, reread, err)
		}
	})
}

func FuzzUnpackVersions(f *testing.F) {
	for _, v := range []any{[]Version{{Version: "v1"}}, Versions(discovery.FromKinds([]*rest.Kind{{Info: resource.Info{Group: "a.example.com", Versions: []string{"v1"}, Resource: "widgets", Kind: "Widget"}}})), "x"} {
		data, err := Pack(v)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		gvs, err := UnpackVersions(data)
		if err != nil {
			return
		}
		if _, err := discovery.Build(gvs, ""); err != nil {
			t.Fatalf("discovery of what was restored: %v", err)
		}
	})
}
