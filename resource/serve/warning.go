package serve

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

// Bounds on Warning headers, in runes (contract 3.4): past the total, every
// text is cut, and once the cut ones fill it too, further ones are dropped.
const (
	maxWarningsTotal = 4096
	maxWarningCut    = 256
)

// AddWarning adds a Warning header to the response to the request whose context
// this is. It has no effect when the text is empty, was added before, or comes
// after the response has begun. Safe for concurrent use by those who work for
// the request, until the handler writes.
func AddWarning(ctx context.Context, text string) {
	if x := exchangeFrom(ctx); x != nil {
		x.warnings.add(text)
	}
}

// collectWarnings has warnings go into the header of this response.
func (s *Server) collectWarnings(_ http.ResponseWriter, r *http.Request) bool {
	exchangeFrom(r.Context()).warnings.collect(true)
	return true
}

// warnings are those of one response. They stay out of its header until that is
// sent: a reverse proxy empties it after each informational response.
type warnings struct {
	mu         sync.Mutex
	texts      []string // in order, without duplicates
	runes      int      // of what is sent of them
	collecting bool
	cutting    bool // every text is
}

// collect says whether there are to be any. An answer that comes from above
// collectWarnings has none.
func (w *warnings) collect(collecting bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.collecting = collecting
}

func (w *warnings) add(text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.collecting || text == "" || w.cutting && w.runes >= maxWarningsTotal || slices.Contains(w.texts, text) {
		return
	}
	w.texts = append(w.texts, text)
	switch n := utf8.RuneCountInString(text); {
	case w.cutting:
		w.runes += min(n, maxWarningCut)
	case w.runes+n <= maxWarningsTotal:
		w.runes += n
	default:
		w.cutting, w.runes = true, 0
		for _, old := range w.texts {
			w.runes += min(utf8.RuneCountInString(old), maxWarningCut)
		}
	}
}

// put puts them into a header, before those that are in it.
func (w *warnings) put(h http.Header) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.collecting || len(w.texts) == 0 {
		return
	}
	lines := make([]string, 0, len(w.texts)+len(h["Warning"]))
	for _, text := range w.texts {
		if w.cutting {
			text = firstRunes(text, maxWarningCut)
		}
		lines = append(lines, warningHeader(text))
	}
	h["Warning"] = append(lines, h["Warning"]...)
}

// firstRunes returns the first n runes of s.
func firstRunes(s string, n int) string {
	for i := range s {
		if n == 0 {
			return s[:i]
		}
		n--
	}
	return s
}

// warningHeader encodes a warning (RFC 7234, 5.5): code 299, agent unknown, the
// text quoted. Control characters, which a header must not contain, are left
// out, and what is not UTF-8 is replaced.
func warningHeader(text string) string {
	var b strings.Builder
	b.Grow(len(text) + 8)
	b.WriteString(`299 - "`)
	for _, c := range text {
		switch {
		case unicode.IsControl(c):
			continue
		case c == '"' || c == '\\':
			b.WriteByte('\\')
		}
		b.WriteRune(c)
	}
	b.WriteByte('"')
	return b.String()
}
