package bytelru

import "testing"

func TestLeastRecentlyUsedValuesAreEvicted(t *testing.T) {
	t.Parallel()
	c := New[string, int](100)
	add := func(key string, value, size int) int {
		return c.GetOrAdd(key, func() (int, int) { return value, size })
	}
	add("a", 1, 40)
	add("b", 2, 40)
	if got := add("a", 9, 1); got != 1 {
		t.Errorf("a value that is there was made again: %d", got)
	}
	add("c", 3, 40)
	if _, ok := c.Get("b"); ok {
		t.Error("the least recently used value was kept")
	}
	if n, bytes := c.Size(); n != 2 || bytes != 80 {
		t.Errorf("%d values of %d bytes", n, bytes)
	}
	is := func(want int) func(int) bool { return func(got int) bool { return got == want } }
	if c.Resize("a", is(2), 1) || !c.Resize("c", is(3), 1000) {
		t.Error("resized another value than that")
	}
	if n, bytes := c.Size(); n != 1 || bytes != 1000 {
		t.Errorf("%d values of %d bytes; the newest one stays whatever its size", n, bytes)
	}
	c.Remove("c")
	c.Remove("c")
	if n, bytes := c.Size(); n != 0 || bytes != 0 {
		t.Errorf("%d values of %d bytes are left", n, bytes)
	}
}
