package embedetcd

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The file of a member that was stopped has the last value of each key, and none of a key that was deleted; a key that was
// created again counts. A damaged file is an error.
func TestReadKeys(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, client := start(t, dir, shortDir(t))
	for _, step := range []string{"put a 1", "put b 1", "put a 2", "delete b", "put c 1", "delete c", "put c 2", "put d "} {
		fields := strings.SplitN(step, " ", 3)
		var err error
		if fields[0] == "put" {
			_, err = client.Put(t.Context(), fields[1], fields[2])
		} else {
			_, err = client.Delete(t.Context(), fields[1])
		}
		if err != nil {
			t.Fatal(step, err)
		}
	}
	client.Close()
	s.Close()
	got := map[string]string{}
	err := ReadKeys(DatabaseFile(dir), func(key string, value []byte) { got[key] = string(value) })
	if want := map[string]string{"a": "2", "c": "2", "d": ""}; err != nil || !maps.Equal(got, want) {
		t.Errorf("got %v (%v), want %v", got, err, want)
	}
	file := filepath.Join(t.TempDir(), "db")
	if err := os.WriteFile(file, []byte(strings.Repeat("x", 40_000)), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := ReadKeys(file, func(string, []byte) {}); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("a damaged file: %v", err)
	}
}
