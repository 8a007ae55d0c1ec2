package filter

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	utilnet "k8s.io/apimachinery/pkg/util/net"
)

// Bounds of Warning headers, in runes, as upstream's: texts that exceed the total are all
// cut, and cut texts that exceed it are dropped.
const (
	maxWarningsTotal = 4096
	maxWarningCut    = 256
)

// AddWarning adds a Warning header to the response to the request of the context. It
// has no effect if the text is empty, was added before, or the response has begun. Safe for
// concurrent use until the handler writes.
func AddWarning(ctx context.Context, text string) {
	if rs := stateOf(ctx); rs != nil {
		rs.warnings.add(text)
	}
}

// collectWarnings adds warnings to the response from here on.
func (c *Chain) collectWarnings(_ http.ResponseWriter, r *http.Request) bool {
	stateOf(r.Context()).warnings.collect(true)
	return true
}

// warnings are the warnings of a response. They are put into its header when that is sent:
// a reverse proxy clears the header after each informational response.
type warnings struct {
	mu         sync.Mutex
	texts      []string // in order, without duplicates
	runes      int      // of the texts as they are sent
	collecting bool
	cutting    bool // texts are cut
}

// collect sets whether the response has warnings. Responses of filters above
// collectWarnings have none.
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

// put adds the warnings to a header, before those that it has.
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

// warningHeader encodes a warning (RFC 7234, 5.5): code 299, agent unknown, quoted text.
// Control characters are left out and invalid UTF-8 is replaced.
func warningHeader(text string) string {
	line, _ := utilnet.NewWarningHeader(299, "-", strings.Map(func(c rune) rune { // fails for other texts only
		if unicode.IsControl(c) {
			return -1
		}
		return c
	}, text))
	return line
}
