package process

import (
	"context"
	"log/slog"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
)

// ClientLog returns a context with which client-go writes to a log until ctx ends.
func ClientLog(ctx context.Context, log *slog.Logger) context.Context {
	return klog.NewContext(ctx, logr.FromSlogHandler(clientLog{log.Handler(), ctx}))
}

// clientLog is the log of client-go. Its informers report every interruption of a watch as an
// error and repeat it by themselves: that is information. Once ctx has ended, so have they, and
// they report nothing.
type clientLog struct {
	slog.Handler
	ctx context.Context
}

// Enabled implements slog.Handler.
func (l clientLog) Enabled(ctx context.Context, level slog.Level) bool {
	return l.ctx.Err() == nil && l.Handler.Enabled(ctx, min(level, slog.LevelInfo))
}

// Handle implements slog.Handler.
func (l clientLog) Handle(ctx context.Context, r slog.Record) error {
	r.Level = min(r.Level, slog.LevelInfo)
	return l.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (l clientLog) WithAttrs(attrs []slog.Attr) slog.Handler {
	return clientLog{l.Handler.WithAttrs(attrs), l.ctx}
}

// WithGroup implements slog.Handler.
func (l clientLog) WithGroup(name string) slog.Handler {
	return clientLog{l.Handler.WithGroup(name), l.ctx}
}
