package handlers

import (
	"hash/maphash"
	"sync"
	"weak"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico/resource"
	"portico/resource/rest"
)

const (
	// frameSlots is how many of the frames made last can be found again.
	frameSlots = 128
	// keptFrame is the largest frame, in bytes, that the table keeps in memory: together
	// they are bounded by frameSlots times that. A larger one is shared while it is sent.
	keptFrame = 32 << 10
)

// frameKey identifies the frame of an event. Objects are immutable and shared
// by all watchers, so their identity stands for their content.
type frameKey struct {
	object *resource.Object
	kind   *rest.Kind
	form   form
	event  string
	framed bool
	packed bool
	table  tableKey // zero unless Table
}

// tableKey identifies a form of table rows. Cells may hold ages, which change every second.
type tableKey struct {
	metaVersion string
	include     metav1.IncludeObjectPolicy
	second      int64 // of Unix time
}

// frame is the encoding of one event for all watchers of one form. The first watcher builds
// it; the others wait.
type frame struct {
	key  frameKey
	once sync.Once
	data []byte
	err  error
}

// frameTable finds the frames that were made last, so that an event is encoded
// and framed once for all watchers of a form. Each frame has one slot that it
// can be in; the next frame with that slot takes its place.
type frameTable struct {
	seed  maphash.Seed
	mu    sync.Mutex
	slots [frameSlots]frameSlot
}

// frameSlot holds a small frame, or knows of a large one.
type frameSlot struct {
	kept  *frame
	known weak.Pointer[frame]
}

func newFrameTable() *frameTable { return &frameTable{seed: maphash.MakeSeed()} }

func (t *frameTable) slot(key frameKey) *frameSlot {
	return &t.slots[maphash.Comparable(t.seed, key)%frameSlots]
}

// get returns the frame of that key, which may have yet to be made. Its data
// must not be changed.
func (t *frameTable) get(key frameKey, encode func() ([]byte, error)) *frame {
	t.mu.Lock()
	slot := t.slot(key)
	f := slot.kept
	if f == nil || f.key != key {
		f = slot.known.Value()
	}
	if f == nil || f.key != key {
		f = &frame{key: key, err: errFormNotMade}
		slot.kept = f
	}
	t.mu.Unlock()

	f.once.Do(func() {
		defer func() { // also when encode panics
			if f.err != nil || len(f.data) > keptFrame {
				t.release(f)
			}
		}()
		f.data, f.err = encode()
	})
	return f
}

// release removes a frame from the table. Watchers that have it may still send it.
func (t *frameTable) release(f *frame) {
	t.mu.Lock()
	defer t.mu.Unlock()
	slot := t.slot(f.key)
	if slot.kept != f {
		return
	}
	*slot = frameSlot{}
	if f.err == nil {
		slot.known = weak.Make(f)
	}
}
