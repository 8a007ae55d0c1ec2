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
//   - Only death has a child started again. One that is merely slow or stopped
//     is left alone: whoever asks its readiness decides what that means.
//   - A child that dies again and again without ever having been ready has a
//     reason that trying once more does not cure; Run gives up and repeats the
//     child's last words. Once it has been ready, Run never gives up.
//
// Runs in: portico up; the child's half of the lifeline in etcd, gateway, core and crd.
package supervise
