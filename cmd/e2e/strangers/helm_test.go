//go:build strangers

package strangers

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"portico/cmd/e2e"
)

// helmModule is the module of Helm.
const helmModule = "helm.sh/helm/v4@v4.3.1"

// helm runs Helm against an installation.
type helm struct {
	program, chart string
	env            []string
	steps          int
}

// newHelm builds Helm.
func newHelm(t *testing.T, up *e2e.Installation) *helm {
	t.Helper()
	chart, err := filepath.Abs("testdata/chart")
	if err != nil {
		t.Fatal(err)
	}
	program := build(t, source(t, helmModule), "./cmd/helm")
	return &helm{program: program, chart: chart, env: []string{kubeconfig(up), "HOME=" + t.TempDir()}}
}

// shows runs a command, as words, that must succeed and print texts. CHART stands for the
// path of the chart.
func (h *helm) shows(t *testing.T, command string, texts ...string) {
	t.Helper()
	out := run(t, "", h.env, h.program, h.words(command)...)
	h.checkOutput(t, command, out, texts)
}

// refuses runs a command that must fail and print texts.
func (h *helm) refuses(t *testing.T, command string, texts ...string) {
	t.Helper()
	out, err := try(t, "", h.env, h.program, h.words(command)...)
	if err == nil {
		t.Fatalf("helm %s succeeds:\n%s", command, out)
	}
	h.checkOutput(t, command, out, texts)
}

func (h *helm) words(command string) []string {
	h.steps++
	return strings.Fields(strings.ReplaceAll(command, "CHART", h.chart))
}

func (h *helm) checkOutput(t *testing.T, command, out string, texts []string) {
	t.Helper()
	for _, text := range texts {
		if !strings.Contains(out, text) {
			t.Fatalf("helm %s does not print %q:\n%s", command, text, out)
		}
	}
}

// TestHelm checks the life of releases of a chart with workloads, hooks and a definition.
// Nothing here makes a Deployment ready: helm --wait is for a release without workloads.
func TestHelm(t *testing.T) {
	t.Parallel()
	up := e2e.Install(t, t.TempDir())
	h := newHelm(t, up)
	t.Run("workloads", func(t *testing.T) { helmWorkloads(t, up, h) })
	t.Run("waits", func(t *testing.T) { helmWaits(t, up, h) })
	t.Logf("%d commands of Helm", h.steps)
}

