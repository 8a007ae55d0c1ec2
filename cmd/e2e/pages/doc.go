// Package pages follows pages of deploy as a reader does, on a Debian system that it makes and boots: systemd is process 1 of
// namespaces with a root and a loopback of their own, and Docker is a service there.
//
// Runs in: .ci/long boot.
package pages
