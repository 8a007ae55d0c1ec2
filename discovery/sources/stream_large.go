package sources

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
)

// lineReader reads a stream line by line, so that a line that is too long costs no more
// memory than its beginning.
type lineReader struct {
	r     *bufio.Reader
	most  int // bytes of a line
	meter *meter
	line  []byte
}

// next returns the next line, which stands until the call after it; cut: it goes on, and
// that is skipped.
func (l *lineReader) next() (line []byte, cut bool, err error) {
	if cap(l.line) > 64<<10 {
		l.line = nil // one long line is no reason to hold so much
	}
	l.line = l.line[:0]
	for {
		text, err := l.r.ReadSlice('\n')
		if tooMuch := l.meter.take(len(text)); tooMuch != nil {
			return nil, false, tooMuch
		}
		if room := l.most - len(l.line); len(text) > room {
			text, cut = text[:room], true
		}
		l.line = append(l.line, text...)
		switch {
		case err == nil:
			return l.line, cut, nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, false, err
		}
	}
}

// largeEvent is the beginning of an event of a group, as package discovery encodes it.
var largeEvent = regexp.MustCompile(`^{"type":"(?:ADDED|MODIFIED)","object":{"metadata":{"name":"([^"\\]{1,253})"`)

// takeLarge takes in an event of which there is more than is taken: its group is known
// by the names of its versions, or by what was known of it.
func (f *following) takeLarge(text []byte, cut bool) error {
	if cut {
		match := largeEvent.FindSubmatch(text[:min(len(text), 1<<10)])
		if match == nil {
			return errors.New("decode event: it is too large, and of no known group")
		}
		f.putKnown(string(match[1]))
		return nil
	}
	var e struct {
		Type   watch.EventType `json:"type"`
		Object outline         `json:"object"`
	}
	if err := json.Unmarshal(text, &e); err != nil {
		return fmt.Errorf("decode event: %w", err)
	}
	if e.Type != watch.Added && e.Type != watch.Modified || e.Object.Metadata.Name == "" {
		return errors.New("decode event: it is too large, and of no group")
	}
	var g group
	for _, v := range e.Object.Versions {
		id := schema.GroupVersion{Group: e.Object.Metadata.Name, Version: v.Version}
		if !validName(pathGroups, id) || len(g.gvs) >= f.source.cfg.Limits.GroupVersions {
			g.more++
			continue
		}
		g.name(id)
		g.gvs = append(g.gvs, f.known.stale(id))
	}
	f.put(clip(e.Object.Metadata.Name), g)
	return nil
}

// putKnown keeps what was known of a group.
func (f *following) putKnown(name string) {
	gvs := f.groups[name].gvs
	if gvs == nil {
		for _, gv := range f.known {
			if gv.Group == name {
				gvs = append(gvs, gv)
			}
		}
	}
	g := group{}
	if len(gvs) == 0 {
		g.more = 1
	}
	for _, gv := range gvs {
		g.name(schema.GroupVersion{Group: gv.Group, Version: gv.Version})
		gv.Stale = true
		g.gvs = append(g.gvs, gv)
	}
	f.put(name, g)
}
