package embedetcd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// Suffixes of warnings that etcd logs although a single member starts or stops as it should.
// They are logged at debug level, so that the other warnings are found.
var (
	startWarnings = []string{
		"Running http and grpc server on single port. This is not recommended for production.",
		"simple token is not cryptographically signed", // there are no logins
		// At the first start there is no schema and no term.
		"Failed to detect schema version",
		"failed to update storage version",
		"since there are still pending configuration changes to apply",
	}
	stopWarnings = []string{
		"setting up serving from embedded etcd failed.",
		"stopping insecure grpc server due to error",
		"stopped insecure grpc server due to error",
		// These three are about a lease that expires during the stop. It is revoked after the next start.
		"failed to revoke lease",
		"Failed to check current member's leadership",
		"Ignore the lease revoking request because current member isn't a leader",
	}
)

// newZapLogger returns a zap logger for etcd that writes to a slog logger. etcd's messages of
// level info, and its usual warnings, have level debug. Its debug messages, which have the stored
// values, are dropped. stopping is set while the member is
// stopped. fatal, if not nil, is called after a fatal message instead of exiting or
// panicking.
func newZapLogger(to *slog.Logger, stopping *atomic.Bool, fatal func(error)) *zap.Logger {
	var options []zap.Option
	if fatal != nil {
		options = append(options, zap.WithFatalHook(fatalHook(fatal)), zap.WithPanicHook(fatalHook(fatal)))
	}
	return zap.New(&zapCore{handler: to.Handler(), stopping: stopping}, options...)
}

// fatalHook is called with an error made of a message and its field "error".
type fatalHook func(error)

// OnWrite implements zapcore.CheckWriteHook.
func (call fatalHook) OnWrite(e *zapcore.CheckedEntry, fields []zapcore.Field) {
	err := errors.New(e.Message)
	for _, f := range fields {
		if cause, ok := f.Interface.(error); ok && f.Type == zapcore.ErrorType {
			err = fmt.Errorf("%s: %w", e.Message, cause)
		}
	}
	call(err)
}

// zapCore is a zapcore.Core over a slog.Handler.
type zapCore struct {
	handler  slog.Handler
	stopping *atomic.Bool
}

func (c *zapCore) Enabled(l zapcore.Level) bool {
	return l >= zapcore.InfoLevel && c.handler.Enabled(context.Background(), slogLevel(l))
}

func (c *zapCore) With(fields []zapcore.Field) zapcore.Core {
	return &zapCore{handler: c.handler.WithAttrs(attrs(fields)), stopping: c.stopping}
}

func (c *zapCore) Check(e zapcore.Entry, ce *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if e.Level >= zapcore.InfoLevel && c.handler.Enabled(context.Background(), c.level(e)) {
		return ce.AddCore(e, c)
	}
	return ce
}

func (c *zapCore) Write(e zapcore.Entry, fields []zapcore.Field) error {
	r := slog.NewRecord(e.Time, c.level(e), e.Message, 0)
	r.AddAttrs(attrs(fields)...)
	return c.handler.Handle(context.Background(), r)
}

func (c *zapCore) Sync() error { return nil }

// level returns the level of an entry.
func (c *zapCore) level(e zapcore.Entry) slog.Level {
	matches := func(suffix string) bool { return strings.HasSuffix(e.Message, suffix) }
	if slices.ContainsFunc(startWarnings, matches) || c.stopping.Load() && slices.ContainsFunc(stopWarnings, matches) {
		return slog.LevelDebug
	}
	return slogLevel(e.Level)
}

func slogLevel(l zapcore.Level) slog.Level {
	switch {
	case l >= zapcore.ErrorLevel:
		return slog.LevelError
	case l >= zapcore.WarnLevel:
		return slog.LevelWarn
	}
	return slog.LevelDebug
}

func attrs(fields []zapcore.Field) []slog.Attr {
	enc := zapcore.NewMapObjectEncoder()
	out := make([]slog.Attr, 0, len(fields))
	for _, f := range fields {
		f.AddTo(enc)
		if v, ok := enc.Fields[f.Key]; ok {
			out = append(out, slog.Any(f.Key, v))
		}
	}
	return out
}
