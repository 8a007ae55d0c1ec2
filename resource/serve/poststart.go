package serve

import (
	"net/http"
	"sync/atomic"
)

// postStartCheck is a check of the start. It has passed once run has returned nil.
type postStartCheck struct {
	run      func() error
	passed   atomic.Bool
	optional bool
}

func (c *postStartCheck) check() error {
	if c.passed.Load() {
		return nil
	}
	err := c.run()
	if err == nil {
		c.passed.Store(true)
	}
	return err
}

// AddPostStartCheck adds a check of the start, under kube-apiserver's name of a post-start hook. It fails until run has
// returned nil once. /healthz and /readyz have it, /livez once it has passed. run must not block, and be safe for
// concurrent use.
func (h *Health) AddPostStartCheck(name string, run func() error) {
	h.addPostStart(name, &postStartCheck{run: run})
}

// AddOptionalPostStartCheck adds a post-start check that the server does not need to serve. The endpoints have it once it
// has passed; until then it fails under its own name only. See AddPostStartCheck.
func (h *Health) AddOptionalPostStartCheck(name string, run func() error) {
	h.addPostStart(name, &postStartCheck{run: run, optional: true})
}

func (h *Health) addPostStart(name string, c *postStartCheck) {
	h.add(check{name: name, live: true, run: func(*http.Request) error { return c.check() }, postStart: c})
}
