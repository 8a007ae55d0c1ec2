// Package attack holds no code of the program: its tests attack a whole
// installation, made of real processes, over raw connections.
//
// Each file has one class of attacks as a table. A row has what is sent, and
// what must be true then: the status, whether a server behind the gateway saw
// the request, and as which user. Each table begins with rows that must
// succeed, which show that the check would see the effect of an attack.
//
// All tests share one installation, which lives as long as the test binary: run
// them with -count=1.
//
// Floods, which take longer, have the build tag "floods" and are run by
// .ci/long floods.
//
// Runs in: tests.
package attack
