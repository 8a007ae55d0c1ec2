package pace

import (
	"fmt"
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
// keeps its share of GOMAXPROCS for as long, and timers may be late by as much. In
// the gateway none is that fine. In the servers behind it reads gather for
// fractions of a millisecond, and consistent GETs took 30 % longer: not for them.
const slack = 4 * time.Millisecond

// Relax gives all threads of this process a slack of 4 ms for their timers, unless
// it has been given to them already. What a thread has it gives to those that it
// starts, and the runtime's monitor is started before any code of ours; so Relax
// executes the program anew, with the same arguments, environment, open files and
// process id, and does not return from that. It is for the first lines of main,
// with no other goroutine at work. On other systems than Linux there is no such
// thing and nothing to do.
//
// Source: prctl(2), PR_SET_TIMERSLACK.
func Relax() error {
	if err := relax(); err != nil {
		return fmt.Errorf("give timers a slack of %v: %w", slack, err)
	}
	return nil
}
