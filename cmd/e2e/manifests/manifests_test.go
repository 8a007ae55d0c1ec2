package manifests

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico/cmd/e2e"
)

// folder is that of the plain manifests.
func folder() string { return filepath.Join(e2e.Repository(), "deploy/kubernetes") }

// prepared returns the manifests of deploy/kubernetes, and the Secrets that its README makes in an installation.
func prepared(t *testing.T, up *e2e.Installation) (string, Secrets) {
	t.Helper()
	dir := t.TempDir()
	made := MakeSecrets(t, dir, "portico", "https://localhost:6443")
	list, err := os.ReadFile(filepath.Join(folder(), "secrets.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	e2e.WriteFile(t, filepath.Join(dir, "kustomization.yaml"), string(list))
	up.MustKubectl(t, "apply", "-f", filepath.Join(folder(), "namespace.yaml"))
	up.MustKubectl(t, "apply", "--server-side", "-k", dir)
	stored, err := up.Client(t).CoreV1().Secrets("portico").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	secrets := Secrets{}
	for _, secret := range stored.Items {
		secrets[secret.Name] = secret.Data
	}
	if !reflect.DeepEqual(secrets, made) {
		t.Error("secrets.yaml does not have all files of portico certs installation, or others")
	}
	return up.MustKubectl(t, "kustomize", folder()), secrets
}

// The manifests of deploy/kubernetes fit together, with the Secrets of its README; the program takes their arguments and
// configuration; their pods may run in a namespace that enforces the restricted standard; and the checks see what does not fit.
func TestManifests(t *testing.T) {
	t.Parallel()
	up := e2e.SharedInstallation(t)
	text, secrets := prepared(t, up)
	set, err := Parse(text, secrets)
	if err != nil {
		t.Fatal(err)
	}
	if len(set.Workloads) != 4 {
		t.Errorf("there are %d workloads, want gateway, core, crd and etcd", len(set.Workloads))
	}
	for _, problem := range set.Check() {
		t.Error(problem)
	}
	up.MustKubectl(t, "apply", "-k", folder())
	for _, w := range set.Workloads {
		if w.Component != "etcd" {
			set.CheckProgram(t, w)
		}
		pod := &corev1.Pod{ObjectMeta: w.Template.ObjectMeta, Spec: w.Template.Spec}
		pod.GenerateName = "checked-"
		if _, err := up.Client(t).CoreV1().Pods("portico").Create(t.Context(), pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
			t.Errorf("create a pod of %s: %v", w.Name, err)
		}
		pod.Spec.SecurityContext = nil
		if _, err := up.Client(t).CoreV1().Pods("portico").Create(t.Context(), pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); err == nil {
			t.Errorf("a pod of %s without a security context is accepted", w.Name)
		}
	}
	for _, m := range mistakes {
		t.Run(m.problem, func(t *testing.T) {
			if !strings.Contains(text, m.old) {
				t.Fatalf("the manifests have no %q", m.old)
			}
			set, err := Parse(strings.ReplaceAll(text, m.old, m.new), secrets)
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(set.Check(), "\n"); !strings.Contains(got, m.problem) {
				t.Errorf("%q instead of %q: want %q, got\n%s", m.new, m.old, m.problem, got)
			}
		})
	}
}

// mistakes are replacements in the manifests, and problems that they lead to.
var mistakes = []struct{ old, new, problem string }{
	{"  selector:\n    app.kubernetes.io/component: core\n", "  selector:\n    app.kubernetes.io/component: other\n", "Service portico-core is not for the pods of one workload"},
	{"targetPort: https", "targetPort: http", "Service portico: portico-gateway has no port http"},
	{"listen: 0.0.0.0:7443", "listen: 0.0.0.0:7445", "portico-core: its process listens on the ports [7445 8080], its container has [7443 8080]"},
	{"/etc/portico/pki/crd-client.key", "/etc/portico/pki/client.key", "portico-crd: no volume has the file /etc/portico/pki/client.key"},
	{"/etc/portico/pki/etcd-ca.crt", "/etc/portico/etcd/ca.crt", "portico-gateway: no volume has the file /etc/portico/etcd/ca.crt"},
	{"secretName: portico-core", "secretName: portico-cores", "portico-core: there is no Secret portico-cores"},
	{"portico-crd-1.portico-crd:7444", "portico-crd-2.portico-crd:7444", "portico-gateway connects to portico-crd-2.portico-crd:7444, which leads to no pod"},
	{"gateway: https://portico:443", "gateway: https://portico:6443", "portico-core connects to portico:6443, which leads to no pod"},
	{"gateway: https://portico:443", "gateway: https://portico-gateway:8080", "portico-core connects to portico-gateway: --tls-cert-file of portico-gateway: x509: certificate is valid for"},
	{"pki/core-client.crt", "pki/core.crt", "portico-core: --gateway-cert-file is of the user core, not system:portico:core"},
	{"etcd-cafile: /etc/portico/pki/etcd-ca.crt", "etcd-cafile: /etc/portico/pki/serving-ca.crt", "portico-crd connects to portico-etcd-1.portico-etcd: --cert-file of portico-etcd: x509: certificate signed by unknown authority"},
	{"trusted-ca-file=/etc/etcd/etcd-client-ca.crt", "trusted-ca-file=/etc/etcd/etcd-ca.crt", "portico-core connects to portico-etcd-0.portico-etcd: --etcd-certfile of portico-core: x509: certificate signed by unknown authority"},
	{"[front-proxy-client]", "[gateway]", "portico-gateway: --proxy-client-cert-file is of the user front-proxy-client, not gateway"},
	{"          - gateway\n          - core\n          - crd\n", "          - gateway\n          - core\n", "network policies admit connections of portico-crd to port client of portico-etcd: false"},
	{"          - gateway\n          - core\n          - crd\n", "          - gateway\n          - core\n          - crd\n          - etcd\n", "network policies admit connections of portico-etcd to port client of portico-etcd: true"},
	{"kubernetes.io/metadata.name: monitoring", "kubernetes.io/metadata.name: other", "network policies admit connections of the namespace monitoring to port probes of portico-core: false"},
	{"enableServiceLinks: false", "enableServiceLinks: true", "portico-gateway: enableServiceLinks is not false"},
	{"automountServiceAccountToken: false\nkind: ServiceAccount", "automountServiceAccountToken: true\nkind: ServiceAccount", "portico-gateway: its pods have a token"},
	{"readOnlyRootFilesystem: true", "readOnlyRootFilesystem: false", "portico-etcd: its root file system can be written"},
	{"kind: PodDisruptionBudget", "kind: PodMonitor", "portico-gateway has no PodDisruptionBudget"},
	{"path: /livez\n            port: probes", "path: /livez\n            port: health", "portico-crd: it has no liveness probe of a port that it has"},
}
