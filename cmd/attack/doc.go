// Package attack tests a whole installation of real processes by attacks over raw
// connections.
//
// Each file has one class of attacks as a table. A row has a request and its expected
// result: the status, whether a server behind the gateway got the request, and of which
// user. Each table begins with control rows that must succeed, which show that the check
// detects the effect of an attack.
//
// All tests share one installation, which lives as long as the test binary: run
// them with -count=1.
//
// Floods, which take longer, have the build tag "floods" and are run by
// .ci/long floods.
//
// Runs in: tests.
package attack
