// Package loop holds the shapes that every control loop of Portico is built
// from: try again with backoff ([Retry]), be woken once for many reasons
// ([Nudge]), turn a Store's list and watch into whole snapshots ([Follow]),
// and keep live things in step with a snapshot ([Entries]).
//
// Decisions that shaped it:
//
//   - A loop reconciles the whole state, never an event. What Follow hands on
//     is everything there is, so a missed or repeated event cannot matter.
//   - Last-good is kept. While a store does not answer nothing is published;
//     an empty snapshot means that the store said so.
//   - Live things are retired after they were replaced: swap, cancel, wait.
//
// Runs in: gateway, core, crd.
package loop
