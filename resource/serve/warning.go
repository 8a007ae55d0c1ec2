package serve

import (
	"context"
	"net/http"
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
func (s *Server) collectWarnings(w http.ResponseWriter, r *http.Request) bool {
	exchangeFrom(r.Context()).warnings.header = w.Header()
	return true
}

// warnings are those of one response.
type warnings struct {
	mu      sync.Mutex
	header  http.Header // nil: nobody collects
	texts   []string    // in order, without duplicates
	runes   int         // sent so far
	cutting bool
}

func (w *warnings) add(text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.header == nil || text == "" || w.cutting && w.runes >= maxWarningsTotal {
		return
	}
	for _, old := range w.texts {
		if old == text {
			return
		}
	}
	w.texts = append(w.texts, text)
	if !w.cutting && w.runes+utf8.RuneCountInString(text) > maxWarningsTotal {
		// Begin again, with everything so far cut.
		w.cutting, w.runes = true, 0
		w.header.Del("Warning")
		for _, old := range w.texts {
			w.send(old)
		}
		return
	}
	w.send(text)
}

// send adds the header line for one text.
func (w *warnings) send(text string) {
	if w.cutting {
		text = firstRunes(text, maxWarningCut)
	}
	w.runes += utf8.RuneCountInString(text)
	w.header.Add("Warning", warningHeader(text))
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
