package server

import (
	"context"
	"log/slog"
	"net/http"
	"os"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

	"portico/cmd/internal/logging"
	"portico/cmd/internal/pace"
	"portico/cmd/internal/sdnotify"
	"portico/cmd/internal/supervise"
	"portico/cmd/portico/cli"
	"portico/resource/authn"
	"portico/resource/encryption"
	"portico/resource/serve"
)

// serverProcess prepares a process that serves until ctx ends. It opens the log, the writer of which is the Output,
// sets the pace of the garbage collector (see [pace.Keep]), and ends the process when its supervisor is gone.
func serverProcess(ctx context.Context, flags LogFlags, work pace.Work) (*slog.Logger, *logging.Output, error) {
	output := logging.NewOutput(os.Stderr)
	log, err := flags.Open(output)
	if err != nil {
		return nil, nil, err
	}
	slog.SetDefault(log)
	// Upstream's engines log through klog. Their information is shown with -v only.
	klog.SetLogger(logr.FromSlogHandler(log.Handler()).V(1))
	go pace.Keep(ctx, work)
	cli.OnHangup(ctx, func() {
		log.Info("SIGHUP: files that changed are read again")
		authn.Reload()
	})
	// At once: the other processes of the supervisor end as well.
	return log, output, supervise.WatchLifeline(func() {
		log.Error("the supervisor is gone")
		os.Exit(1)
	})
}

// server is a gateway, a core server or a CRD server.
type server interface {
	Run(context.Context) error
	Health() *serve.Health
}

// runNotifying runs a server until ctx ends and tells systemd its state. It adds the health
// check log, which fails while the output of the log is blocked. A server is alive while
// etcd or a KMS is away: it serves what it can, and to start it again would not bring them back.
func runNotifying(ctx context.Context, s server, output *logging.Output) error {
	s.Health().AddLive("log", func(*http.Request) error { return output.Check() })
	defer sdnotify.Start(ctx, sdnotify.Checks{
		Ready: func(ctx context.Context) error { return s.Health().Failing(ctx, "readyz", encryption.CheckName) },
		Live:  func(ctx context.Context) error { return s.Health().Failing(ctx, "livez", "etcd") },
	})()
	return s.Run(ctx)
}
