// Package doctor is the command that examines an installation: a table of checks of the machine,
// the data folder, the gateway, etcd, the servers behind it and its objects, each with advice.
// It sends few requests and changes nothing, but for the checks that --write allows. The command
// upgrade-check has another table, of what this version would meet if it took the installation over.
//
// Runs in: portico doctor, portico upgrade-check.
package doctor
