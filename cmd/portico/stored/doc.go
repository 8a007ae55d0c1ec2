// Package stored says what the etcd of an installation holds: the resources with the versions and encodings of their
// objects, Portico's own keys, and what this version of portico cannot read.
//
// Runs in: portico upgrade-check.
package stored
