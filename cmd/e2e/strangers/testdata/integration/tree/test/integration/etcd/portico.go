package etcd

import (
	"bytes"
	"context"
	"encoding/json"
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
	"k8s.io/kubernetes/pkg/api/legacyscheme"
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
		Client: client, Dynamic: dynamic.NewForConfigOrDie(config), Config: config, KV: asJSON{kv}, Mapper: mapper,
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

// asJSON returns values in JSON, in which the tests let kube-apiserver store them, by a flag; Portico stores built-in kinds
// as protobuf.
type asJSON struct{ clientv3.KV }

// Get implements clientv3.KV.
func (k asJSON) Get(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	response, err := k.KV.Get(ctx, key, opts...)
	if err != nil {
		return nil, err
	}
	for _, kv := range response.Kvs {
		if !bytes.HasPrefix(kv.Value, []byte("k8s\x00")) {
			continue
		}
		obj, gvk, err := legacyscheme.Codecs.UniversalDeserializer().Decode(kv.Value, nil, nil)
		if err != nil {
			return nil, err
		}
		obj.GetObjectKind().SetGroupVersionKind(*gvk)
		if kv.Value, err = json.Marshal(obj); err != nil {
			return nil, err
		}
	}
	return response, nil
}
