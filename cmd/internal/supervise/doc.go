// Package supervise keeps child processes running: it starts them, knows when
// they are ready, starts them again when they die, and stops them.
//
// Decisions:
//
//   - A child belongs to a process group of its own, so that a Ctrl-C at the
//     terminal reaches the supervisor alone and it decides the order of the end.
//   - A child never outlives the supervisor, however that ends. On Linux the
//     kernel sees to it (parent-death signal, which is tied to the thread that
//     forked: Run keeps its thread for as long as the child lives). Everywhere,
//     the child holds the reading end of a pipe, the lifeline, and goes when it
//     closes.
//   - A child is restarted only if it dies. One that is slow or stopped is not:
//     its readiness shows that.
//   - Run fails, with the last line of the child's log, if a child dies repeatedly
//     without having been ready. A child that was ready once is always restarted.
//
// Runs in: portico up; the child's half of the lifeline in etcd, gateway, core and crd.
package supervise
