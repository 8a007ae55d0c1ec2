package supervise

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"sync"

	"gopkg.in/natefinch/lumberjack.v2"
)

// maxLogLine is the maximum length of a line for Also and Last.
const maxLogLine = 64 << 10

// LogConfig says where a child's output goes.
type LogConfig struct {
	// File is appended to. At MaxMegabytes it is renamed to a name with the time, NAME-TIME.log;
	// the last MaxBackups of these are kept, all if it is 0.
	File                     string
	MaxMegabytes, MaxBackups int
	// Also, if not nil, receives each line too, after Prefix.
	Also   io.Writer
	Prefix string
}

// Log is the output of a child. Write does not fail, so that a full disk does not stop a child.
// It is safe for concurrent use.
type Log struct {
	cfg  LogConfig
	file *lumberjack.Logger

	mu      sync.Mutex
	partial []byte
	last    string
	crashed bool // last is the first line of a Go panic
}

// OpenLog opens or creates the log's file, with mode 0600.
func OpenLog(cfg LogConfig) (*Log, error) {
	l := &Log{cfg: cfg, file: &lumberjack.Logger{Filename: cfg.File, MaxSize: cfg.MaxMegabytes, MaxBackups: cfg.MaxBackups}}
	if _, err := l.file.Write(nil); err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	return l, nil
}

// Write appends data, which may end in the middle of a line.
func (l *Log) Write(data []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, _ = l.file.Write(data)
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
func (l *Log) Close() { _ = l.file.Close() }
