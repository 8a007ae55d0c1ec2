package body

import (
	"fmt"
	"testing"

	"portico/resource"
	"portico/resource/fairshare"
)

// Beside fifty users whose bodies do not end, one more gets memory: bodies of those that hold most are
// ended. What has arrived is in the other memory until it is released, of which it gets some as well.
func TestMemoryOfAwaitedBodies(t *testing.T) {
	t.Parallel()
	const piece, part = 64 << 10, AwaitMemory / 51
	b, ended := NewBudget(ReadMemory), 0
	await := func(user string, end func()) *Hold {
		act := &resource.Action{User: &resource.User{Name: user}}
		h := b.Await(act, &fairshare.Waiter{User: act.LimitKey(), End: end})
		return &h
	}
	var held []*Hold
	hostile := func(n int) *Hold {
		h := await(fmt.Sprint("hostile", n%50), func() { ended++ })
		for range 40 {
			if h.Grow(piece) != nil {
				break
			}
		}
		return h
	}
	for n := range 5000 { // many have arrived, others are awaited
		if h := hostile(n); h.arrived() != nil {
			h.Release()
		} else {
			held = append(held, h)
		}
	}
	for n := range 500 {
		held = append(held, hostile(n))
	}
	for b.awaited.InUse() < AwaitMemory {
		held = append(held, hostile(0))
	}
	before := ended
	polite := await("polite", func() { t.Error("the body of the polite user is ended") })
	for n := range part / piece {
		if err := polite.Grow(piece); err != nil {
			t.Fatalf("after %d bytes: %v", n*piece, err)
		}
	}
	if b.awaited.InUse() > AwaitMemory || ended == before {
		t.Errorf("%d bytes are in use, %d bodies were ended for it", b.awaited.InUse(), ended-before)
	}
	polite.Release()
	polite = await("polite", func() { t.Error("the body of the polite user is ended") })
	if err := polite.Grow(4 * piece); err != nil || polite.arrived() != nil {
		t.Errorf("no memory for a body of the polite user: %v", err)
	}
	for _, h := range append(held, polite) {
		h.Release()
	}
	if n := b.InUse(); n != 0 {
		t.Errorf("%d bytes are in use in the end", n)
	}
}
