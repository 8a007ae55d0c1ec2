//go:build strangers

package strangers

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico/cmd/e2e"
	"portico/cmd/e2e/manifests"
	"portico/cmd/internal/testtools"
)

// The commands of deploy/kubernetes/README.md lead a port to a gateway and use it as the administrator. An installation is the
// cluster, kwok the kubelet of a pod of the gateway's Deployment, and the pods' programs run as processes here.
func TestPortForward(t *testing.T) {
	t.Parallel()
	folder, dir := filepath.Join(e2e.Repository(), "deploy/kubernetes"), t.TempDir()
	page := regexp.MustCompile(`(?m)^    kubectl (-n portico port-forward \S+) 6443(:443)$(?s:.*?)^    kubectl (--kubeconfig=portico-pki/.+)$`).
		FindStringSubmatch(read(t, folder, "README.md"))
	if page == nil {
		t.Fatal("the page leads no port to a gateway")
	}
	up := e2e.Install(t, t.TempDir(), "--kubelet-allow-loopback")
	up.MustKubectl(t, "apply", "-f", filepath.Join(folder, "namespace.yaml"))
	up.MustKubectl(t, "apply", "-k", folder)
	set, err := manifests.Parse(up.MustKubectl(t, "kustomize", folder), nil)
	if err != nil {
		t.Fatal(err)
	}
	c := manifests.NewCluster(t, set)
	c.Start(t, manifests.MakeSecrets(t, filepath.Join(dir, "portico-pki"), "portico", "https://localhost:6443", "localhost", "127.0.0.1"))
	runGatewayPod(t, up, c.Address("portico-gateway-0", 6443))

	kubectl := e2e.Program(t, testtools.Kubectl)
	// Any port of this machine: 6443 may be in use.
	log := start(t, []string{kubeconfig(up), "HOME=" + dir}, kubectl, strings.Fields(page[1]+" "+page[2])...)
	var server string
	e2e.Eventually(t, "a port of this machine", func() error {
		out, err := os.ReadFile(log)
		if m := regexp.MustCompile(`127\.0\.0\.1:(\d+) -> 6443`).FindSubmatch(out); m != nil {
			server = "--server=https://localhost:" + string(m[1])
			return nil
		}
		return fmt.Errorf("%w: %s", err, out)
	})
	if out := run(t, dir, []string{"HOME=" + dir}, kubectl, append(strings.Fields(page[3]), server)...); !strings.Contains(out, "v1.apps") {
		t.Error(out)
	}
}

// runGatewayPod makes a pod of the gateway's Deployment run on a node, the kubelet of which leads the gateway's port to an address.
func runGatewayPod(t *testing.T, up *e2e.Installation, address string) {
	t.Helper()
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	config, kubelet := filepath.Join(t.TempDir(), "forward.yaml"), e2e.FreePort(t, "127.0.0.1")
	e2e.WriteFile(t, config, "apiVersion: kwok.x-k8s.io/v1alpha1\nkind: ClusterPortForward\nmetadata: {name: gateway}\n"+
		"spec: {forwards: [{ports: [6443], target: {address: "+host+", port: "+port+"}}]}\n")
	startKwok(t, up, "--config="+config, "--node-ip=127.0.0.1", "--node-port="+kubelet, "--server-address=127.0.0.1:"+kubelet,
		"--tls-cert-file="+filepath.Join(up.Dir, "pki/gateway.crt"), "--tls-private-key-file="+filepath.Join(up.Dir, "pki/gateway.key"))
	client := up.Client(t)
	createNodes(t, client, 1)
	deployment, err := client.AppsV1().Deployments("portico").Get(t.Context(), "portico-gateway", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "portico-gateway-0", Labels: deployment.Spec.Template.Labels}, Spec: deployment.Spec.Template.Spec}
	pod.Spec.NodeName = nodeName(0)
	if _, err := client.CoreV1().Pods("portico").Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	e2e.Eventually(t, "the pod runs", func() error {
		pod, err := client.CoreV1().Pods("portico").Get(t.Context(), pod.Name, metav1.GetOptions{})
		if err == nil && !podReady(pod) {
			err = fmt.Errorf("%+v", pod.Status)
		}
		return err
	})
}
