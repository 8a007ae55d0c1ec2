package accesslog

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// standard is an output that has no path.
type standard struct{ io.Writer }

func (standard) follow() error { return nil }

// Close does nothing: the process owns the output.
func (standard) Close() error { return nil }

// file is an output with a path, at which another file may appear.
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

// appendTo opens without blocking: a named pipe without a reader is an error.
func appendTo(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE|syscall.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open access log: %w", err)
	}
	return f, nil
}

// Write appends whole lines.
func (f *file) Write(lines []byte) (int, error) { return f.file.Write(lines) }

// follow reopens the file if another one, or none, has its path. On failure the open one
// stays in use.
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
	_ = f.file.Close() // every write has succeeded or was counted as failed
	f.file = next
	return nil
}

func (f *file) Close() error { return f.file.Close() }
