package framework

import (
	"context"
	"os"
	"testing"

	client "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/kubernetes/cmd/kube-apiserver/app/options"
	"k8s.io/kubernetes/test/e2e/invariants/metrics"
	"k8s.io/kubernetes/test/integration/portico"
)

// startPortico is the rest of StartTestServer for Portico.
func startPortico(ctx context.Context, cancel func(), t testing.TB, setup TestServerSetup, opts *options.ServerRunOptions, certDir string) (client.Interface, *rest.Config, TearDownFunc) {
	t.Helper()
	remove := func() {
		cancel()
		if err := os.RemoveAll(certDir); err != nil {
			t.Log(err)
		}
	}
	started := false
	defer func() {
		if !started {
			remove()
		}
	}()
	token := portico.Configure(t, opts, setup.ModifyServerConfig)
	server, err := portico.Start(t, opts, false)
	if err != nil {
		t.Fatal(err)
	}
	started = true
	config := rest.CopyConfig(server.Config)
	config.CAData, config.CAFile = nil, opts.SecureServing.ServerCert.CertKey.CertFile
	if token != nil {
		config.BearerToken = *token
	}
	clientset, err := client.NewForConfig(config)
	if err != nil {
		server.Stop()
		t.Fatal(err)
	}
	// As the loopback client of kube-apiserver, it depends neither on the certificate nor on the authenticator of the test.
	own := rest.CopyConfig(server.Config)
	own.TLSClientConfig = rest.TLSClientConfig{Insecure: true}
	loopback, err := client.NewForConfig(own)
	if err != nil {
		server.Stop()
		t.Fatal(err)
	}
	return clientset, config, func() {
		if !setup.DisableInvariantChecks && ctx.Err() == nil {
			if err := metrics.CheckMetricInvariants(ctx, loopback, false); err != nil {
				t.Errorf("Invariant check failed: %v", err)
			}
		}
		server.Stop()
		remove()
	}
}
