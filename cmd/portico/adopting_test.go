package main

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.uber.org/zap"

	"portico/cmd/e2e"
	"portico/internal/testing/etcdtest"
	"portico/resource"
	"portico/resource/etcd"
)

// The data folder that etcdutl makes of a snapshot is that of the embedded etcd, and what
// another server stored in it is served: a Service keeps its address.
func TestUpOnTheSnapshotOfAnotherEtcd(t *testing.T) {
	t.Parallel()
	e2e.NeedsInstallation(t)
	server := etcdtest.Start(t)
	client, err := etcd.Open(etcd.Config{Endpoints: []string{server.DirectEndpoint()}})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for info, text := range map[*resource.Info]string{
		{Versions: []string{"v1"}, Resource: "namespaces", Kind: "Namespace", Path: "namespaces"}: `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"shop","uid":"a"},` +
			`"spec":{"finalizers":["kubernetes"]},"status":{"phase":"Active"}}`,
		{Versions: []string{"v1"}, Resource: "services", Kind: "Service", Path: "services/specs", Namespaced: true}: `{"apiVersion":"v1","kind":"Service",` +
			`"metadata":{"namespace":"shop","name":"old","uid":"b"},"spec":{"type":"ClusterIP","clusterIP":"10.43.0.9","clusterIPs":["10.43.0.9"],` +
			`"ipFamilies":["IPv4"],"ipFamilyPolicy":"SingleStack","internalTrafficPolicy":"Cluster","sessionAffinity":"None","ports":[{"port":80,"protocol":"TCP","targetPort":80}]}}`,
	} {
		o, err := resource.Parse([]byte(text))
		if err == nil {
			_, err = client.Store(info).Create(t.Context(), o.Key(), o, 0)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	server.Stop()
	dir := t.TempDir()
	if err := snapshot.NewV3(zap.NewNop()).Restore(snapshot.RestoreConfig{
		SnapshotPath: filepath.Join(server.DataDir, "member/snap/db"), SkipHashCheck: true, OutputDataDir: filepath.Join(dir, "etcd"),
		Name: "default", InitialCluster: "default=http://localhost:2380", InitialClusterToken: "etcd-cluster", PeerURLs: []string{"http://localhost:2380"},
	}); err != nil {
		t.Fatal(err)
	}
	up := e2e.Install(t, dir, "--service-cluster-ip-range=10.43.0.0/16")
	up.Shows(t, "/api/v1/namespaces/shop/services/old", `"10.43.0.9"`)
	code, answer := up.Do(t, http.MethodPost, "/api/v1/namespaces/shop/services",
		`{"apiVersion":"v1","kind":"Service","metadata":{"name":"new"},"spec":{"clusterIP":"10.43.0.9","ports":[{"port":80}]}}`)
	if code != http.StatusUnprocessableEntity || !strings.Contains(answer, "failed to allocate IP 10.43.0.9: provided IP is already allocated") {
		t.Errorf("a Service with the address of another: %d %s", code, answer)
	}
	up.Shows(t, "/apis/networking.k8s.io/v1/ipaddresses/10.43.0.9", `"name":"old"`)
}
