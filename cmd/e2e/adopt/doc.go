// Package adopt starts Portico on an etcd that kube-apiserver wrote: on a recording of one (go
// test), and on a new one, with kube-apiserver started again on what Portico wrote there
// (.ci/long adopt, which makes the recording again with UPDATE=1).
//
// Runs in: tests.
package adopt
