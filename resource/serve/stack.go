package serve

// stackRoom is what the filters, the router and a handler take of a stack, and
// a proxy's with a request on its way to a backend.
const stackRoom = 12 << 10

// growStack makes room on the goroutine's stack for what a request will need.
// HTTP/2 serves each request on a new goroutine, whose small stack would
// otherwise be copied again and again, deeper and deeper, until it fits: 10 % of
// the gateway's time when it was measured.
//
//go:noinline
func growStack() byte {
	var room [stackRoom]byte
	return room[stackSlot()]
}

// stackSlot keeps the compiler from seeing that nothing is in the room.
//
//go:noinline
func stackSlot() int { return stackRoom - 1 }
