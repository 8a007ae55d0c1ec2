// Package installation has the form in which a gateway reports the processes of an
// installation. It is apart from package gateway for programs that read it.
//
// Runs in: gateway, portico status, logs and doctor.
package installation

import (
	"time"

	"portico/resource/etcd"
	"portico/resource/identity"
)

// Path is where a Report is read. It needs the right to get the non-resource path.
const Path = "/debug/installation"

// Report is what one gateway sees of the processes of an installation, for people.
type Report struct {
	// Instance is the gateway that answers, and Started when it started.
	Instance string    `json:"instance"`
	Version  string    `json:"version"`
	Started  time.Time `json:"started"`
	// Time is that of the gateway's clock, by which Leases are judged.
	Time time.Time `json:"time"`
	// Processes are all gateways, core and CRD servers on the etcd of the gateway.
	Processes []identity.Process `json:"processes"`
	// Servers are the core and the CRD server, as the gateway reaches them.
	Servers []Server    `json:"servers"`
	Etcd    etcd.Report `json:"etcd"`
}

// Server is a process behind the gateway.
type Server struct {
	Name string `json:"name"`
	// Error is why it does not answer the gateway; "" if it does.
	Error string `json:"error,omitempty"`
}
