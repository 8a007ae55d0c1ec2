package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"
)

// ratesOptions are the flags of "bench rates".
type ratesOptions struct {
	portico       string
	rounds, size  int
	watches       int
	turn, timeout time.Duration
}

// newRatesCommand returns the command that measures the gateway as a proxy.
func newRatesCommand() *cobra.Command {
	o := ratesOptions{rounds: 5, size: 3500, watches: 2000, turn: 4 * time.Second, timeout: 15 * time.Minute}
	cmd := &cobra.Command{
		Use:   "rates --portico PROGRAM",
		Short: "Measure the gateway as a proxy beside a bare ReverseProxy, with h2load and wrk",
		Long: "Measure requests per second and latency of the gateway (token, RBAC, metrics, audit log) and of a bare ReverseProxy before\n" +
			"the same static server, with h2load over HTTP/2 and wrk over HTTP/1.1, in turns; then the memory of idle watches. TLS on\n" +
			"both hops. Requires the Debian packages nghttp2-client and wrk.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.portico == "" || o.rounds < 1 || o.size < smallObject || o.turn < time.Second || o.watches < 0 {
				return fmt.Errorf("rates needs --portico, --rounds of at least 1, --size of at least %d and --turn of at least 1s", smallObject)
			}
			if err := findTools(); err != nil {
				return err
			}
			ctx, cancel := context.WithTimeoutCause(cmd.Context(), o.timeout, fmt.Errorf("it took longer than --limit=%v", o.timeout))
			defer cancel()
			return measureRates(ctx, &o, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&o.portico, "portico", "", "`program` to start an installation with, in a temporary folder")
	fs.IntVar(&o.rounds, "rounds", o.rounds, "turns of each server per protocol and size")
	fs.DurationVar(&o.turn, "turn", o.turn, "duration of a turn, in whole seconds")
	fs.IntVar(&o.size, "size", o.size, "bytes of the larger answer")
	fs.IntVar(&o.watches, "watches", o.watches, "number of idle watches to measure the memory of; 0 is none")
	fs.DurationVar(&o.timeout, "limit", o.timeout, "time limit of the run")
	return cmd
}

// server is a server under test. token is empty where none is needed.
type server struct {
	name, address, token string
	turns                []turnResult
}

// measureRates starts the servers, measures and writes the tables to out.
func measureRates(ctx context.Context, o *ratesOptions, out, errOut io.Writer) (err error) {
	progress := &progress{out: errOut, began: time.Now()}
	own := &options{portico: o.portico, profile: "on", connections: max(1, o.watches/watchesPerConnection), audit: true}
	installation, err := startInstallation(ctx, own)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, installation.stop()) }()
	admin, err := openTarget(ctx, own)
	if err != nil {
		return err
	}
	defer admin.close()
	backend, err := startChild(ctx, roleStaticServer, childConfig{Object: int64(o.size)})
	if err != nil {
		return fmt.Errorf("start static server: %w", err)
	}
	defer backend.stop()
	bare, err := startChild(ctx, "chain-proxy", childConfig{Upstream: backend.at, HTTP1: true})
	if err != nil {
		return fmt.Errorf("start ReverseProxy: %w", err)
	}
	defer bare.stop()
	token, err := register(ctx, admin, backend.at)
	if err != nil {
		return err
	}
	progress.say("started an installation in %s", installation.dir)
	servers := []*server{
		{name: "ReverseProxy", address: "https://" + bare.at.Address}, {name: "gateway", address: admin.base, token: token},
		{name: "static server", address: "https://" + backend.at.Address},
	}
	t := table(out, "protocol, answer", "server", "requests/s", "p50, ms", "p99, ms", "share of ReverseProxy's rate", "lowest–highest")
	for _, tool := range []loadTool{wrk, h2load} {
		for _, object := range []struct {
			name string
			size int
		}{{"small", smallObject}, {"large", o.size}} {
			what := fmt.Sprintf("%s, %d B", tool.protocol, object.size)
			if err := measureTurns(ctx, o, servers, tool, staticPath+"/"+object.name, progress, what); err != nil {
				return fmt.Errorf("%s: %w", what, err)
			}
			for _, s := range servers {
				fmt.Fprintf(t, "%s\t%s\n", what, s.row(servers[0]))
			}
		}
	}
	return errors.Join(t.Flush(), measureIdleWatches(ctx, o, own.dataDir, admin, out))
}

// measureTurns runs tool against each server in turns. The order changes from
// round to round, so that none always follows the same other one.
func measureTurns(ctx context.Context, o *ratesOptions, servers []*server, tool loadTool, path string, progress *progress, what string) error {
	for _, s := range servers {
		s.turns = nil
	}
	for round := range o.rounds {
		for i := range servers {
			s := servers[(round+i)%len(servers)]
			result, err := tool.run(ctx, s.address+path, s.token, o.turn)
			if err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
			s.turns = append(s.turns, result)
			progress.say("%s, %s, round %d of %d: %.0f requests/s", what, s.name, round+1, o.rounds, result.rate)
		}
	}
	return nil
}

// row returns the medians over the turns, and the rate as a share of yard's rate
// of the same round.
func (s *server) row(yard *server) string {
	var rates, halves, slowest, shares []float64
	for i, t := range s.turns {
		rates, halves, slowest = append(rates, t.rate), append(halves, milliseconds(t.p50)), append(slowest, milliseconds(t.p99))
		shares = append(shares, 100*t.rate/yard.turns[i].rate)
	}
	return fmt.Sprintf("%s\t%.0f\t%.2f\t%.2f\t%.0f %%\t%.0f–%.0f %%", s.name, median(rates), median(halves), median(slowest),
		median(shares), slices.Min(shares), slices.Max(shares))
}

// median sorts all and returns its middle.
func median(all []float64) float64 {
	slices.Sort(all)
	return (all[(len(all)-1)/2] + all[len(all)/2]) / 2
}
