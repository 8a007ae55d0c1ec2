//go:build !linux

package netround

import "errors"

// Supported says whether there is such a thing on this system.
const Supported = false

// Round is of no use on this system.
type Round struct{}

// New fails with [errors.ErrUnsupported].
func New() (*Round, error) { return nil, errors.ErrUnsupported }

// Pass fails with [errors.ErrUnsupported].
func (*Round) Pass() error { return errors.ErrUnsupported }

// Close does nothing.
func (*Round) Close() {}
