//go:build strangers

package strangers

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico/cmd/e2e"
)

// cert-manager's controllers issue certificates, also for an Ingress, and go on when processes are
// killed. What they make goes with the Certificate or the Ingress. Its command is in a module that is not published, so that
// testdata/certmanager.txt starts the controllers.
func TestCertManager(t *testing.T) {
	t.Parallel()
	dir := source(t, certManagerModule)
	if err := os.MkdirAll(filepath.Join(dir, "cmd/controller"), 0o700); err != nil {
		t.Fatal(err)
	}
	e2e.WriteFile(t, filepath.Join(dir, "cmd/controller/main.go"), read(t, "testdata/certmanager.txt"))
	// The version that it requires is not published.
	run(t, dir, nil, "go", "mod", "edit", "-require=github.com/Venafi/vcert/v5@v5.13.9")
	controller := build(t, dir, "./cmd/controller")

	up := e2e.Install(t, t.TempDir())
	up.MustKubectl(t, "apply", "-f", filepath.Join(dir, "deploy/crds"))
	kubectlWait(t, up, "--for=condition=Established", "crd", "--all")
	log := start(t, []string{kubeconfig(up)}, controller)
	up.MustKubectl(t, "apply", "-f", "testdata/certmanager.yaml")
	for _, name := range []string{"leaf", "web"} {
		kubectlWait(t, up, "--for=create", "certificate/"+name)
		kubectlWait(t, up, "--for=condition=Ready", "certificate/"+name)
		up.MustKubectl(t, "get", "certificaterequest/"+name+"-1", "secret/"+name)
	}
	up.MustKubectl(t, "delete", "certificate/leaf", "ingress/web")
	kubectlWait(t, up, "--for=delete", "certificate/web")
	for _, name := range []string{"leaf", "web"} {
		kubectlWait(t, up, "--for=delete", "certificaterequest/"+name+"-1", "secret/"+name)
	}
	up.MustKubectl(t, "get", "certificaterequest/ca-1", "secret/ca")
	if out := read(t, log); strings.Contains(out, "Failed to watch") {
		t.Errorf("informers failed:\n%s", out)
	}
	client := e2e.HTTPClient(t, up.Config(t))
	underRestarts(t, up, func(round int) {
		name := fmt.Sprint("c-", round)
		apply(t, up, client, "/apis/cert-manager.io/v1/namespaces/default/certificates", "Certificate", name,
			fmt.Sprintf(`{"dnsNames":["%s.example.com"],"secretName":%[1]q,"issuerRef":{"name":"ca"}}`, name))
	}, func(round int) {
		name := fmt.Sprint("c-", round)
		settles(t, up, "--for=condition=Ready", "certificate/"+name)
		insist(t, up, "get", "certificaterequest/"+name+"-1", "secret/"+name)
		insist(t, up, "delete", "--ignore-not-found", "--wait=false", "certificate/"+name)
		settles(t, up, "--for=delete", "certificate/"+name, "certificaterequest/"+name+"-1", "secret/"+name)
	})
}

// Gatekeeper makes a definition of a ConstraintTemplate, and denies what violates a
// constraint. The definition goes with the template, and the constraint with it.
func TestGatekeeper(t *testing.T) {
	t.Parallel()
	dir := source(t, gatekeeperModule)
	manager := build(t, dir, "github.com/open-policy-agent/gatekeeper/v3")
	up := e2e.Install(t, t.TempDir())
	up.MustKubectl(t, "apply", "-f", filepath.Join(dir, "deploy/gatekeeper.yaml"))
	port := e2e.FreePort(t, "127.0.0.1")
	up.MustKubectl(t, "-n", "gatekeeper-system", "patch", "service/gatekeeper-webhook-service",
		"-p", `{"spec":{"type":"ExternalName","externalName":"localhost"}}`)
	for webhook, kind := range map[string]string{"mutation": "mutating", "validation": "validating", "check-ignore-label": "validating"} {
		up.MustKubectl(t, "patch", kind+"webhookconfiguration/gatekeeper-"+kind+"-webhook-configuration",
			"-p", fmt.Sprintf(`{"webhooks":[{"name":"%s.gatekeeper.sh","clientConfig":{"service":{"port":%s}}}]}`, webhook, port))
	}
	certificates := t.TempDir()
	start(t, []string{kubeconfig(up)}, manager, "--debug-use-fake-pod", "--shutdown-delay=0", "--host=127.0.0.1", "--port="+port,
		"--cert-dir="+certificates, "--api-cache-dir="+t.TempDir(), "--health-addr=127.0.0.1:0",
		"--metrics-backend=opentelemetry", "--otlp-endpoint=127.0.0.1:1") // Prometheus would listen on all addresses
	mount(t, up, "gatekeeper-system", "gatekeeper-webhook-server-cert", certificates)

	definition := "crd/requiredowner.constraints.gatekeeper.sh"
	up.MustKubectl(t, "apply", "-f", "testdata/gatekeeper-template.yaml")
	kubectlWait(t, up, "--for=create", definition)
	kubectlWait(t, up, "--for=condition=Established", definition)
	up.MustKubectl(t, "apply", "-f", "testdata/gatekeeper-constraint.yaml")
	e2e.Eventually(t, "a config map without an owner is denied", func() error {
		if err := tryConfigMap(t, up); err == nil || !strings.Contains(err.Error(), "label owner is missing") {
			return fmt.Errorf("it got %v", err)
		}
		return nil
	})
	up.MustKubectl(t, "delete", "constrainttemplate/requiredowner")
	kubectlWait(t, up, "--for=delete", definition)
	e2e.Eventually(t, "a config map needs no owner", func() error { return tryConfigMap(t, up) })
}

