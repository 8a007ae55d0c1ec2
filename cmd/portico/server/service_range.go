package server

import (
	"fmt"
	"strings"

	"github.com/spf13/pflag"

	"portico/backends/core/services"
)

// DefaultServiceCIDR is the range of addresses of Services.
const DefaultServiceCIDR = "10.96.0.0/16"

// AddNodePorts adds --service-node-port-range.
func AddNodePorts(fs *pflag.FlagSet, to *string) {
	fs.StringVar(to, "service-node-port-range", "30000-32767", "`ports` of Services of type NodePort and LoadBalancer on nodes: first-last")
}

// ServiceHosts returns the names of Service default/kubernetes and the first address of each
// CIDR of Services, which are separated by commas.
func ServiceHosts(cidrs string) ([]string, error) {
	addresses, err := services.FirstAddresses(strings.Split(cidrs, ","))
	if err != nil {
		return nil, fmt.Errorf("--service-cluster-ip-range: %w", err)
	}
	return append([]string{"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"}, addresses...), nil
}
