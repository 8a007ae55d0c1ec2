package accesslog

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// standard is an output without a name.
type standard struct{ io.Writer }

func (standard) follow() error { return nil }

// Close leaves it open: it belongs to the process.
func (standard) Close() error { return nil }

// file is an output with a name, under which there may be another file
// tomorrow.
type file struct {
	path string
	file *os.File
}

func openFile(path string) (*file, error) {
	f, err := appendTo(path)
	if err != nil {
		return nil, err
	}
	return &file{path: path, file: f}, nil
}

// appendTo opens without waiting: of a named pipe that nobody reads it says so.
func appendTo(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE|syscall.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open access log: %w", err)
	}
	return f, nil
}

// Write appends whole lines.
func (f *file) Write(lines []byte) (int, error) { return f.file.Write(lines) }

// follow opens the file anew if another one, or none, has its name. On failure
// the old one stays.
func (f *file) follow() error {
	named, err := os.Stat(f.path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err == nil {
		held, err := f.file.Stat()
		if err != nil {
			return err
		}
		if os.SameFile(named, held) {
			return nil
		}
	}
	next, err := appendTo(f.path)
	if err != nil {
		return err
	}
	_ = f.file.Close() // all of it was written, or its loss was counted
	f.file = next
	return nil
}

func (f *file) Close() error { return f.file.Close() }
