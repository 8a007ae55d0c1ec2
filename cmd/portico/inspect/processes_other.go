//go:build !linux

package inspect

import (
	"errors"
	"fmt"
	"runtime"
)

// Processes returns an error: there is no /proc.
func Processes(int) ([]Process, error) {
	return nil, fmt.Errorf("list processes on %s: %w", runtime.GOOS, errors.ErrUnsupported)
}
