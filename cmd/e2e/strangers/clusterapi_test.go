//go:build strangers

package strangers

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"regexp"
	"testing"

	"portico/cmd/e2e"
	"portico/cmd/internal/pki"
)

// Cluster API's core makes the machines of a deployment, in whichever of the two versions of it the
// number is changed, while processes are killed. Its webhook converts the versions.
func TestClusterAPI(t *testing.T) {
	t.Parallel()
	dir := source(t, clusterAPIModule)
	run(t, dir, nil, "go", "mod", "edit", "-replace=sigs.k8s.io/cluster-api/api=sigs.k8s.io/cluster-api/api@v1.14.2")
	// There is no flag for the address of the webhook.
	run(t, dir, nil, "sed", "-i", `s/Port:     webhookPort,/Host: "127.0.0.1", &/`, "core/main.go")
	manager := build(t, dir, "./core")

	up := e2e.Install(t, t.TempDir())
	files, err := pki.Ensure(pki.Config{Dir: filepath.Join(t.TempDir(), "pki"), Hosts: []string{"127.0.0.1"}})
	if err != nil {
		t.Fatal(err)
	}
	port, file := e2e.FreePort(t, "127.0.0.1"), filepath.Join(t.TempDir(), "manifest.yaml")
	// cert-manager would set the CA, and the Service leads to a pod.
	byService := regexp.MustCompile(`(?m)^( +)service:\n +name: capi-webhook-service\n +namespace: capi-system\n +path: (.*)$`)
	ca := base64.StdEncoding.EncodeToString([]byte(read(t, files.ServingCAFile)))
	e2e.WriteFile(t, file, byService.ReplaceAllString(clusterAPI(t, up, dir), "${1}url: https://127.0.0.1:"+port+"${2}\n${1}caBundle: "+ca))
	up.MustKubectl(t, "apply", "-f", file, "-f", "testdata/clusterapi.yaml")
	kubectlWait(t, up, "--for=condition=Established", "crd", "--all")
	start(t, []string{kubeconfig(up)}, manager, "--webhook-port="+port, "--webhook-cert-dir="+filepath.Dir(files.Serving.CertFile),
		"--webhook-cert-name="+filepath.Base(files.Serving.CertFile), "--webhook-key-name="+filepath.Base(files.Serving.KeyFile),
		"--health-addr=127.0.0.1:"+e2e.FreePort(t, "127.0.0.1"), "--diagnostics-address=127.0.0.1:0", "--insecure-diagnostics")
	insist(t, up, "apply", "-f", "testdata/clusterapi-machines.yaml")

	client := e2e.HTTPClient(t, up.Config(t))
	versions := []string{"v1beta1", "v1beta2"}
	path := func(round int, resource string) string {
		return "/apis/cluster.x-k8s.io/" + versions[round%2] + "/namespaces/default/" + resource
	}
	underRestarts(t, up, func(round int) {
		request(t, up, client, http.MethodPatch, path(round, "machinedeployments/web"), fmt.Sprintf(`{"spec":{"replicas":%d}}`, 1+round%3),
			"Content-Type: application/merge-patch+json")
	}, func(round int) {
		machines := path(round+1, "machines") // in the other version
		for _, all := range []string{machines, "/apis/infrastructure.example.com/v1/namespaces/default/idlemachines"} {
			e2e.Within(t, recovery, all+" has the number of the deployment", func() error {
				var list struct{ Items []json.RawMessage }
				if err := json.Unmarshal([]byte(request(t, up, client, http.MethodGet, all, "")), &list); err != nil || len(list.Items) != 1+round%3 {
					return fmt.Errorf("%d, %v", len(list.Items), err)
				}
				return nil
			})
		}
	})
	insist(t, up, "delete", "--wait=false", "machinedeployment/web")
	settles(t, up, "--for=delete", "machines", "-l", "app=web")
}
