package sources

import (
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
)

func TestFollowBoundsWhatItReads(t *testing.T) {
	s := newScripted(t)
	source := s.source(described("known.example.com", "v1", "things"))
	long := groupLine("ADDED", "a.example.com", "Current", `,"more":"`+strings.Repeat("x", 8<<20)+`"`)
	if news, err := s.run(t, source, long, long, long, long, long); news != 0 || !errors.Is(err, errTooLong) {
		t.Errorf("%d news, %v", news, err)
	}
	same(t, source, "known.example.com/v1:things")
	// With bookmarks between them it is no endless state, and of a line that is too long
	// only its group is left out.
	with := func(n int) (lines []string) {
		lines = append(lines, groupLine("ADDED", "b.example.com", "Current", ""))
		for range n {
			lines = append(lines, long, bookmarkLine)
		}
		return lines
	}
	s = newScripted(t)
	source = s.source()
	if news, err := s.run(t, source, with(5)...); news != 5 || IsTooLong(err) || source.Dropped() != 1 {
		t.Errorf("%d news, %d left out, %v", news, source.Dropped(), err)
	}
	same(t, source, "b.example.com/v1:things")
	// For how long it sends does not matter either, nor on how many streams.
	s = newScripted(t)
	source.cfg.BaseURL = s.URL
	if news, err := s.run(t, source, with(5)...); news > 3 || !IsTooLong(err) {
		t.Errorf("%d news, %v", news, err)
	}
}

// What a stream tells is bounded in all, as what a server lists is, however many
// bookmarks it has. What is beyond the bounds is left out and nothing else; what the
// stream takes back makes room, for which it is asked for everything again.
func TestFollowBoundsWhatItIsTold(t *testing.T) {
	most := DefaultLimits().GroupVersions
	many := func(n int) (lines []string) {
		for i := range n {
			lines = append(lines, groupLine("ADDED", fmt.Sprintf("g%d.example.com", i), "Current", ""))
		}
		return append(lines, bookmarkLine)
	}
	big := func(name string, resources int) string {
		return groupLine("MODIFIED", name, "Current", `,"resources":{"v1":[`+strings.Repeat("{},", resources)+`{}]}`)
	}
	const ended = "the server ended it"
	for name, tc := range map[string]struct {
		lines                []string
		news, known, dropped int
		err                  string
	}{
		"as many as may be":         {many(most), 1, most, 0, ended},
		"one more":                  {many(most + 1), 1, most, 1, ended},
		"the same again":            {append(many(most), many(most)...), 2, most, 0, ended},
		"others in their place":     {append(many(most), groupLine("DELETED", "g1.example.com", "", ""), groupLine("ADDED", "x.example.com", "Current", ""), bookmarkLine), 2, most, 0, ended},
		"one more after a bookmark": {append(many(most), groupLine("ADDED", "x.example.com", "Current", ""), groupLine("MODIFIED", "x.example.com", "Current", ""), bookmarkLine), 2, most, 1, ended},
		"it is gone again":          {append(many(most), groupLine("ADDED", "x.example.com", "Current", ""), groupLine("DELETED", "x.example.com", "", ""), bookmarkLine), 2, most, 0, ended},
		"room for it":               {append(many(most+1), groupLine("DELETED", "g1.example.com", "", "")), 1, most, 1, "asked for everything again"},
		"too many elements":         {[]string{big("a.example.com", DefaultLimits().Elements), groupLine("ADDED", "b.example.com", "Current", ""), bookmarkLine}, 1, 2, 1, ended},
		"large ones":                {[]string{big("a.example.com", 40000), big("b.example.com", 40000), big("a.example.com", 40000), bookmarkLine}, 1, 2, 0, ended},
		"too many large ones":       {[]string{big("a.example.com", 40000), bookmarkLine, big("b.example.com", 40000), bookmarkLine, big("c.example.com", 40000), bookmarkLine}, 3, 3, 1, ended},
		"room for a large one":      {[]string{big("a.example.com", 40000), big("b.example.com", 40000), big("c.example.com", 40000), bookmarkLine, groupLine("DELETED", "a.example.com", "", "")}, 1, 3, 1, "asked for everything again"},
		"too large, and no group":   {[]string{strings.Replace(big("a.example.com", 60000), "MODIFIED", "BOOKMARK", 1)}, 0, 0, 0, "of no group"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScripted(t)
			source := s.source()
			news, err := s.run(t, source, tc.lines...)
			gvs, _ := source.GroupVersions()
			if news != tc.news || len(gvs) != tc.known || source.Dropped() != tc.dropped || err == nil || !strings.Contains(err.Error(), tc.err) {
				t.Errorf("%d news, %d known, %d left out, %v", news, len(gvs), source.Dropped(), err)
			}
			for _, u := range source.Unread() {
				if !errors.Is(u.Err, ErrBeyondLimits) {
					t.Error(u.Err)
				}
			}
		})
	}
}

// A group that grows too large is known as it was, and is stale.
func TestFollowKeepsWhatGrewTooLarge(t *testing.T) {
	s := newScripted(t)
	source := s.source(described("a.example.com", "v1", "things"))
	if _, err := s.run(t, source, groupLine("ADDED", "a.example.com", "Current", `,"more":"`+strings.Repeat("x", 8<<20)+`"`), bookmarkLine); IsTooLong(err) {
		t.Error(err)
	}
	same(t, source, "a.example.com/v1:things")
	if gvs, _ := source.GroupVersions(); len(gvs) != 1 || !gvs[0].Stale || source.Dropped() != 1 {
		t.Errorf("known %+v, %d left out", gvs, source.Dropped())
	}
}

// Whatever a server streams, following it takes less than 64 MB.
func TestFollowHoldsLittle(t *testing.T) {
	limits := DefaultLimits()
	dense := func(i int, element string) string {
		return groupLine("ADDED", fmt.Sprintf("g%d.example.com", i), "Current", `,"resources":{"v1":[`+strings.Repeat(element+",", limits.Elements/2-100)+element+`]}`)
	}
	for name, line := range map[string]func(i int) string{
		"empty resources": func(i int) string { return dense(i, "{}") },
		"subresources": func(i int) string {
			return strings.Replace(groupLine("ADDED", fmt.Sprintf("g%d.example.com", i), "Current", ""), `"responseKind":null`, `"subresources":[`+strings.Repeat("{},", limits.Elements-100)+`{}]`, 1)
		},
		"long lines": func(i int) string {
			return groupLine("ADDED", fmt.Sprintf("g%d.example.com", i), "Current", `,"more":"`+strings.Repeat("x", limits.Group-1000)+`"`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScripted(t)
			source := s.source()
			lines := make([]string, 0, 12)
			for i := range 6 {
				lines = append(lines, line(i), bookmarkLine)
			}
			var before, now runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			most := uint64(0)
			defer debug.SetGCPercent(debug.SetGCPercent(10))
			go func() {
				defer close(s.lines)
				for _, line := range lines {
					s.lines <- line
				}
			}()
			err := source.Follow(t.Context(), func() {
				runtime.GC()
				runtime.ReadMemStats(&now)
				most = max(most, now.HeapAlloc)
			})
			t.Logf("%d MB, %v", (int64(most)-int64(before.HeapAlloc))>>20, err)
			if most > before.HeapAlloc+64<<20 {
				t.Errorf("it holds %d MB", (most-before.HeapAlloc)>>20)
			}
		})
	}
}
