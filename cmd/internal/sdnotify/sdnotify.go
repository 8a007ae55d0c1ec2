// Package sdnotify tells systemd whether a process is ready, alive or stopping, by the protocol
// of sd_notify(3): datagrams to the socket that $NOTIFY_SOCKET names. Without that variable it
// does nothing.
//
// Runs in: portico up, gateway, core, crd.
package sdnotify

import (
	"context"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	// startInterval is the pause between checks until the process is ready, and of a check of
	// its life that failed.
	startInterval = 100 * time.Millisecond
	// idleInterval is the pause between checks without a watchdog.
	idleInterval = 10 * time.Second
)

// Checks are what the process says of itself. Both are called by one goroutine.
type Checks struct {
	// Ready returns why the process is not ready; nil if it is.
	Ready func(context.Context) error
	// Live returns why the process should be started again; nil if it should not. While it
	// fails, the watchdog gets no sign of life.
	Live func(context.Context) error
}

// Start sends READY=1 once Ready has passed, STATUS= whenever it changes, WATCHDOG=1 at half of
// $WATCHDOG_USEC while Live passes, and STOPPING=1 at the end of ctx. stop ends it: the watchdog
// expects signs of life during the shutdown too. Start removes the variables from the
// environment, so that no child speaks for this process.
func Start(ctx context.Context, checks Checks) (stop func()) {
	socket, usec, pid := os.Getenv("NOTIFY_SOCKET"), os.Getenv("WATCHDOG_USEC"), os.Getenv("WATCHDOG_PID")
	for _, name := range []string{"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"} {
		_ = os.Unsetenv(name) // fails for invalid names only
	}
	if socket == "" {
		return func() {}
	}
	n := &notifier{socket: socket, checks: checks, interval: idleInterval}
	if watchdog, err := strconv.ParseInt(usec, 10, 64); err == nil && watchdog > 0 && (pid == "" || pid == strconv.Itoa(os.Getpid())) {
		n.watched, n.interval = true, time.Duration(watchdog)*time.Microsecond/2
	}
	running, end := context.WithCancel(context.WithoutCancel(ctx))
	var wait sync.WaitGroup
	wait.Go(func() { n.run(ctx, running) })
	return func() {
		end()
		wait.Wait()
	}
}

// notifier sends the state of a process. One goroutine uses it.
type notifier struct {
	socket   string
	checks   Checks
	interval time.Duration
	watched  bool      // by a watchdog
	alive    time.Time // WATCHDOG=1 was sent last
	ready    bool      // READY=1 was sent
	status   string
}

// run notifies until running ends; serving ends when the process begins to stop.
func (n *notifier) run(serving, running context.Context) {
	stopping := serving.Done()
	for {
		pause := n.check(running, stopping == nil)
		select {
		case <-running.Done():
			return
		case <-stopping:
			stopping = nil
			n.send("STOPPING=1")
		case <-time.After(pause):
		}
	}
}

// check checks the process, sends what is new, and returns the pause until the next check.
func (n *notifier) check(ctx context.Context, stopping bool) time.Duration {
	ctx, cancel := context.WithTimeout(ctx, max(n.interval, startInterval))
	defer cancel()
	live, ready := n.checks.Live(ctx), n.checks.Ready(ctx)
	status := "serving"
	switch {
	case stopping:
		status = "stopping"
	case live != nil && n.ready:
		status = "not alive: " + live.Error()
	case ready != nil:
		status = "not ready: " + ready.Error()
	}
	var lines []string
	if ready == nil && !n.ready {
		n.ready, lines = true, append(lines, "READY=1")
	}
	if status != n.status {
		n.status, lines = status, append(lines, "STATUS="+strings.ReplaceAll(status, "\n", " "))
	}
	if n.watched && live == nil && time.Since(n.alive) >= n.interval {
		n.alive, lines = time.Now(), append(lines, "WATCHDOG=1")
	}
	if !n.send(lines...) { // systemd may be starting again itself
		n.ready, n.status, n.alive = false, "", time.Time{}
	}
	switch {
	case !n.ready || n.watched && live != nil:
		return min(startInterval, n.interval)
	case n.watched:
		return n.interval - time.Since(n.alive)
	}
	return n.interval
}

// send sends lines in one datagram, and reports whether systemd has it.
func (n *notifier) send(lines ...string) bool {
	if len(lines) == 0 {
		return true
	}
	// A name that begins with @ is in the abstract namespace, for systemd and for package net.
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Net: "unixgram", Name: n.socket})
	if err != nil {
		return false
	}
	defer conn.Close()
	_, err = conn.Write([]byte(strings.Join(lines, "\n")))
	return err == nil
}
