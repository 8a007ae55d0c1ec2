// Package doctor is the command that examines an installation: a table of checks of the machine,
// the data folder, the gateway, etcd, the servers behind it and its objects, each with advice.
// It sends few requests and changes nothing, but for the checks that --write allows.
//
// Runs in: portico doctor.
package doctor
