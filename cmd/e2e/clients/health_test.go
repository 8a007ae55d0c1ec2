package clients

import (
	"testing"

	"portico/cmd/e2e"
)

// upstreamChecks are the checks that upstream's end-to-end test of health endpoints looks for in each of them.
var upstreamChecks = []string{
	"ping", "log", "etcd",
	"poststarthook/start-apiserver-admission-initializer", "poststarthook/generic-apiserver-start-informers",
	"poststarthook/start-apiextensions-informers", "poststarthook/start-apiextensions-controllers", "poststarthook/crd-informer-synced",
	"poststarthook/bootstrap-controller", "poststarthook/start-system-namespaces-controller",
	"poststarthook/start-service-ip-repair-controllers", "poststarthook/scheduling/bootstrap-system-priority-classes",
	"poststarthook/start-legacy-token-tracking-controller",
	"poststarthook/start-cluster-authentication-info-controller", "poststarthook/start-kube-aggregator-informers",
	"poststarthook/apiservice-registration-controller", "poststarthook/apiservice-status-local-available-controller",
	"poststarthook/apiservice-status-remote-available-controller", "poststarthook/kube-apiserver-autoregistration",
	"autoregister-completion", "poststarthook/apiservice-openapi-controller", "poststarthook/storage-readiness",
}

// The health endpoints of a gateway list the checks of kube-apiserver. A check of the core or the CRD server is listed once
// it has passed there.
func TestHealthChecksOfUpstream(t *testing.T) {
	t.Parallel()
	up := e2e.SharedInstallation(t)
	for _, endpoint := range []string{"healthz", "livez", "readyz"} {
		for _, name := range upstreamChecks {
			up.Shows(t, "/"+endpoint+"?verbose", "[+]"+name+" ok\n")
			up.Shows(t, "/"+endpoint+"/"+name, "ok")
		}
	}
	up.Shows(t, "/readyz?verbose", "[+]informer-sync ok\n")
}
