package pace

import (
	"fmt"
	"log/slog"
	"runtime"
	"time"
)

// slack is how late the kernel may end a sleep.
//
// Go's monitor thread sleeps 20 µs at a time once a system call has followed a
// moment in which a process had nothing to do, in case a processor has to be
// taken from a call that lasts. Between requests there is nearly always such a
// moment: a gateway that passed on 5,000 requests a second with one processor was
// interrupted 4,300 times a second to find nothing. With 4 ms a request took
// 122 µs of a processor in the place of 150, and the gateway added 0.2 ms to it in
// the place of 0.35; with 1 ms it took 2 % more.
//
// The price: a thread whose system call lasts, a write to a log on a slow disk,
// keeps the processor for as long, and timers may be late by it. With more than one
// there would be another: the runtime waits 3 µs before it takes from a processor
// what that is about to run next, and would wait 4 ms. And in the servers behind the
// gateway reads gather for fractions of a millisecond: consistent GETs took 30 %
// longer.
const slack = 4 * time.Millisecond

// Relax gives all threads of a process that has one processor (GOMAXPROCS) a slack of
// 4 ms for their timers. What a thread has it gives to those that it makes, and the
// runtime's monitor is made before any code of ours runs; so Relax executes the
// program anew, with the same arguments, open files and process id, and does not
// return from that. It is for the first lines of main, with no other goroutine at
// work. Should there be more processors later, Keep takes the slack back. On other
// systems than Linux there is no such thing and nothing to do.
//
// Source: prctl(2), PR_SET_TIMERSLACK.
func Relax() error {
	if runtime.GOMAXPROCS(0) > 1 {
		return nil
	}
	if err := relax(); err != nil {
		return fmt.Errorf("give timers a slack of %v: %w", slack, err)
	}
	return nil
}

// relaxed is what Keep knows of the slack.
type relaxed bool

// look takes the slack back if there is more than one processor by now.
func (r *relaxed) look() {
	if !*r || runtime.GOMAXPROCS(0) == 1 {
		return
	}
	if err := tighten(); err != nil {
		slog.Warn("timers of this process stay late; start it again", "by", slack, "err", err)
	}
	*r = false
}
