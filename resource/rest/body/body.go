// Package body bounds the memory that request bodies take and reads them.
//
// Runs in: gateway, core, crd.
package body

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"portico/resource"
	"portico/resource/fairshare"
)

// Bounds, in bytes, of the memory of all bodies of a process, beyond which requests are
// rejected (429). The number of requests in flight is bounded, too.
const (
	// DecodeMemory is for bodies being decoded, until their requests are answered, and for
	// the stored objects that they change: estimates (bodylimit.Size.Memory).
	DecodeMemory = 160 << 20
	// ReadMemory is for bodies that have been read, until their requests are answered. It is
	// separate, so that slow senders do not block decoding.
	ReadMemory = 64 << 20
	// AwaitMemory is for those that a client is sending (Budget.Await), which may be ended.
	AwaitMemory = 32 << 20
	// FreeMemory is how much of DecodeMemory each request has without reserving it: ordinary
	// bodies, with some hundred values, are never rejected.
	FreeMemory = 512 << 10
	// reservedPart of each budget is added for users without limits: an administrator's
	// requests are served while other users take everything.
	reservedPart = 3
)

// Budget is memory that users share. Safe for concurrent use.
type Budget struct {
	shared, reserved, awaited *fairshare.Limit
}

// NewBudget returns a budget of size bytes, and AwaitMemory more.
func NewBudget(size int) *Budget {
	return &Budget{fairshare.New(size, 0), fairshare.New(size/reservedPart, 0), fairshare.New(AwaitMemory, 0)}
}

// Hold is the memory of one request in a budget. The zero value and nil have none and reject
// nothing. Not safe for concurrent use.
type Hold struct {
	budget           *Budget
	user             string
	unlimited        bool
	shared, reserved int
	// waiter has the memory until the body has arrived, awaited bytes. It is nil if the body is not awaited.
	waiter  *fairshare.Waiter
	awaited int
}

// Hold returns an empty Hold of a request. Users without limits, and requests without an Action, have all
// memory that is free instead of a share.
func (b *Budget) Hold(act *resource.Action) Hold {
	switch {
	case act == nil:
		return Hold{budget: b}
	case act.User != nil && act.User.Unlimited():
		return Hold{budget: b, unlimited: true}
	}
	return Hold{budget: b, user: act.LimitKey()}
}

// Await is Hold for a body that a client is to send. While Read reads it, the body is in AwaitMemory,
// and w may be ended in favour of another one.
func (b *Budget) Await(act *resource.Action, w *fairshare.Waiter) Hold {
	h := b.Hold(act)
	h.waiter = w
	return h
}

// errNoMemory is the 429 for a body that needs more memory than is left.
func errNoMemory() error {
	return apierrors.NewTooManyRequests("the memory for request bodies is in use, please try again later", 1)
}

// Grow reserves size more bytes. If there are not as many it reserves none and returns a 429.
func (h *Hold) Grow(size int) error {
	switch {
	case h == nil || h.budget == nil || size <= 0:
	case h.waiter != nil:
		if !h.budget.awaited.Enter(h.waiter, size) {
			return errNoMemory()
		}
		h.awaited += size
	case h.budget.shared.TakeN(h.user, size):
		h.shared += size
	case h.unlimited && h.budget.reserved.TakeN("", size):
		h.reserved += size
	default:
		return errNoMemory()
	}
	return nil
}

// arrived ends the waiting of a Hold of Await. If there is no memory for the body, it returns a 429.
func (h *Hold) arrived() error {
	if h == nil || h.waiter == nil {
		return nil
	}
	h.budget.awaited.Leave(h.waiter)
	h.waiter = nil
	return h.Grow(h.awaited)
}

// Release returns everything to the budget.
func (h *Hold) Release() {
	if h.waiter != nil {
		h.budget.awaited.Leave(h.waiter)
		h.waiter = nil
	}
	if h.shared > 0 {
		h.budget.shared.ReleaseN(h.user, h.shared)
	}
	if h.reserved > 0 {
		h.budget.reserved.ReleaseN("", h.reserved)
	}
	h.shared, h.reserved = 0, 0
}

// InUse returns how many bytes are reserved.
func (b *Budget) InUse() int { return b.shared.InUse() + b.reserved.InUse() + b.awaited.InUse() }

// MaxSize is the largest request body in bytes (docs/wire.md 0.2).
const MaxSize = 3 << 20

