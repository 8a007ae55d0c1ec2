package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// loadTool is a load generator. args come before the duration, which has a flag of one
// letter, the headers and the URL. parse gets standard output and standard error.
type loadTool struct {
	protocol, program, debian string
	args                      []string
	duration                  rune
	parse                     func(output, log string) (turnResult, error)
}

// turnResult is the result of one run of a tool.
type turnResult struct {
	rate     float64 // requests per second
	p50, p99 time.Duration
}

// Both tools keep 16 requests in flight and use one thread, so that the servers
// have the other of two processors.
var (
	wrk    = loadTool{"HTTP/1.1", "wrk", "wrk", []string{"-t1", "-c16", "--latency"}, 'd', parseWrk}
	h2load = loadTool{"HTTP/2", "h2load", "nghttp2-client", []string{"-t1", "-c4", "-m4", "--warm-up-time=1", "--log-file=/dev/stderr"}, 'D', parseH2load}
)

// findTools returns an error that names the Debian packages of missing tools.
func findTools() error {
	var missing []string
	for _, t := range []loadTool{h2load, wrk} {
		if _, err := exec.LookPath(t.program); err != nil {
			missing = append(missing, t.debian)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("programs are missing; install them with: apt-get install %s", strings.Join(missing, " "))
	}
	return nil
}

// run runs the tool against url for the duration.
func (t loadTool) run(ctx context.Context, url, token string, duration time.Duration) (turnResult, error) {
	args := append(slices.Clone(t.args), fmt.Sprintf("-%c%d", t.duration, int(duration.Seconds())), "-H", "Accept: application/json")
	if token != "" {
		args = append(args, "-H", "Authorization: Bearer "+token)
	}
	cmd := exec.CommandContext(ctx, t.program, append(args, url)...)
	var output, log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &log
	err := cmd.Run()
	var result turnResult
	if err == nil {
		result, err = t.parse(output.String(), log.String())
	}
	if err != nil {
		return turnResult{}, fmt.Errorf("%s: %w\n%s%.2000s", t.program, err, &output, &log)
	}
	return result, nil
}

var (
	wrkRate    = regexp.MustCompile(`(?m)^Requests/sec: +([0-9.]+)$`)
	wrkLatency = regexp.MustCompile(`(?m)^ +(50|99)% +([0-9.]+(?:us|ms|s|m))$`)
	h2loadRate = regexp.MustCompile(`(?m)^finished in [^,]+, ([0-9.]+) req/s`)
	h2loadBad  = regexp.MustCompile(`[1-9]\d* (?:failed|errored|timeout|3xx|4xx|5xx)\b`)
)

// parseWrk reads the output of wrk --latency.
func parseWrk(output, _ string) (r turnResult, err error) {
	rate := wrkRate.FindStringSubmatch(output)
	latencies := wrkLatency.FindAllStringSubmatch(output, -1)
	if rate == nil || len(latencies) != 2 || strings.Contains(output, "Non-2xx") || strings.Contains(output, "Socket errors") {
		return r, errors.New("not all requests succeeded")
	}
	var errs [3]error
	r.rate, errs[0] = strconv.ParseFloat(rate[1], 64)
	r.p50, errs[1] = time.ParseDuration(latencies[0][2])
	r.p99, errs[2] = time.ParseDuration(latencies[1][2])
	return r, errors.Join(errs[:]...)
}

// parseH2load reads the output of h2load, which has no percentiles, and its log:
// a line per request of start time, status and duration in microseconds.
func parseH2load(output, log string) (r turnResult, err error) {
	rate := h2loadRate.FindStringSubmatch(output)
	if rate == nil || h2loadBad.MatchString(output) {
		return r, errors.New("not all requests succeeded")
	}
	if r.rate, err = strconv.ParseFloat(rate[1], 64); err != nil {
		return r, err
	}
	var s sample
	for line := range strings.Lines(log) {
		fields := strings.Fields(line)
		// Status 0: the request began in the warm-up.
		if len(fields) != 3 || fields[1] != "200" && fields[1] != "0" {
			return r, fmt.Errorf("unexpected line in the log: %q", line)
		}
		us, err := strconv.Atoi(fields[2])
		if err != nil {
			return r, err
		}
		s.latencies = append(s.latencies, time.Duration(us)*time.Microsecond)
	}
	if len(s.latencies) == 0 {
		return r, errors.New("the log has no requests")
	}
	r.p50, r.p99 = s.quantile(0.5), s.quantile(0.99)
	return r, nil
}
