package testing

import (
	"fmt"

	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/client-go/kubernetes"
	restclient "k8s.io/client-go/rest"
	"k8s.io/kubernetes/cmd/kube-apiserver/app/options"
	"k8s.io/kubernetes/test/e2e/invariants/metrics"
	"k8s.io/kubernetes/test/integration/portico"
	"k8s.io/kubernetes/test/utils/ktesting"
)

// startPortico is the rest of StartTestServer for Portico.
func startPortico(tCtx ktesting.TContext, t ktesting.TB, instance *TestServerInstanceOptions, s *options.ServerRunOptions, storage *storagebackend.Config, result TestServer, tearDown func()) (TestServer, error) {
	t.Helper()
	switch {
	case instance.StorageVersionWrapFunc != nil:
		t.Skipf("in-process StorageVersionWrapFunc")
	case instance.BinaryVersion != "":
		t.Skipf("has the binary version %s", instance.BinaryVersion)
	}
	server, err := portico.Start(t, s, instance.SkipHealthzCheck)
	if err != nil {
		return result, err
	}
	client, err := kubernetes.NewForConfig(server.Config)
	if err != nil {
		server.Stop()
		return result, err
	}
	etcd, _, err := GetEtcdClients(storage.Transport)
	if err != nil {
		server.Stop()
		return result, fmt.Errorf("create etcd client: %w", err)
	}
	result.ClientConfig = restclient.CopyConfig(server.Config)
	result.ClientConfig.QPS = 1000
	result.ClientConfig.Burst = 10000
	result.ServerOpts, result.EtcdClient, result.EtcdStoragePrefix = s, etcd, storage.Prefix
	result.TearDownFn = func() {
		if !instance.DisableInvariantChecks && tCtx.Err() == nil {
			if err := metrics.CheckMetricInvariants(tCtx, client, false); err != nil {
				tCtx.Errorf("Invariant check failed: %v", err)
			}
		}
		server.Stop()
		tearDown()
		if err := etcd.Close(); err != nil {
			t.Errorf("Failed to close etcd client: %v", err)
		}
	}
	return result, nil
}
