// Package supervise keeps child processes running: it starts them, checks when they are ready,
// restarts them when they end, and stops them.
//
// Decisions:
//
//   - A child has a process group of its own, so that Ctrl-C reaches the supervisor only,
//     which stops the children in order.
//   - A child does not outlive the supervisor. On Linux the kernel kills it (parent-death
//     signal, which is tied to the thread that forked: Run keeps its thread while the child
//     runs). On every system the child holds the reading end of a pipe, the lifeline, and
//     exits when it closes.
//   - A child is restarted only if it ends, not if it is slow or stopped.
//   - Run fails, with the last line of the child's log, if a child ends repeatedly without
//     having been ready. A child that was ready once is always restarted.
//
// Runs in: portico up; the child's half of the lifeline in etcd, gateway, core and crd.
package supervise
