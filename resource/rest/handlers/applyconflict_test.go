package handlers

import (
	"fmt"
	"strings"
	"testing"
)

// A response lists a bounded number of conflicts, with the number of all and of the others.
func TestManyConflicts(t *testing.T) {
	t.Parallel()
	b := newTrackedBench(t)
	// alice owns half of the fields, bob the other: half of each is left over.
	of := func(from, to, value int) string {
		var text strings.Builder
		for i := range to - from {
			fmt.Fprintf(&text, `,"k%04d":"%d"`, from+i, value)
		}
		return cmIntent(`,"metadata":{"name":"a"},"data":{` + text.String()[1:] + `}`)
	}
	b.apply(configMapA, "alice", of(0, 800, 1)).want(201, "")
	b.apply(configMapA, "bob", of(800, 1600, 1)).want(200, "")
	s := b.apply(configMapA, "carol", of(0, 1600, 2)).want(409, "").status()
	if len(s.Details.Causes) != maxConflicts {
		t.Errorf("%d causes", len(s.Details.Causes))
	}
	const start, end = "Apply failed with 1600 conflicts: conflicts with \"alice\":\n- .data.k0000\n", "\n- .data.k0999\n- and 600 more"
	if !strings.HasPrefix(s.Message, start) || !strings.HasSuffix(s.Message, end) || strings.Count(s.Message, "\n- ") != maxConflicts+1 {
		t.Errorf("message %.60s ... %s", s.Message, s.Message[max(0, len(s.Message)-80):])
	}
	// As many as may be listed are all listed.
	s = b.apply(configMapA, "carol", of(0, 1000, 2)).want(409, "").status()
	if len(s.Details.Causes) != 1000 || strings.Contains(s.Message, "more") {
		t.Errorf("%d causes, message ends %s", len(s.Details.Causes), s.Message[len(s.Message)-40:])
	}
}

// Few conflicts with long paths are bounded by their text.
func TestLongConflicts(t *testing.T) {
	t.Parallel()
	b := newTrackedBench(t)
	nested := func(name string, depth, leaves, value int) string {
		var text strings.Builder
		for i := range leaves {
			fmt.Fprintf(&text, `,"k%d":%d`, i, value)
		}
		return `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w"},"spec":` +
			strings.Repeat(`{"`+name+`":`, depth) + "{" + text.String()[1:] + "}" + strings.Repeat("}", depth) + "}"
	}
	for _, c := range []struct {
		name          string
		depth, leaves int
		code          int
	}{
		{"abcdefgh", 100, 700, 409},
		{strings.Repeat("x", 1000), maxConflictText/1000 + 1, 1, 409},
		{strings.Repeat("x", 1000), 30, 600, 413},
	} {
		short := fmt.Sprintf("%.9s, %d deep, %d leaves", c.name, c.depth, c.leaves)
		b.apply(widgetW+"?force=true", "alice", nested(c.name, c.depth, c.leaves, 1))
		a := b.apply(widgetW, "bob", nested(c.name, c.depth, c.leaves, 2))
		if a.code != c.code || len(a.body) > 4*maxConflictText {
			t.Errorf("%s: %d, %d bytes, want %d: %.200s", short, a.code, len(a.body), c.code, a.body)
			continue
		}
		if c.code == 409 && !strings.HasPrefix(a.status().Message, fmt.Sprintf("Apply failed with %d conflict", c.leaves)) {
			t.Errorf("%s: message %.100s", short, a.status().Message)
		}
		if c.code == 413 {
			b.apply(widgetW+"?force=true", "bob", nested(c.name, c.depth, c.leaves, 2)).want(200, "")
			// No other manager owns the fields: there are no conflicts.
			b.apply(widgetW, "bob", nested(c.name, c.depth, c.leaves, 2)).want(200, "")
		}
	}
}
