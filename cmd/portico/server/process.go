package server

import (
	"context"
	"log/slog"
	"os"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

	"portico/cmd/internal/pace"
	"portico/cmd/internal/supervise"
)

// serverProcess prepares a process that serves until ctx ends: its log, the pace
// of its garbage collector (see [pace.Keep]), and its end when the supervisor that
// may have started it is gone.
func serverProcess(ctx context.Context, flags LogFlags, work pace.Work) (*slog.Logger, error) {
	log, err := flags.Open(os.Stderr)
	if err != nil {
		return nil, err
	}
	slog.SetDefault(log)
	// Upstream's engines log through klog. Their information is shown with -v only.
	klog.SetLogger(logr.FromSlogHandler(log.Handler()).V(1))
	go pace.Keep(ctx, work)
	// At once: the other processes of the supervisor end as well.
	return log, supervise.WatchLifeline(func() {
		log.Error("the supervisor is gone")
		os.Exit(1)
	})
}
