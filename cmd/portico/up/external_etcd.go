package up

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"portico/resource/etcd"
)

const (
	// etcdPatience is how long up waits for the user's etcd, diagnoseInterval the pause between two attempts.
	etcdPatience     = 10 * time.Second
	diagnoseInterval = time.Second
)

// checkEtcd returns nil once the user's etcd answers, and why it cannot be used: at once for what lasts, such as a wrong
// certificate or a server that is no etcd, else after etcdPatience. Until then it prints the cause when that changes.
func (s *stack) checkEtcd(ctx context.Context) error {
	cfg := s.etcd.Config(slog.New(slog.DiscardHandler))
	asked := time.Now()
	var last error
	for {
		problem := etcd.Diagnose(ctx, cfg)
		switch {
		case problem == nil:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case etcd.Lasting(problem):
			return fmt.Errorf("--etcd-servers: %w", problem)
		case time.Since(asked) >= etcdPatience:
			return fmt.Errorf("--etcd-servers: no etcd has answered within %v: %w; start it, or name another one", etcdPatience, problem)
		case last == nil || problem.Error() != last.Error():
			s.say(at(s.began, "waiting for etcd: "+problem.Error()))
		}
		last = problem
		select {
		case <-ctx.Done():
		case <-time.After(diagnoseInterval):
		}
	}
}