// drainSize is how many bytes of a rejected body are read and dropped: if the connection is
// closed while a client such as a reverse proxy sends, it often loses the response.
const drainSize = 32 << 20

// Read reads the whole body of a request, in the memory of held. Errors: a 413 for more than
// MaxSize, before anything is read if the Content-Length says so; a 429 if held has no memory
// left; the error of reading it, if it is a Status; a 400 if the client ends before the body does. The first Eager bytes
// need no memory of held.
func Read(r *http.Request, held *Hold) ([]byte, error) {
	if r.Body == nil {
		return nil, nil
	}
	if m, ok := r.Body.(memory); ok {
		return m.data, nil
	}
	if r.ContentLength > MaxSize {
		return nil, refuse(r, tooLarge(MaxSize))
	}
	data, err := ReadAll(io.LimitReader(r.Body, MaxSize+1), r.ContentLength, held.Grow)
	if full := held.arrived(); err == nil {
		err = full
	}
	var limited *http.MaxBytesError
	var status apierrors.APIStatus
	switch {
	case errors.As(err, &limited):
		return nil, tooLarge(limited.Limit)
	case errors.As(err, &status):
		return nil, refuse(r, err)
	case err != nil:
		return nil, apierrors.NewBadRequest(fmt.Sprintf("read request body: %v", err))
	case len(data) > MaxSize:
		return nil, refuse(r, tooLarge(MaxSize))
	}
	return data, nil
}

// memory is a body that Put put in place.
type memory struct {
	*bytes.Reader
	data []byte
}

// Close implements io.Closer.
func (memory) Close() error { return nil }

// MaxSmall is how large a body of known length may be, in bytes, to be read before its request is sent to another
// server, so that a slow client holds nothing there, and to be sent to several endpoints one after the other.
const MaxSmall = 64 << 10

// Small reports whether a request has such a body. A client that sent Expect waits to be asked for the body by the
// server (RFC 9110, 10.1.1).
func Small(r *http.Request) bool {
	return r.ContentLength > 0 && r.ContentLength <= MaxSmall && r.Header["Expect"] == nil
}

// Put makes data, which was read from the body of a request, the body: GetBody returns it any number
// of times, and Read returns data itself.
func Put(r *http.Request, data []byte) {
	r.ContentLength, r.TransferEncoding = int64(len(data)), nil
	if r.Body = http.NoBody; len(data) > 0 {
		r.GetBody = func() (io.ReadCloser, error) { return memory{bytes.NewReader(data), data}, nil }
		r.Body, _ = r.GetBody() // never fails
	}
}

// Replace makes b the body of a request and removes GetBody, which returns the body before it.
func Replace(r *http.Request, b io.ReadCloser) { r.Body, r.GetBody = b, nil }

// refuse drops the rest of the body and returns err.
func refuse(r *http.Request, err error) error {
	_, _ = io.CopyN(io.Discard, r.Body, drainSize)
	return err
}

func tooLarge(limit int64) error {
	return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("limit is %d", limit))
}

// Eager is how many bytes are allocated for a body by its Content-Length; more are reserved
// and allocated as they arrive.
const Eager = 64 << 10

// ReadAll reads r to its end. length is its Content-Length in bytes, -1 if unknown. Beyond
// Eager it calls grow to reserve memory, in bytes, and returns its error.
func ReadAll(r io.Reader, length int64, grow func(size int) error) ([]byte, error) {
	var data []byte
	if length < 0 {
		data = make([]byte, 0, bytesOfUnknown)
	} else {
		// One byte more, so that the end is found without growing.
		data = make([]byte, 0, min(length, Eager)+1)
	}
	for {
		n, err := r.Read(data[len(data):cap(data)])
		data = data[:len(data)+n]
		switch {
		case errors.Is(err, io.EOF):
			return data, nil
		case err != nil:
			return data, err
		case len(data) < cap(data):
			continue
		}
		more := len(data)
		if length >= Eager {
			more = max(bytesOfUnknown, min(more, int(length)+1-len(data)))
		}
		if len(data) >= Eager {
			if err := grow(more); err != nil {
				return data, err
			}
		}
		data = slices.Grow(data, more)
	}
}

// bytesOfUnknown is the first allocation for a body of unknown length, in bytes.
const bytesOfUnknown = 512
