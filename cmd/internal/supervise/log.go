package supervise

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
)

const (
	// defaultLogLimit is the default of LogConfig.Limit.
	defaultLogLimit = 16 << 20
	// maxLogLine is the maximum length of a line for Also and Last.
	maxLogLine = 64 << 10
)

// LogConfig says where a child's output goes.
type LogConfig struct {
	// File is appended to. At Limit bytes (default: 16 MiB) it is renamed to File.old,
	// which is replaced, so that at most twice Limit is stored.
	File  string
	Limit int64
	// Also, if not nil, receives each line too, after Prefix.
	Also   io.Writer
	Prefix string
}

// Log is the output of a child. Write does not fail, so that a full disk does not stop a child.
// It is safe for concurrent use.
type Log struct {
	cfg LogConfig

	mu      sync.Mutex
	file    *os.File
	size    int64
	partial []byte
	last    string
	crashed bool // last is the first line of a Go panic
}

// OpenLog opens or creates the log's file.
func OpenLog(cfg LogConfig) (*Log, error) {
	if cfg.Limit == 0 {
		cfg.Limit = defaultLogLimit
	}
	l := &Log{cfg: cfg}
	if err := l.open(); err != nil {
		return nil, err
	}
	return l, nil
}

func (l *Log) open() error {
	f, err := os.OpenFile(l.cfg.File, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open log: %w", err)
	}
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return fmt.Errorf("open log: %w", err)
	}
	l.file, l.size = f, info.Size()
	return nil
}

// Write appends data, which may end in the middle of a line.
func (l *Log) Write(data []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.store(data)
	rest := data
	for len(rest) > 0 {
		end := bytes.IndexByte(rest, '\n')
		if end < 0 {
			l.keep(rest)
			break
		}
		l.keep(rest[:end])
		l.line()
		rest = rest[end+1:]
	}
	return len(data), nil
}

// keep appends to the current line, up to maxLogLine.
func (l *Log) keep(data []byte) {
	if room := maxLogLine - len(l.partial); len(data) > room {
		data = data[:room]
	}
	l.partial = append(l.partial, data...)
}

// line completes the current line.
func (l *Log) line() {
	if l.cfg.Also != nil {
		fmt.Fprintf(l.cfg.Also, "%s%s\n", l.cfg.Prefix, l.partial)
	}
	if text := strings.TrimSpace(string(l.partial)); text != "" && !l.crashed {
		l.last = text
		l.crashed = strings.HasPrefix(text, "panic: ") || strings.HasPrefix(text, "fatal error: ")
	}
	l.partial = l.partial[:0]
}

func (l *Log) store(data []byte) {
	if l.size > 0 && l.size+int64(len(data)) > l.cfg.Limit {
		l.rotate()
	}
	if l.file == nil {
		return
	}
	n, _ := l.file.Write(data)
	l.size += int64(n)
}

// rotate starts a new file. If that fails, further output is dropped.
func (l *Log) rotate() {
	if l.file != nil {
		l.file.Close()
		l.file = nil
	}
	if err := os.Rename(l.cfg.File, l.cfg.File+".old"); err != nil {
		return
	}
	_ = l.open()
}

// restart clears the last line, before the child is restarted.
func (l *Log) restart() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last, l.crashed = "", false
}

// Last returns the last line that is not empty. Of a Go panic it is the first line, which has
// the reason.
func (l *Log) Last() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last
}

// Close closes the file.
func (l *Log) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file != nil {
		l.file.Close()
		l.file = nil
	}
}
