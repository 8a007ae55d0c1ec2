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
	// The bytes of all streams are bounded in the long run.
	line := groupLine("ADDED", "a.example.com", "Current", `,"more":"`+strings.Repeat("x", 3<<20)+`"`)
	var lines []string
	for range 30 {
		lines = append(lines, line, bookmarkLine)
	}
	s = newScripted(t)
	if news, err := s.run(t, s.source(), lines...); news == 0 || news > 22 || !IsTooLong(err) {
		t.Errorf("%d news, %v", news, err)
	}
}

// A stream beyond the limits ends, however many bookmarks it has, and what was known remains.
func TestFollowBoundsTheState(t *testing.T) {
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
	const ended, tooLong = "the server ended it", "sends more than the limits"
	for name, tc := range map[string]struct {
		lines       []string
		news, known int
		err         string
	}{
		"as many as may be":         {many(most), 1, most, ended},
		"one more":                  {many(most + 1), 0, 0, tooLong},
		"the same again":            {append(many(most), many(most)...), 1, most, ended},
		"others in their place":     {append(many(most), groupLine("DELETED", "g1.example.com", "", ""), groupLine("ADDED", "x.example.com", "Current", ""), bookmarkLine), 2, most, ended},
		"one more after a bookmark": {append(many(most), groupLine("ADDED", "x.example.com", "Current", ""), bookmarkLine), 1, most, tooLong},
		"too many elements":         {[]string{big("a.example.com", DefaultLimits().Elements), bookmarkLine}, 0, 0, tooLong},
		"large ones":                {[]string{big("a.example.com", 40000), big("b.example.com", 40000), big("a.example.com", 40000), bookmarkLine}, 1, 2, ended},
		"too many large ones":       {[]string{big("a.example.com", 40000), bookmarkLine, big("b.example.com", 40000), bookmarkLine, big("c.example.com", 40000), bookmarkLine}, 2, 2, tooLong},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScripted(t)
			source := s.source()
			news, err := s.run(t, source, tc.lines...)
			gvs, _ := source.GroupVersions()
			if news != tc.news || len(gvs) != tc.known || err == nil || !strings.Contains(err.Error(), tc.err) {
				t.Errorf("%d news, %d known, %v", news, len(gvs), err)
			}
		})
	}
}

// Following any stream takes less than 64 MB.
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
