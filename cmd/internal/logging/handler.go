package logging

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"path"
	"runtime"
	"strings"
	"sync"
)

// Formats of lines.
const (
	Text = "text"
	JSON = "json"
)

// New returns a log that writes lines of the format to w, at the levels.
func New(w io.Writer, format string, levels *Levels) (*slog.Logger, error) {
	// The levels decide, not the handler that writes.
	all := &slog.HandlerOptions{Level: slog.Level(-1 << 10)}
	switch format {
	case Text:
		return slog.New(&handler{slog.NewTextHandler(w, all), levels}), nil
	case JSON:
		return slog.New(&handler{slog.NewJSONHandler(w, all), levels}), nil
	}
	return nil, fmt.Errorf("--log-format=%s: must be text or json", format)
}

// handler drops the records below the level of the package that logs.
type handler struct {
	slog.Handler
	levels *Levels
}

// Enabled implements slog.Handler. The package is known in Handle only, so that with levels of
// packages all that one of them logs is enabled here.
func (h *handler) Enabled(_ context.Context, level slog.Level) bool {
	return level >= h.levels.current.Load().least
}

// Handle implements slog.Handler.
func (h *handler) Handle(ctx context.Context, r slog.Record) error {
	if r.Level < h.levels.current.Load().of(r.PC) {
		return nil
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &handler{h.Handler.WithAttrs(attrs), h.levels}
}

// WithGroup implements slog.Handler.
func (h *handler) WithGroup(name string) slog.Handler {
	return &handler{h.Handler.WithGroup(name), h.levels}
}

// packageOf returns the import path of the package that has the program counter, "" for none.
func packageOf(pc uintptr) string {
	if pc == 0 {
		return ""
	}
	frame, _ := runtime.CallersFrames([]uintptr{pc}).Next()
	// PATH/NAME.Function or PATH/NAME.(*Type).Method; dots of the last element of PATH are escaped.
	dir, last := path.Split(frame.Function)
	name, _, _ := strings.Cut(last, ".")
	return strings.TrimPrefix(dir+strings.ReplaceAll(name, "%2e", "."), "portico/")
}

// packages remembers packageOf by program counter: a log has as many as the program has calls.
var packages sync.Map

func cachedPackageOf(pc uintptr) string {
	if known, ok := packages.Load(pc); ok {
		return known.(string)
	}
	name := packageOf(pc)
	packages.Store(pc, name)
	return name
}
