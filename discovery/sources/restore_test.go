package sources

import (
	"testing"

	"portico/discovery"
)

// Restore sets GroupVersions until the server has answered.
func TestRestore(t *testing.T) {
	b := newBackend(t, described("apps", "v1", "deployments"))
	s := b.source()
	old := []discovery.GroupVersion{described("old.example.com", "v1", "things")}
	if !s.Restore([]discovery.GroupVersion{}) || !s.Restore(old) {
		t.Error("not restored before the server spoke")
	}
	same(t, s, "old.example.com/v1:things")
	if s.Fetched() {
		t.Error("what was restored passes for the server's word")
	}
	b.answer("/apis", 503, "text/plain", "later")
	if err := s.Check(t.Context()); err == nil || s.Fetched() {
		t.Errorf("a failed check: %v, heard %v", err, s.Fetched())
	}
	same(t, s, "old.example.com/v1:things")
	delete(b.override, "/apis")
	check(t, s, true)
	same(t, s, "apps/v1:deployments")
	if !s.Fetched() || s.Restore(old) {
		t.Error("what the server said was replaced")
	}
	same(t, s, "apps/v1:deployments")
}
