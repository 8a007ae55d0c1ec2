package handlers

import (
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico/resource"
	"portico/resource/rest"
)

// Watchers of tables share the row of an event with those who want the same of
// it, and for a second: its cells may hold ages.
func TestTableFramesAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, k := New(Config{}), secrets()
		first := resource.Event{Type: resource.Added, Object: stored(t, k, secret("a"), 1)}
		e := resource.Event{Type: resource.Added, Object: stored(t, k, secret("b"), 2)}
		sent := map[*byte]bool{}
		watch := func(include metav1.IncludeObjectPolicy) {
			t.Helper()
			s := newStream(api, &resource.Action{Version: "v1"}, &rest.Resource{Kind: k}, format{transform: asTable, metaVersion: "v1"}, resource.WatchOptions{Since: 1})
			s.tables = &tables{api: api, kind: k, version: "v1", metaVersion: "v1", include: include}
			var last []byte
			s.send = func(frames []byte, _ []int) error { last = frames; return nil }
			for _, event := range []resource.Event{first, e} { // the first has the columns
				if err := s.write([]resource.Event{event}); err != nil {
					t.Fatal(err)
				}
			}
			sent[unsafe.SliceData(last)] = true
		}
		expect := func(n int, when string) {
			t.Helper()
			if len(sent) != n {
				t.Errorf("%s: %d different frames, want %d", when, len(sent), n)
			}
		}
		for range 10 {
			watch(metav1.IncludeMetadata)
		}
		expect(1, "all the same")
		watch(metav1.IncludeObject)
		expect(2, "with the object")
		time.Sleep(time.Second)
		watch(metav1.IncludeMetadata)
		expect(3, "a second later")
	})
}
