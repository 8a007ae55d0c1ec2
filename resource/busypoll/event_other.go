//go:build !linux

package busypoll

const supported = false

type event struct{}

func newEvent() (*event, error) { return nil, ErrUnsupported }

func (*event) pass() error { return ErrUnsupported }

func (*event) close() {}
