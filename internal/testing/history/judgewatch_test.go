package history

import (
	"context"
	"strings"
	"testing"

	"portico/resource"
)

// A watch that starts now begins at 6 or before, and gets the events, or the difference to
// a later state instead:
//
//	5: a is made; 6: b changes; 7: a is removed; 8: b is removed; 10: a is made again;
//	11: a is removed; 12: a is made again
func TestJoinAtADifference(t *testing.T) {
	a, b := resource.Key{Namespace: "ns", Name: "a"}, resource.Key{Namespace: "ns", Name: "b"}
	state := func(key resource.Key, token string) facts { return facts{key: key, token: token} }
	gone := func(key resource.Key, token string, rev int64) notice {
		return notice{resource.Deleted, state(key, token), rev}
	}
	again := notice{resource.Added, state(a, "a2"), 10}
	for _, test := range []struct {
		name    string
		notices []notice
		wrong   string
	}{
		{"the events", []notice{gone(a, "a1", 7), gone(b, "b2", 8), again}, ""},
		{"the events, from before", []notice{{resource.Modified, state(b, "b2"), 6}, gone(a, "a1", 7)}, ""},
		{"the difference", []notice{gone(a, "a1", 6), gone(b, "b2", 6), again}, ""},
		{"the difference, one of two", []notice{gone(a, "a1", 6)}, ""},
		{"the difference after an event", []notice{{resource.Modified, state(b, "b2"), 6}, gone(a, "a1", 6), gone(b, "b2", 6), again}, ""},
		{"objects that came and went", []notice{gone(a, "a1", 7), gone(b, "b2", 8), {resource.Added, state(a, "a3"), 12}}, ""},
		{"a departure is missing", []notice{gone(a, "a1", 6), again, {kind: resource.Bookmark, rev: 10}}, "DELETED ns/a"},
		{"the state is not the last one", []notice{gone(b, "b1", 6), gone(a, "a1", 6), again}, "DELETED ns/b"},
		{"no object was removed at that time", []notice{gone(a, "a1", 8)}, "DELETED ns/a"},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := &play{sys: System{
				Compact:  func(context.Context, int64) error { return nil },
				Restarts: []func(context.Context) error{nil},
			}}
			made := func(rev int64, s facts, gone bool) {
				p.writes = append(p.writes, &write{
					span: span{client: "writer", begin: rev, end: rev}, key: s.key, token: s.token, outcome: acknowledged, rev: rev, gone: gone, state: s,
				})
			}
			made(4, state(b, "b1"), false)
			made(5, state(a, "a1"), false)
			made(6, state(b, "b2"), false)
			made(7, state(a, "a1"), true)
			made(8, state(b, "b2"), true)
			made(10, state(a, "a2"), false)
			made(11, state(a, "a2"), true)
			made(12, state(a, "a3"), false)
			happened, err := p.truth(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			p.judgeChain(happened, &chain{
				sel:      &selection{text: "all", has: func(*facts) bool { return true }},
				sessions: []*session{{span: span{client: "watcher", begin: 1, floor: 3, end: 20}, open: 19, notices: test.notices}},
			})
			var found []string
			for _, f := range p.faults {
				found = append(found, f.text)
			}
			if text := strings.Join(found, "\n"); (text == "") != (test.wrong == "") || !strings.Contains(text, test.wrong) {
				t.Errorf("found %q, want %q", text, test.wrong)
			}
		})
	}
}
