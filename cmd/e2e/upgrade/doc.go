// Package upgrade tests that this version takes over what released versions have stored: in go test a data folder of
// the oldest release (testdata), and with the build tag upgrade data that the binaries of all releases take over from
// each other, forwards and one step back, and processes of two versions side by side.
//
// Runs in: tests.
package upgrade
