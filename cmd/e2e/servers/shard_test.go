package servers

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"portico/cmd/e2e"
	"portico/cmd/e2e/etcdprocess"
	"portico/cmd/internal/testtools"
)

// startShard starts a core server of the groups apps and batch with an etcd of its own, and registers
// it; the installation does not have these groups.
func startShard(t *testing.T, up *e2e.Installation) {
	t.Helper()
	dir, err := os.MkdirTemp("", "shard") // short: it is the path of a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket, pki := "unix://"+filepath.Join(dir, "core.sock"), filepath.Join(up.Dir, "pki")
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, e2e.Program(t, testtools.Portico), "core", "--listen="+socket,
		"--etcd-servers="+etcdprocess.Start(t).Endpoint(), "--runtime-config=api/all=false,apps/v1=true,batch/v1=true",
		"--gateway="+up.Endpoint, "--gateway-ca-file="+filepath.Join(pki, "serving-ca.crt"),
		"--gateway-cert-file="+filepath.Join(pki, "core.crt"), "--gateway-key-file="+filepath.Join(pki, "core.key"))
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait() // its error is that it was interrupted
		if t.Failed() {
			t.Logf("log of the shard:\n%s", &log)
		}
	})
	out, err := exec.Command(e2e.Program(t, testtools.Portico), "register", "batch", "--kubeconfig="+up.Kubeconfig, "--url="+socket, "--all-groups", "--wait=60s").CombinedOutput()
	if err != nil {
		t.Fatalf("register: %v\n%s", err, out)
	}
}

const (
	shardNamespace  = "/api/v1/namespaces/sharded"
	deploymentsPath = "/apis/apps/v1/namespaces/sharded/deployments"
	replicaSets     = "/apis/apps/v1/namespaces/sharded/replicasets"
)

// workload returns a Deployment or ReplicaSet.
func workload(name, metadata string) string {
	return fmt.Sprintf(`{"metadata":{"name":%q%s},"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{
		"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`, name, metadata)
}

// Groups of a second core server, with an etcd of its own, are part of the installation: the namespaces,
// quotas and policies of the first one hold there, owners and dependents may be in different ones, and
// a namespace is deleted with what it has in both.
func TestShard(t *testing.T) {
	t.Parallel()
	up := e2e.Install(t, t.TempDir(), "--runtime-config=apps/v1=false,batch/v1=false")
	startShard(t, up)
	up.Post(t, "/api/v1/namespaces", `{"metadata":{"name":"sharded"}}`)
	up.Post(t, deploymentsPath, workload("first", ""))
	up.Shows(t, "/apis", `"name":"batch"`)
	if objects := up.Metrics(t, "core"); !strings.Contains(objects, `apiserver_resource_objects{group="apps",resource="deployments"} 0`) {
		t.Error("the first core server stores the deployment")
	}
	if code, body := up.Do(t, http.MethodPost, "/apis/batch/v1/namespaces/nowhere/jobs", `{"metadata":{"name":"a"},"spec":{"template":{"spec":{
		"restartPolicy":"Never","containers":[{"name":"c","image":"i"}]}}}}`); code != http.StatusNotFound || !strings.Contains(body, `namespaces \"nowhere\" not found`) {
		t.Errorf("a job in a namespace that is not there: %d %s", code, body)
	}
	t.Run("quota", func(t *testing.T) { shardQuota(t, up) })
	t.Run("policy", func(t *testing.T) { shardPolicy(t, up) })

	up.Post(t, shardNamespace+"/configmaps", `{"metadata":{"name":"owner"}}`)
	_, owner := up.Do(t, http.MethodGet, shardNamespace+"/configmaps/owner", "")
	uid := strings.Split(strings.SplitAfter(owner, `"uid":"`)[1], `"`)[0]
	up.Post(t, replicaSets, workload("owned", `,"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"owner","uid":"`+uid+`"}]`))
	up.Do(t, http.MethodDelete, shardNamespace+"/configmaps/owner", "")
	isGone(t, up, replicaSets+"/owned")

	up.Do(t, http.MethodDelete, shardNamespace, "")
	isGone(t, up, deploymentsPath+"/first")
	isGone(t, up, shardNamespace)
}

// shardQuota shows that a quota of the first server counts objects of the second one.
func shardQuota(t *testing.T, up *e2e.Installation) {
	up.Post(t, shardNamespace+"/resourcequotas", `{"metadata":{"name":"one"},"spec":{"hard":{"count/deployments.apps":"1"}}}`)
	up.Shows(t, shardNamespace+"/resourcequotas/one", `"used":{"count/deployments.apps":"1"}`)
	e2e.Eventually(t, "the quota holds", func() error {
		if code, body := up.Do(t, http.MethodPost, deploymentsPath+"?dryRun=All", workload("second", "")); code != http.StatusForbidden || !strings.Contains(body, "exceeded quota: one") {
			return fmt.Errorf("%d %s", code, body)
		}
		return nil
	})
}

// shardPolicy shows that a policy of the first server is asked about writes to the second one.
func shardPolicy(t *testing.T, up *e2e.Installation) {
	const path = "/apis/admissionregistration.k8s.io/v1/"
	up.Post(t, path+"validatingadmissionpolicies", `{"metadata":{"name":"no-bad"},"spec":{"matchConstraints":{"resourceRules":[
		{"apiGroups":["apps"],"apiVersions":["v1"],"operations":["CREATE"],"resources":["replicasets"]}]},
		"validations":[{"expression":"object.metadata.name != 'bad'","message":"bad name"}]}}`)
	up.Post(t, path+"validatingadmissionpolicybindings", `{"metadata":{"name":"no-bad"},"spec":{"policyName":"no-bad","validationActions":["Deny"]}}`)
	e2e.Eventually(t, "the policy holds", func() error {
		if code, body := up.Do(t, http.MethodPost, replicaSets+"?dryRun=All", workload("bad", "")); code != http.StatusUnprocessableEntity || !strings.Contains(body, "bad name") {
			return fmt.Errorf("%d %s", code, body)
		}
		return nil
	})
}
