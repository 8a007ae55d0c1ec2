// Package backup has the commands that save an installation in one file and make another one from
// it: `portico backup` and `portico restore`.
//
// A backup is a tar of a manifest, the snapshot of etcd, the files of pki/ and the configuration
// file, in this order, compressed by gzip and, on request, encrypted by age (age-encryption.org/v1,
// so that the tool of that name reads it). The manifest has a hash of each of the others. Memory is
// bounded: all but the small files is streamed.
//
// Runs in: portico backup, portico restore.
package backup
