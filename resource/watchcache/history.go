package watchcache

import "sort"

// history is a ring of changes. Changes have numbers that count up and never
// come again. The zero history is empty.
type history struct {
	ring  []*change // its length is 0 or a power of two
	first int64     // number of the oldest change kept
	n     int
	cost  int64
	// told is what cost was when somebody asked last.
	told int64
}

// next returns the number that the next change will have.
func (h *history) next() int64 { return h.first + int64(h.n) }

// get returns the change of a number that is kept.
func (h *history) get(number int64) *change { return h.ring[number&int64(len(h.ring)-1)] }

// push adds a change and returns its number.
func (h *history) push(c *change) int64 {
	if h.n == len(h.ring) {
		h.resize(max(16, 2*len(h.ring)))
	}
	number := h.next()
	h.ring[number&int64(len(h.ring)-1)] = c
	h.n++
	h.cost += c.cost()
	return number
}

// pop forgets the oldest change and returns it.
func (h *history) pop() *change {
	at := h.first & int64(len(h.ring)-1)
	c := h.ring[at]
	h.ring[at] = nil
	h.first++
	h.n--
	h.cost -= c.cost()
	return c
}

// clear forgets everything; numbers go on.
func (h *history) clear() {
	*h = history{first: h.next(), told: h.told}
}

// shrink gives memory back that bursts left behind.
func (h *history) shrink() {
	size := len(h.ring)
	for size > 16 && h.n <= size/4 {
		size /= 2
	}
	if size < len(h.ring) {
		h.resize(size)
	}
}

func (h *history) resize(size int) {
	ring := make([]*change, size)
	for number := h.first; number < h.next(); number++ {
		ring[number&int64(size-1)] = h.get(number)
	}
	h.ring = ring
}

// after returns the number of the first change after a revision.
func (h *history) after(rev int64) int64 {
	return h.first + int64(sort.Search(h.n, func(i int) bool { return h.get(h.first+int64(i)).rev > rev }))
}
