package rest

import (
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"portico/resource"
	"portico/resource/fairshare"
)

// Bounds, in bytes, of the memory that all bodies of a process take together, beyond
// which requests are refused (429). They hold besides the bound on requests at work.
const (
	// decodeMemory is for bodies being decoded, until their requests are answered,
	// and for the stored objects that they change: estimates (bodylimit.Size.Memory).
	decodeMemory = 160 << 20
	// readMemory is for bodies being read. It is apart, so that a sender that is slow
	// keeps nobody from decoding.
	readMemory = 64 << 20
	// A third of each is there once more, for users without limits: when others
	// take what they can, an administrator's requests still get through.
	reservedPart = 3
	// freeMemory is how much of decodeMemory a request has without asking: ordinary
	// bodies, with some hundred values, are never refused. What requests at work take
	// so is bounded by their number.
	freeMemory = 512 << 10
)

// memoryBudget is memory that users share. Safe for concurrent use.
type memoryBudget struct {
	shared, reserved *fairshare.Limit
}

func newMemoryBudget(size int) *memoryBudget {
	return &memoryBudget{fairshare.New(size, 0), fairshare.New(size/reservedPart, 0)}
}

// memoryHold is what one request has of a budget. The zero value, and nil, hold
// nothing and refuse nothing. It is used by one goroutine at a time.
type memoryHold struct {
	budget           *memoryBudget
	user             *resource.User
	shared, reserved int
}

func (b *memoryBudget) hold(user *resource.User) memoryHold {
	if user == nil {
		user = &resource.User{}
	}
	return memoryHold{budget: b, user: user}
}

// errNoMemory is the 429 for a body that would take more memory than there is.
func errNoMemory() error {
	return apierrors.NewTooManyRequests("the bodies of other requests take all memory there is for them, please try again later", 1)
}

// grow takes size more bytes. Error: errNoMemory, which takes nothing.
func (h *memoryHold) grow(size int) error {
	switch {
	case h == nil || h.budget == nil || size <= 0:
	case h.budget.shared.TakeN(h.user.Name, size):
		h.shared += size
	case h.user.Unlimited() && h.budget.reserved.TakeN("", size):
		h.reserved += size
	default:
		return errNoMemory()
	}
	return nil
}

// release gives everything back.
func (h *memoryHold) release() {
	if h.shared > 0 {
		h.budget.shared.ReleaseN(h.user.Name, h.shared)
	}
	if h.reserved > 0 {
		h.budget.reserved.ReleaseN("", h.reserved)
	}
	h.shared, h.reserved = 0, 0
}
