package server

import "github.com/spf13/pflag"

// DefaultServiceCIDR is the range of addresses of Services.
const DefaultServiceCIDR = "10.96.0.0/16"

// AddNodePorts adds --service-node-port-range.
func AddNodePorts(fs *pflag.FlagSet, to *string) {
	fs.StringVar(to, "service-node-port-range", "30000-32767", "`ports` of Services of type NodePort and LoadBalancer on nodes: first-last")
}
