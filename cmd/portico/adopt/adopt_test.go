package adopt

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"

	"portico/internal/testing/await"
	"portico/internal/testing/etcdtest"
	"portico/resource/identity"
)

// start returns the URL of an etcd with values at keys.
func start(t *testing.T, values map[string]string) (endpoint string, client *clientv3.Client) {
	t.Helper()
	server := etcdtest.Start(t)
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{server.Endpoint()}, DialTimeout: await.Patience()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	for key, value := range values {
		if _, err := client.Put(t.Context(), key, value); err != nil {
			t.Fatal(err)
		}
	}
	return server.Endpoint(), client
}

// run runs the command, and returns what it printed.
func run(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	cmd := New()
	cmd.SetArgs(args)
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

// masterLease returns what a running kube-apiserver stores for its address.
func masterLease(t *testing.T) string {
	t.Helper()
	//lint:ignore SA1019 kube-apiserver stores this kind
	return asStored(t, &corev1.Endpoints{})
}

// asStored returns an object as kube-apiserver stores it.
func asStored(t *testing.T, obj runtime.Object) string {
	t.Helper()
	gvks, _, err := scheme.Scheme.ObjectKinds(obj)
	if err != nil {
		t.Fatal(err)
	}
	obj.GetObjectKind().SetGroupVersionKind(gvks[0])
	var out bytes.Buffer
	if err := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme).Encode(obj, &out); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func meta(namespace, name string, labels ...string) metav1.ObjectMeta {
	m := metav1.ObjectMeta{Namespace: namespace, Name: name, UID: "u"}
	if len(labels) > 0 {
		m.Labels = map[string]string{labels[0]: labels[1]}
	}
	return m
}

// lease returns the lease of an API server that was renewed some time ago.
func lease(t *testing.T, name string, ago time.Duration) string {
	t.Helper()
	renewed := metav1.NewMicroTime(time.Now().Add(-ago))
	return asStored(t, &coordinationv1.Lease{ObjectMeta: meta("kube-system", name, identity.Label, "kube-apiserver"), Spec: coordinationv1.LeaseSpec{RenewTime: &renewed}})
}

// healthy are values that Portico serves, and those that it does not read.
func healthy(t *testing.T) map[string]string {
	t.Helper()
	const crd = `{"apiVersion":"apiextensions.k8s.io/v1beta1","kind":"CustomResourceDefinition","metadata":{"name":"widgets.example.com"},` +
		`"spec":{"group":"example.com","version":"v1","names":{"plural":"widgets","kind":"Widget"},"scope":"Namespaced",` +
		`"conversion":{"strategy":"Webhook"},"versions":[{"name":"v1","served":true,"storage":true},{"name":"v2","served":true}]}}`
	return map[string]string{
		"/registry/configmaps/default/a":                                           asStored(t, &corev1.ConfigMap{ObjectMeta: meta("default", "a")}),
		"/registry/configmaps/default/b":                                           `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"b","namespace":"default"}}`,
		"/registry/configmaps/default/kube-root-ca.crt":                            asStored(t, &corev1.ConfigMap{ObjectMeta: meta("default", "kube-root-ca.crt")}),
		"/registry/pods/default/bound":                                             asStored(t, &corev1.Pod{ObjectMeta: meta("default", "bound"), Spec: corev1.PodSpec{NodeName: "n"}}),
		"/registry/pods/default/free":                                              asStored(t, &corev1.Pod{ObjectMeta: meta("default", "free")}),
		"/registry/minions/n":                                                      asStored(t, &corev1.Node{ObjectMeta: meta("", "n")}),
		"/registry/leases/kube-node-lease/n":                                       asStored(t, &coordinationv1.Lease{ObjectMeta: meta("kube-node-lease", "n")}),
		"/registry/leases/kube-system/apiserver-old":                               lease(t, "apiserver-old", time.Hour),
		"/registry/services/specs/default/kubernetes":                              asStored(t, &corev1.Service{ObjectMeta: meta("default", "kubernetes")}),
		"/registry/services/specs/default/port":                                    asStored(t, &corev1.Service{ObjectMeta: meta("default", "port"), Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{NodePort: 80}}}}),
		"/registry/servicecidrs/kubernetes":                                        asStored(t, &networkingv1.ServiceCIDR{ObjectMeta: meta("", "kubernetes"), Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{"10.1.0.0/24", "fd00::/108"}}}),
		"/registry/clusterroles/admin":                                             asStored(t, &rbacv1.ClusterRole{ObjectMeta: meta("", "admin", labelBootstrap, "rbac-defaults")}),
		"/registry/clusterroles/mine":                                              asStored(t, &rbacv1.ClusterRole{ObjectMeta: meta("", "mine")}),
		"/registry/apiregistration.k8s.io/apiservices/v1.apps":                     `{"apiVersion":"apiregistration.k8s.io/v1","kind":"APIService","metadata":{"name":"v1.apps","labels":{"kube-aggregator.kubernetes.io/automanaged":"onstart"}}}`,
		"/registry/apiextensions.k8s.io/customresourcedefinitions/widgets.example": crd,
		"/registry/example.com/widgets/default/w":                                  `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w","namespace":"default"}}`,
		"/registry/things.example.com/things/default/t":                            `{"apiVersion":"things.example.com/v1","kind":"Thing","metadata":{"name":"t","namespace":"default"}}`,
		"/registry/ranges/serviceips":                                              asStored(t, &corev1.RangeAllocation{Range: "10.1.0.0/24"}),
	}
}

