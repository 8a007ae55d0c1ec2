// Package server has the commands that serve, portico gateway, core, crd and etcd. Their flags
// become the Config of packages, which do not read flags.
//
// Runs in: gateway, core, crd, etcd.
package server
