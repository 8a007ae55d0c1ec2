package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico/apiservice/backend"
)

// Flags of the policy.
const (
	flagBalance         = "balance"
	flagHealthPath      = "health-path"
	flagHealthInterval  = "health-interval"
	flagConnectTimeout  = "connect-timeout"
	flagResponseTimeout = "response-timeout"
	flagRetryPercent    = "retry-percent"
	flagConcurrent      = "concurrent"
	flagQueue           = "queue"
)

// policyFlags are the flags of how requests are sent. What no flag sets is not applied.
type policyFlags struct {
	// set reports whether a flag was given; nil: none was.
	set func(flag string) bool

	balance                         string
	healthPath                      string
	healthInterval                  time.Duration
	connectTimeout, responseTimeout time.Duration
	retryPercent                    int32
	concurrent, queue               int32
}

// says reports whether a flag was given.
func (p *policyFlags) says(flag string) bool { return p.set != nil && p.set(flag) }

func (p *policyFlags) add(fs *pflag.FlagSet) {
	p.set = fs.Changed
	fs.StringVar(&p.balance, flagBalance, "", "load balancing `policy`: LeastRequest, RoundRobin or ConsistentHash (by user) (default: LeastRequest)")
	fs.StringVar(&p.healthPath, flagHealthPath, "", "`path` of the health check of each endpoint; 2xx is healthy (default: its discovery)")
	fs.DurationVar(&p.healthInterval, flagHealthInterval, 0, "`time` between health checks (default: 5s)")
	fs.DurationVar(&p.connectTimeout, flagConnectTimeout, 0, "maximum `time` to connect to an endpoint (default: 1s)")
	fs.DurationVar(&p.responseTimeout, flagResponseTimeout, 0, "maximum `time` until the response begins (default: 60s)")
	fs.Int32Var(&p.retryPercent, flagRetryPercent, 0, "maximum `percent` of requests that are retried, beside three a second; 0 means no retries (default: 20)")
	fs.Int32Var(&p.concurrent, flagConcurrent, 0, "maximum `number` of requests in flight, without watches (default: 1024)")
	fs.Int32Var(&p.queue, flagQueue, 0, "maximum `number` of requests that wait (default: 256)")
}

// apply puts into a spec what the flags say.
func (p *policyFlags) apply(s *backend.Spec) {
	s.Balance = backend.Balance(p.balance)
	duration := func(flag string, d time.Duration) *metav1.Duration {
		if !p.says(flag) {
			return nil
		}
		return &metav1.Duration{Duration: d}
	}
	number := func(flag string, n int32) *int32 {
		if !p.says(flag) {
			return nil
		}
		return &n
	}
	if p.says(flagHealthPath) || p.says(flagHealthInterval) {
		s.HealthCheck = &backend.HealthCheck{Path: p.healthPath, Interval: duration(flagHealthInterval, p.healthInterval)}
	}
	if p.says(flagConnectTimeout) || p.says(flagResponseTimeout) {
		s.Timeouts = &backend.Timeouts{Connect: duration(flagConnectTimeout, p.connectTimeout), ResponseHeader: duration(flagResponseTimeout, p.responseTimeout)}
	}
	if p.says(flagRetryPercent) {
		s.Retries = &backend.Retries{BudgetPercent: &p.retryPercent}
		if p.retryPercent == 0 {
			s.Retries.MinPerSecond = new(int32)
		}
	}
	if p.says(flagConcurrent) || p.says(flagQueue) {
		s.Limits = &backend.Limits{Concurrent: number(flagConcurrent, p.concurrent), Queue: number(flagQueue, p.queue)}
	}
}

// parseEndpoint reads URL[=WEIGHT]. What a URL must look like is the server's to
// say; that there is no "=" in one of a host is certain. A socket's path may hold
// one, and what follows it there is a weight if it is a number.
func parseEndpoint(text string) (backend.Endpoint, error) {
	i := strings.LastIndexByte(text, '=')
	number := i >= 0 && i < len(text)-1 && strings.Trim(text[i+1:], "0123456789") == ""
	switch {
	case i < 0 || !number && strings.HasPrefix(text, backend.Unix+":"):
		return backend.Endpoint{URL: text}, nil
	case i == 0:
		return backend.Endpoint{}, errors.New("--url: the URL is missing, as in --url=https://10.0.0.1:8443=90")
	}
	weight, err := strconv.ParseInt(text[i+1:], 10, 32)
	if err != nil || !number {
		return backend.Endpoint{}, fmt.Errorf("--url %q: the weight %q must be a number from 0 to 1000", text, text[i+1:])
	}
	w := int32(weight)
	return backend.Endpoint{URL: text[:i], Weight: &w}, nil
}
