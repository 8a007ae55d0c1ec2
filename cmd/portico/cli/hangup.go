package cli

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// StopSignals returns the signals that stop a command in order. With a terminal SIGHUP is one of
// them: the terminal was closed. Without, processes read files again; see OnHangup.
func StopSignals() []os.Signal {
	signals := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if signal.Ignored(syscall.SIGHUP) { // by nohup
		return signals
	}
	terminal, err := os.Open("/dev/tty")
	if err != nil {
		return signals
	}
	_ = terminal.Close()
	return append(signals, syscall.SIGHUP)
}

// OnHangup calls do for each SIGHUP until ctx ends. It returns at once.
func OnHangup(ctx context.Context, do func()) {
	if signal.Ignored(syscall.SIGHUP) {
		return
	}
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	go func() {
		defer signal.Stop(hangups)
		for {
			select {
			case <-hangups:
				do()
			case <-ctx.Done():
				return
			}
		}
	}()
}
