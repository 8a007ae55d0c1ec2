package logs

import (
	"context"
	"fmt"
	"io"
	"time"
)

// pollEvery is the pause between two looks for new lines.
const pollEvery = 200 * time.Millisecond

// selection is which lines are shown.
type selection struct {
	since time.Time // no line before; zero for all
	tail  int       // the last lines; negative for all
	wide  bool      // with the name of the process
}

// merged reads several logs in the order of time.
type merged []*source

// next returns the earliest line that was not returned; nil at the end of all logs.
func (m merged) next() (*line, error) {
	var first *source
	for _, s := range m {
		if err := s.read(); err != nil {
			return nil, err
		}
		if s.pending != nil && (first == nil || s.pending.at.Before(first.pending.at)) {
			first = s
		}
	}
	if first == nil {
		return nil, nil
	}
	l := first.pending
	first.pending = nil
	return l, nil
}

// rest returns the last lines of logs that end without the end of a line.
func (m merged) rest() (lines []*line) {
	for _, s := range m {
		if len(s.partial) > 0 {
			s.complete()
			lines = append(lines, s.pending)
			s.pending = nil
		}
	}
	return lines
}

// last returns the selected lines, at most sel.tail. It keeps as many in memory.
func (m merged) last(sel selection, each func(*line) error) error {
	kept := make([]*line, max(sel.tail, 0)) // the line of number n at n % tail
	n := 0
	show := func(l *line) error {
		switch {
		case l.at.Before(sel.since) || sel.tail == 0:
			return nil
		case sel.tail < 0:
			return each(l)
		}
		kept[n%sel.tail] = l
		n++
		return nil
	}
	for {
		l, err := m.next()
		if err != nil {
			return err
		}
		if l == nil {
			break
		}
		if err := show(l); err != nil {
			return err
		}
	}
	for i := max(0, n-len(kept)); i < n; i++ {
		if err := each(kept[i%len(kept)]); err != nil {
			return err
		}
	}
	return nil
}

// follow calls each with new lines until ctx ends.
func (m merged) follow(ctx context.Context, each func(*line) error) error {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		l, err := m.next()
		if err != nil {
			return err
		}
		if l != nil {
			if err := each(l); err != nil {
				return err
			}
			continue
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// show prints the selected lines, and with follow those that come until ctx ends.
func (m merged) show(ctx context.Context, w io.Writer, sel selection, follow bool) error {
	each := func(l *line) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if sel.wide {
			fmt.Fprintf(w, "%-8s", l.process)
		}
		_, err := fmt.Fprintf(w, "%s\n", l.text)
		return err
	}
	if err := m.last(sel, each); err != nil {
		return err
	}
	if follow {
		return m.follow(ctx, each)
	}
	for _, l := range m.rest() {
		if err := each(l); err != nil {
			return err
		}
	}
	return nil
}
