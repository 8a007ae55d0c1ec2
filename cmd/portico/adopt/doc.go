// Package adopt is the command that says what of an etcd that kube-apiserver wrote Portico
// would serve, and that prepares it to be served.
//
// Portico has kube-apiserver's keys and forms, so adoption converts nothing. The survey reads
// every key once and counts outcomes per resource: its memory grows with the kinds, not with
// the objects. What is written is listed first, and a copy that kube-apiserver still uses is
// never written to.
//
// Runs in: portico adopt.
package adopt
