package logs

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// maxLine is the longest line that is shown, in bytes; the rest of a longer one is left out.
const maxLine = 64 << 10

// line is a line of a log, without its end. A line without a time, such as one of a panic, has
// that of the line before.
type line struct {
	process string
	at      time.Time
	text    []byte
}

// source reads the log of one process, beginning with its oldest file.
type source struct {
	process string
	path    string   // of the file that the process writes
	older   []string // files before it, which are not read yet
	file    *os.File
	in      *bufio.Reader
	partial []byte // the beginning of a line
	dropped bool   // the line is longer than maxLine
	renamed bool   // path is another file, and this one may have grown before
	at      time.Time
	pending *line // the next line
}

// rotated is the name of an older file: NAME-TIME.log.
const rotated = "-[0-9]*.log"

// open returns the log of a process; fs.ErrNotExist if there is none.
func open(folder, process string) (*source, error) {
	s := &source{process: process, path: filepath.Join(folder, process+".log")}
	if _, err := os.Stat(s.path); err != nil {
		return nil, err
	}
	older, err := filepath.Glob(filepath.Join(escape(folder), process+rotated))
	if err != nil {
		return nil, err
	}
	slices.Sort(older)
	s.older = older
	return s, s.next()
}

// escape quotes what a pattern gives a meaning.
func escape(path string) string {
	return regexp.MustCompile(`[\\*?\[\]]`).ReplaceAllString(path, `\$0`)
}

func (s *source) close() {
	if s.file != nil {
		s.file.Close()
	}
}

// next opens the next file.
func (s *source) next() error {
	s.close()
	s.renamed = false
	for len(s.older) > 0 {
		name := s.older[0]
		s.older = s.older[1:]
		f, err := os.Open(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed in favour of a newer one
		}
		return s.use(f, err)
	}
	return s.use(os.Open(s.path))
}

func (s *source) use(f *os.File, err error) error {
	if err != nil {
		return fmt.Errorf("open log: %w", err)
	}
	s.file, s.in = f, bufio.NewReader(f)
	return nil
}

// current reports whether the file is the one that the process writes.
func (s *source) current() bool {
	now, err := os.Stat(s.path)
	if err != nil {
		return true // it is being renamed
	}
	mine, err := s.file.Stat()
	return err == nil && os.SameFile(now, mine)
}

// read reads the next line into pending, unless it has one; at the end of the log there is none.
func (s *source) read() error {
	for s.pending == nil {
		part, err := s.in.ReadSlice('\n')
		if room := maxLine - len(s.partial); len(part) > room {
			part, s.dropped = part[:room], true
		}
		s.partial = append(s.partial, part...)
		switch {
		case err == nil:
			s.complete()
		case errors.Is(err, bufio.ErrBufferFull):
		case !errors.Is(err, io.EOF):
			return fmt.Errorf("read log: %w", err)
		default:
			if more, err := s.more(); err != nil || !more {
				return err
			}
		}
	}
	return nil
}

// more is called at the end of a file. It reports whether there is something else to read.
func (s *source) more() (bool, error) {
	switch current := s.current(); {
	case !current && !s.renamed:
		s.renamed = true // and read the rest, if it grew
		return true, nil
	case !current:
		if len(s.partial) > 0 {
			s.complete()
		}
		return true, s.next()
	}
	info, err := s.file.Stat()
	if err != nil {
		return false, err
	}
	at, err := s.file.Seek(0, io.SeekCurrent)
	if err != nil || info.Size() >= at {
		return false, err
	}
	s.partial = s.partial[:0] // truncated
	_, err = s.file.Seek(0, io.SeekStart)
	return true, err
}

// stamp matches the time at the beginning of a line, of logs as text and as JSON.
var stamp = regexp.MustCompile(`^(?:time=|\{"(?:time|ts)":")([0-9TZ:.+-]+)`)

// complete makes a line of partial.
func (s *source) complete() {
	text := bytes.TrimRight(slices.Clone(s.partial), "\r\n")
	if s.dropped {
		text = append(text, "…"...)
	}
	s.partial, s.dropped = s.partial[:0], false
	if m := stamp.FindSubmatch(text); m != nil {
		if at, err := time.Parse(time.RFC3339Nano, string(m[1])); err == nil {
			s.at = at
		}
	}
	s.pending = &line{s.process, s.at, text}
}

// processesOf returns the processes that have a log in the folder.
func processesOf(folder string) (names []string) {
	files, _ := filepath.Glob(filepath.Join(escape(folder), "*.log")) // the pattern is valid
	for _, file := range files {
		if name := strings.TrimSuffix(filepath.Base(file), ".log"); slices.Contains(Processes, name) {
			names = append(names, name)
		}
	}
	return names
}
