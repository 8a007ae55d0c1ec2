// Package history plays random histories on a storage and the layers above it, and checks
// afterwards that every response was right.
//
// It finds errors between parts that each pass the conformance suite
// (internal/testing/storetest). Writers, readers and watchers use all [Door]s of a [System]
// at the same time, while parts of it are restarted and history is compacted. Their
// operations come from a seed; their order in time does not.
//
// Decisions:
//
//   - Clients record their calls and the responses, which are judged at the end, so that the
//     test adds no order to the calls.
//   - The truth is a sequence of commits, one for each revision. It comes from
//     [System.Journal] if writes may end with an unknown result, and is made from the
//     acknowledgements otherwise. A journal is judged too: every commit was requested, and
//     every acknowledged write is in it.
//   - Every state has a token of its own, so that no two writes look alike.
//   - Selections are judged by functions of this package, not by the selectors under test.
//   - A read must include everything that any client had seen before it began, and nothing
//     that was requested after it ended.
//   - Watchers at a compacted revision may get the difference between two states instead of the
//     events between them. Then the difference and the state after it are judged.
//
// Runs in: tests.
package history