// The report has a row for each resource, version and outcome, and what follows for the flags of
// portico up; nothing is written.
func TestDryRun(t *testing.T) {
	t.Parallel()
	endpoint, client := start(t, healthy(t))
	got, err := run(t, "--dry-run", "--etcd-servers="+endpoint)
	if err != nil {
		t.Fatal(err)
	}
	want := `RESOURCE                                         VERSION                        OBJECTS   WHAT HAPPENS
apiservices.apiregistration.k8s.io               apiregistration.k8s.io/v1      1         served, changed at the first start: those of groups that Portico serves get its priorities, the others are removed
clusterroles.rbac.authorization.k8s.io           rbac.authorization.k8s.io/v1   1         served, changed at the first start: missing default rules and subjects are added
clusterroles.rbac.authorization.k8s.io           rbac.authorization.k8s.io/v1   1         served read-write
configmaps                                       v1                             1         served, changed at the first start: it gets the authorities of the installation
configmaps                                       v1                             1         served read-write
configmaps                                       v1                             1         served read-write
customresourcedefinitions.apiextensions.k8s.io   apiextensions.k8s.io/v1beta1   1         served read-write
leases.coordination.k8s.io                       coordination.k8s.io/v1         1         served, of nodes: kubelets renew them
leases.coordination.k8s.io                       coordination.k8s.io/v1         1         removed: identities of API servers that ended
nodes                                            v1                             1         served, of nodes: kubelets must reach the gateway
pods                                             v1                             1         served, of nodes: bound to nodes
pods                                             v1                             1         served read-write
ranges                                           v1                             1         no object of the API: claims of addresses and ports: they are made anew from Services
servicecidrs.networking.k8s.io                   networking.k8s.io/v1           1         served read-write
services                                         v1                             1         served, changed at the first start: it gets the addresses of the gateways
services                                         v1                             1         served read-write
things.example.com/things                        things.example.com/v1          1         not served: Portico does not have the kind; kept, also when its namespace is deleted
widgets.example.com                              example.com/v1                 1         served read-write

To be written:
  - remove the leases of API servers that ended (1)
  - mark the etcd as adopted

Notes:
  - Services have addresses of 10.1.0.0/24,fd00::/108: give portico up --service-cluster-ip-range=10.1.0.0/24,fd00::/108
  - Services have node ports from 80 to 80: give portico up --service-node-port-range
`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	marks, err := client.Get(t.Context(), "portico", clientv3.WithPrefix())
	if err != nil || len(marks.Kvs) > 0 {
		t.Errorf("a dry run wrote %v (%v)", marks, err)
	}
	raw, err := run(t, "--dry-run", "--etcd-servers="+endpoint, "-o", "json")
	if err != nil {
		t.Fatal(err)
	}
	var report Report
	if err := json.Unmarshal([]byte(raw), &report); err != nil || len(report.Resources) != 18 || len(report.Problems) > 0 || len(report.Changes) != 2 {
		t.Errorf("JSON: %v\n%s", err, raw)
	}
}

// Each of these makes adoption unsafe; --force overrides it.
func TestRefusals(t *testing.T) {
	t.Parallel()
	for key, tc := range map[string]struct{ value, want string }{
		"/registry/masterleases/192.0.2.1":           {masterLease(t), "a kube-apiserver uses this etcd (192.0.2.1): stop it, and wait 30 s"},
		"/registry/leases/kube-system/apiserver-new": {lease(t, "apiserver-new", 0), "a kube-apiserver uses this etcd (apiserver-new): stop it, and wait 30 s"},
		"/registry/secrets/default/s":                {"k8s:enc:aescbc:v1:key1:\x00\x01", "secrets: 1 encrypted, such as secrets/default/s: "},
		"/registry/configmaps/default/damaged":       {"k8s\x00\xff\xff", "configmaps: 1 that cannot be decoded, such as configmaps/default/damaged: "},
		"/registry/configmaps/default/cut":           {`{"apiVersion":"v1"`, "configmaps: 1 that cannot be decoded, such as configmaps/default/cut: "},
		"/registry/deployments/default/old":          {`{"apiVersion":"apps/v2","kind":"Deployment","metadata":{"name":"old","namespace":"default"}}`, "deployments.apps: 1 in a version that Portico does not have, such as deployments/default/old: "},
		"/registry/example.com/widgets/default/v3":   {`{"apiVersion":"example.com/v3","kind":"Widget","metadata":{"name":"v3","namespace":"default"}}`, "widgets.example.com: 1 in a version that Portico does not have, such as example.com/widgets/default/v3: "},
	} {
		t.Run(key, func(t *testing.T) {
			t.Parallel()
			values := healthy(t)
			values[key] = tc.value
			endpoint, client := start(t, values)
			if out, err := run(t, "--dry-run", "--etcd-servers="+endpoint); err == nil || !strings.Contains(err.Error(), "would be refused: "+tc.want) || !strings.Contains(out, "  - "+tc.want) {
				t.Errorf("dry run: %v\n%s", err, out)
			}
			if _, err := run(t, "--yes", "--etcd-servers="+endpoint); err == nil || !strings.HasPrefix(err.Error(), tc.want) {
				t.Errorf("got %v, want %s", err, tc.want)
			}
			if found, err := client.Get(t.Context(), "/registry/leases/kube-system/apiserver-old"); err != nil || len(found.Kvs) != 1 {
				t.Errorf("it wrote nevertheless: %v %v", found, err)
			}
			if out, err := run(t, "--yes", "--force", "--etcd-servers="+endpoint); err != nil {
				t.Errorf("with --force: %v\n%s", err, out)
			}
		})
	}
}

