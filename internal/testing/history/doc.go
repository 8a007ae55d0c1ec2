// Package history plays random histories on a storage and everything that
// is stacked on it, and proves afterwards that nobody was told anything wrong.
//
// Its duty is what the conformance suite (resource/storetest) cannot do: to
// find what goes wrong between things that are right one by one. Writers,
// readers and watchers work through all [Door]s of a [System] at once, while
// parts of it are restarted and history is compacted. What they do comes from a
// seed; how it interleaves does not, which is the point.
//
// Decisions that shaped it:
//
//   - Nothing is judged while the history runs. Everybody notes what was asked
//     and what was answered; judgement comes when it is known what happened, so
//     that the test adds no order of its own to what it tests.
//   - What happened is a sequence of commits, one for each revision: told by a
//     [System.Journal] where a write may end without its writer knowing how,
//     else put together from the acknowledgements. In the first case the journal
//     is judged too: every commit was asked for, every acknowledgement kept.
//   - Every state has a token of its own, so that no two writes look alike.
//   - Selections are judged by functions of this package, not by the selectors
//     that they test.
//   - A read has to show what had been seen by anybody, in any way, before it
//     began, and nothing that was asked for only after it ended.
//   - Watchers that a compaction has cut off may be told the difference between
//     two states in the place of what led from one to the other. Then what is
//     judged is that it is the difference, that they know the right state after
//     it, and that whoever leaves in its midst is told the rest elsewhere.
//
// Runs in: tests.
package history
