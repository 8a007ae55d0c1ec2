package etcd

import (
	"context"
	"os"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	apiextensionsclientset "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	cacheddiscovery "k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	clientset "k8s.io/client-go/kubernetes"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/kubernetes/cmd/kube-apiserver/app/options"
	"k8s.io/kubernetes/test/integration"
	"k8s.io/kubernetes/test/integration/portico"
)

// startPortico is the rest of StartRealAPIServerOrDie for Portico.
func startPortico(t *testing.T, opts *options.ServerRunOptions, certDir string) *APIServer {
	t.Helper()
	raw, kv, err := integration.GetEtcdClients(opts.Etcd.StorageConfig.Transport)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kv.Delete(context.Background(), "/registry/", clientv3.WithPrefix()); err != nil {
		t.Fatal(err)
	}
	server, err := portico.Start(t, opts, false)
	if err != nil {
		t.Fatal(err)
	}
	config := restclient.CopyConfig(server.Config)
	config.QPS, config.Burst = 99999, 9999
	restclient.SetDefaultWarningHandler(restclient.NoWarnings{})
	client := clientset.NewForConfigOrDie(config)
	CreateTestCRDs(t, apiextensionsclientset.NewForConfigOrDie(config), false, GetCustomResourceDefinitionData()...)
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(cacheddiscovery.NewMemCacheClient(client.Discovery()))
	mapper.Reset()
	_, resources, err := client.Discovery().ServerGroupsAndResources()
	if err != nil {
		t.Fatal(err)
	}
	return &APIServer{
		Client: client, Dynamic: dynamic.NewForConfigOrDie(config), Config: config, KV: kv, Mapper: mapper,
		Resources: GetResources(t, resources),
		Cleanup: func() {
			server.Stop()
			raw.Close()
			if err := os.RemoveAll(certDir); err != nil {
				t.Log(err)
			}
		},
	}
}