// tryConfigMap creates a config map in a dry run.
func tryConfigMap(t *testing.T, up *e2e.Installation) error {
	_, err := up.Client(t).CoreV1().ConfigMaps("default").Create(t.Context(),
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	return err
}

// Crossplane serves a CompositeResourceDefinition, and keeps the revisions of a Composition,
// which go with it; it goes on when processes are killed. The definition can be deleted.
func TestCrossplane(t *testing.T) {
	t.Parallel()
	dir := source(t, "github.com/crossplane/crossplane/v2@v2.4.0")
	run(t, dir, nil, "go", "mod", "edit", "-replace=github.com/crossplane/crossplane/apis/v2=github.com/crossplane/crossplane/apis/v2@v2.4.0")
	// There is no flag for the addresses of its metrics and health.
	run(t, dir, nil, "sed", "-i", `s/Sprintf(":%d"/Sprintf("127.0.0.1:%d"/`, "cmd/crossplane/core/core.go")
	crossplane := build(t, dir, "./cmd/crossplane")

	up := e2e.Install(t, t.TempDir())
	up.MustKubectl(t, "create", "namespace", "crossplane-system")
	certificates := t.TempDir()
	env := []string{
		kubeconfig(up), "ENABLE_WEBHOOKS=false", "PACKAGE_RUNTIME=External", "CRDS_PATH=cluster/crds", "XPKG_CACHE_DIR=" + t.TempDir(),
		"TLS_CA_SECRET_NAME=ca", "TLS_CLIENT_SECRET_NAME=client", "TLS_CLIENT_CERTS_DIR=" + certificates,
		"METRICS_PORT=" + e2e.FreePort(t, "127.0.0.1"), "HEALTH_PROBE_PORT=" + e2e.FreePort(t, "127.0.0.1"),
	}
	run(t, dir, env, crossplane, "core", "init")
	mount(t, up, "crossplane-system", "client", certificates)
	start(t, env, crossplane, "core", "start", "--debug")

	up.MustKubectl(t, "apply", "-f", "testdata/crossplane.yaml")
	kubectlWait(t, up, "--for=condition=Established", "xrd/rooms.hotel.example.com")
	rooms := "/apis/hotel.example.com/v1/namespaces/default/rooms"
	e2e.Eventually(t, "rooms are served", func() error {
		if code, answer := up.Do(t, http.MethodPost, rooms, `{"apiVersion":"hotel.example.com/v1","kind":"Room","metadata":{"name":"a"},"spec":{"beds":2}}`); code != http.StatusCreated {
			return errors.New(answer)
		}
		return nil
	})
	up.Shows(t, rooms+"/a", `"compositionRevisionRef":{"name":"rooms-`)
	client := e2e.HTTPClient(t, up.Config(t))
	underRestarts(t, up, func(round int) {
		apply(t, up, client, rooms, "Room", fmt.Sprint("r-", round), `{"beds":3}`)
	}, func(round int) {
		name := fmt.Sprint("room/r-", round)
		settles(t, up, "--for=jsonpath={.spec.crossplane.compositionRevisionRef.name}", name)
		insist(t, up, "delete", "--ignore-not-found", "--wait=false", name)
		settles(t, up, "--for=delete", name)
	})
	up.MustKubectl(t, "delete", "room/a")
	up.MustKubectl(t, "delete", "composition/rooms")
	kubectlWait(t, up, "--for=delete", "compositionrevisions", "-l", "crossplane.io/composition-name=rooms")
	up.MustKubectl(t, "delete", "xrd/rooms.hotel.example.com")
	kubectlWait(t, up, "--for=delete", "crd/rooms.hotel.example.com")
}

// kubectlWait runs kubectl wait.
func kubectlWait(t *testing.T, up *e2e.Installation, args ...string) {
	t.Helper()
	up.MustKubectl(t, append([]string{"wait", "--timeout=50s"}, args...)...)
}

// mount writes the files of a Secret to a folder, as a kubelet does for a pod, when the Secret
// has a certificate.
func mount(t *testing.T, up *e2e.Installation, namespace, name, dir string) {
	t.Helper()
	var data map[string][]byte
	e2e.Eventually(t, name+" has a certificate", func() error {
		secret, err := up.Client(t).CoreV1().Secrets(namespace).Get(t.Context(), name, metav1.GetOptions{})
		if err == nil && len(secret.Data[corev1.TLSCertKey]) == 0 {
			err = errors.New("it has none")
		}
		if err == nil {
			data = secret.Data
		}
		return err
	})
	for file, content := range data {
		e2e.WriteFile(t, filepath.Join(dir, file), string(content))
	}
}