// helmWorkloads checks installing, upgrading, rolling back and uninstalling workloads.
func helmWorkloads(t *testing.T, up *e2e.Installation, h *helm) {
	field := func(object, path, want string) {
		t.Helper()
		if got := up.MustKubectl(t, "get", "-n", "full", object, "-o", "jsonpath="+path); got != want {
			t.Errorf("%s of %s is %q, want %q", path, object, got, want)
		}
	}
	h.shows(t, "install big CHART -n full --create-namespace", "STATUS: deployed", "REVISION: 1", "Kubernetes v1.")
	h.refuses(t, "install big CHART -n full", "cannot reuse a name that is still in use")
	field("deployment/big", "{.spec.replicas}", "1")
	field("configmap/big-kept", "{.data.revision}", "1")
	password := up.MustKubectl(t, "get", "-n", "full", "secret/big", "-o", "jsonpath={.data.password}")

	h.shows(t, "upgrade big CHART -n full --set replicas=3,greeting=welcome", "STATUS: deployed", "REVISION: 2")
	field("deployment/big", "{.spec.replicas}", "3")
	field("deployment/big", "{.metadata.generation}", "2")
	field("configmap/big", "{.data.greeting}", "welcome")
	field("configmap/big-kept", "{.data.revision}", "2")
	h.shows(t, "upgrade big CHART -n full --set greeting=unseen --dry-run=server", "greeting: unseen", "password: "+password)
	h.refuses(t, "upgrade big CHART -n full --set replicas=-1,greeting=lost", "spec.replicas: Invalid value: -1: must be greater than or equal to 0")
	h.shows(t, "history big -n full", "superseded", "deployed", "failed")
	h.shows(t, "status big -n full", "STATUS: failed", "REVISION: 3")
	h.shows(t, "rollback big 1 -n full", "Rollback was a success")
	field("deployment/big", "{.spec.replicas}", "1")
	field("configmap/big", "{.data.greeting}", "hello")
	field("configmap/big-kept", "{.data.revision}", "1")
	field("secret/big", "{.data.password}", password)
	up.MustKubectl(t, "patch", "-n", "full", "configmap/big", "--field-manager=editor", `--patch={"data": {"greeting": "edited"}}`)
	h.refuses(t, "upgrade big CHART -n full --set greeting=later", `conflict with "editor"`, ".data.greeting")
	h.shows(t, "upgrade big CHART -n full --set greeting=later --force-conflicts", "STATUS: deployed")
	field("configmap/big", "{.data.greeting}", "later")
	h.shows(t, "list -A", "deployed", "shop-1.0.0")
	h.shows(t, "get manifest big -n full", "kind: StatefulSet")

	kinds := "deploy,sts,ds,job,cj,pvc,hpa,svc,ing,netpol,pdb,orders,secret,role,rolebinding"
	if got := strings.Fields(up.MustKubectl(t, "get", "-n", "full", kinds, "-o", "name", "--field-selector=metadata.name=big")); len(got) != 15 {
		t.Errorf("the release has %q, want one of each of %s", got, kinds)
	}
	h.shows(t, "uninstall big -n full", `release "big" uninstalled`)
	e2e.Eventually(t, "the release is gone", func() error {
		left, err := up.Kubectl(t, "get", "-n", "full", kinds, "-o", "name")
		if err == nil && left != "" {
			err = fmt.Errorf("there are %s", left)
		}
		return err
	})
	field("configmap/big-kept", "{.data.revision}", "6") // of the last upgrade
}

// helmWaits checks --wait and --rollback-on-failure on what is complete without a
// controller of workloads, applied by client-side patches, and that a release deleted in
// the foreground ends with its dependents.
func helmWaits(t *testing.T, up *e2e.Installation, h *helm) {
	h.shows(t, "install small CHART -n small --create-namespace --dry-run=server", "STATUS: pending-install", "kind: HorizontalPodAutoscaler", "kind: Ingress")
	h.shows(t, "install small CHART -n small --create-namespace --server-side=false --set workloads=false --wait", "STATUS: deployed")
	h.refuses(t, "upgrade small CHART -n small --set workloads=false,size=0,greeting=lost --rollback-on-failure",
		"spec.size: Invalid value: 0", "has been rolled back")
	if got := up.MustKubectl(t, "get", "-n", "small", "configmap/small", "-o", "jsonpath={.data.greeting}"); got != "hello" {
		t.Errorf("after the rollback the greeting is %q", got)
	}
	h.shows(t, "history small -n small", "Rollback to 1")
	h.shows(t, "upgrade small CHART -n small --set workloads=false,size=2 --wait", "STATUS: deployed")

	for _, owner := range []struct{ kind, apiVersion string }{{"ConfigMap", "v1"}, {"Order", "shop.example.com/v1"}} {
		uid := up.MustKubectl(t, "get", "-n", "small", owner.kind+"/small", "-o", "jsonpath={.metadata.uid}")
		up.Post(t, "/api/v1/namespaces/small/configmaps", fmt.Sprintf(`{"metadata": {"generateName": "dependent-", "ownerReferences": [
			{"apiVersion": %q, "kind": %q, "name": "small", "uid": %q, "blockOwnerDeletion": true}]}}`, owner.apiVersion, owner.kind, uid))
	}
	h.shows(t, "uninstall small -n small --cascade foreground --wait", `release "small" uninstalled`)
	left := up.MustKubectl(t, "get", "-n", "small", "configmaps,orders,services,secrets,pdb", "-o", "name")
	if left != "configmap/kube-root-ca.crt\nconfigmap/small-kept\n" {
		t.Errorf("after the release was uninstalled there are:\n%s", left)
	}
}
