package up

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"portico/resource/etcd"
)

// diagnoseInterval is the pause between two diagnoses of an etcd that does not answer.
const diagnoseInterval = 2 * time.Second

// checkEtcd returns why the user's etcd cannot be used if that lasts: a wrong certificate, a
// server that is no etcd. If etcd does not answer it prints why, at once and whenever the cause
// changes until etcd answers, and returns nil: the processes serve what the gateway knew last.
func (s *stack) checkEtcd(ctx context.Context) error {
	cfg := s.etcd.Config(slog.New(slog.DiscardHandler))
	problem := etcd.Diagnose(ctx, cfg)
	switch {
	case problem == nil || ctx.Err() != nil:
		return nil
	case etcd.Lasting(problem):
		return fmt.Errorf("--etcd-servers: %w", problem)
	}
	start := s.began
	s.say(waitingFor(start, "etcd: "+problem.Error()))
	go func() {
		said := problem.Error()
		for {
			select {
			case <-ctx.Done():
				return
			case <-time.After(diagnoseInterval):
			}
			switch problem := etcd.Diagnose(ctx, cfg); {
			case problem == nil:
				s.say("etcd answers")
				return
			case problem.Error() != said && ctx.Err() == nil:
				said = problem.Error()
				s.say(waitingFor(start, "etcd: "+said))
			}
		}
	}()
	return nil
}