// Adoption saves a snapshot first, removes leases that ended, leaves all other keys as they are, and
// is done once. The snapshot has the state before.
func TestAdopt(t *testing.T) {
	t.Parallel()
	endpoint, client := start(t, healthy(t))
	keys := func() string {
		t.Helper()
		found, err := client.Get(t.Context(), "/registry/", clientv3.WithPrefix())
		if err != nil {
			t.Fatal(err)
		}
		var all strings.Builder
		for _, kv := range found.Kvs {
			if string(kv.Key) != "/registry/leases/kube-system/apiserver-old" {
				all.WriteString(string(kv.Key) + "=" + string(kv.Value) + "\n")
			}
		}
		return all.String()
	}
	before, server, file := keys(), "--etcd-servers="+endpoint, filepath.Join(t.TempDir(), "before.db")
	if _, err := run(t, server); err == nil || !strings.Contains(err.Error(), "there is no way back without a backup: save one with --snapshot-to=FILE") {
		t.Errorf("without a backup: %v", err)
	}
	if out, err := run(t, server, "--snapshot-to="+file); err != nil || !strings.Contains(out, "adopted: start portico up") {
		t.Fatalf("%v\n%s", err, out)
	}
	if found, err := client.Get(t.Context(), "/registry/leases/kube-system/apiserver-old"); err != nil || len(found.Kvs) != 0 {
		t.Errorf("the lease is still there: %v %v", found, err)
	}
	if after := keys(); after != before {
		t.Errorf("keys were\n%s\nand are\n%s", before, after)
	}
	if out, err := run(t, server); err != nil || !strings.Contains(out, "there is nothing to do") {
		t.Errorf("again: %v\n%s", err, out)
	}
	if out, err := run(t, "--dry-run", "--snapshot="+file); err != nil || !strings.Contains(out, "remove the leases") || !strings.Contains(out, "mark the etcd") {
		t.Errorf("the snapshot: %v\n%s", err, out)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the snapshot: %v %v", info, err)
	}
}

// A snapshot says nothing about API servers that run.
func TestSnapshotOfRunningServer(t *testing.T) {
	t.Parallel()
	values := healthy(t)
	values["/registry/masterleases/192.0.2.1"] = masterLease(t)
	endpoint, _ := start(t, values)
	file := filepath.Join(t.TempDir(), "snapshot.db")
	if out, err := run(t, "--snapshot-to="+file, "--force", "--etcd-servers="+endpoint); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if out, err := run(t, "--dry-run", "--snapshot="+file); err != nil || strings.Contains(out, "Problems") {
		t.Errorf("%v\n%s", err, out)
	}
}

// Wrong flags are refused with the flag and what to do.
func TestWrongFlags(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"":                                            "--etcd-servers is missing",
		"--etcd-servers=a --snapshot=b":               "--snapshot: the snapshot is read instead of --etcd-servers",
		"--snapshot=b":                                "--snapshot: a snapshot can only be examined; add --dry-run",
		"--dry-run --snapshot=/nonexistent":           "--snapshot: stat /nonexistent",
		"--dry-run --etcd-servers=a --yes":            "--dry-run writes nothing",
		"--etcd-servers=a --yes --snapshot-to=b":      "--yes is for a backup that exists",
		"--dry-run --etcd-servers=a -o x":             "-o x: must be wide, json or yaml",
		"--dry-run --etcd-servers=http://127.0.0.1:1": "--etcd-servers: http://127.0.0.1:1: ",
		"--dry-run --etcd-servers=a --service-account-key-file=/nonexistent":       "--service-account-key-file: ",
		"--dry-run --etcd-servers=http://127.0.0.1:1 --service-account-key-file=x": "--service-account-key-file: ",
	} {
		if _, err := run(t, strings.Fields(args)...); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", args, err, want)
		}
	}
}
