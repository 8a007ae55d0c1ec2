// Package ha tests the installation of deploy/machines: three gateways, two core and two CRD servers on three members of
// etcd, under load, while each process is killed, stopped, separated from the others, and restarted.
//
// Runs in: tests.
package ha
