package attack

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"portico/internal/testing/await"
)

// podOn is a pod of a node with a volume of a Secret.
func podOn(node, name, secret string) string {
	return fmt.Sprintf(`{"metadata":{"name":%q},"spec":{"nodeName":%q,"containers":[{"name":"c","image":"i"}],"volumes":[{"name":"v","secret":{"secretName":%q}}]}}`, name, node, secret)
}

// uidOf returns the uid of an object.
func (i *installation) uidOf(t *testing.T, path string) string {
	t.Helper()
	var obj struct{ Metadata struct{ UID string } }
	if err := json.Unmarshal([]byte(i.must(t, "GET", path, "")), &obj); err != nil {
		t.Fatal(err)
	}
	return obj.Metadata.UID
}

// A node reaches what its own pods refer to, and writes itself, mirror pods, the status of its pods
// and tokens for them; nothing of other nodes, whatever it says about them.
func TestNodes(t *testing.T) {
	t.Parallel()
	i := target
	const ns, nodes, leases = "/api/v1/namespaces/kubelets", "/api/v1/nodes", "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
	i.namespace(t, "kubelets")
	for _, name := range []string{"n1", "n2"} {
		i.must(t, "POST", nodes, `{"metadata":{"name":"`+name+`"}}`)
		i.must(t, "POST", ns+"/secrets", `{"metadata":{"name":"of-`+name+`"},"stringData":{"k":"v"}}`)
		i.must(t, "POST", ns+"/pods", podOn(name, "pod-"+name, "of-"+name))
	}
	kubelet := i.client(i.user(t, "system:node:n1", "system:nodes"))
	for deadline := time.Now().Add(await.Patience()); ; time.Sleep(10 * time.Millisecond) {
		code, body, err := i.ask(kubelet, "GET", ns+"/secrets/of-n1", "")
		if code == http.StatusOK {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("control: the secret of its pod: %d %s %v", code, body, err)
		}
	}
	own, other := i.uidOf(t, ns+"/pods/pod-n1"), i.uidOf(t, ns+"/pods/pod-n2")
	mirror := func(node, more string) string {
		return fmt.Sprintf(`{"metadata":{"name":"mirror","annotations":{"kubernetes.io/config.mirror":"x"},"ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"n1","uid":%q,"controller":true}]},
"spec":{"nodeName":%q,"containers":[{"name":"c","image":"i"}]%s}}`, i.uidOf(t, nodes+"/n1"), node, more)
	}
	token := func(pod, uid, audience string) string {
		return fmt.Sprintf(`{"spec":{"audiences":[%s],"boundObjectRef":{"apiVersion":"v1","kind":"Pod","name":%q,"uid":%q}}}`, audience, pod, uid)
	}
	evict := func(pod string) string {
		return `{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"` + pod + `"}}`
	}
	running := `{"status":{"phase":"Running"}}`
	for _, r := range []struct {
		method, path, body string
		allowed            bool
	}{
		{"GET", ns + "/secrets/of-n1", "", true},
		{"GET", ns + "/secrets/of-n2", "", false},
		{"GET", ns + "/secrets", "", false},
		{"GET", "/api/v1/pods?fieldSelector=spec.nodeName%3Dn1", "", true},
		{"GET", "/api/v1/pods?fieldSelector=spec.nodeName%3Dn2", "", false},
		{"GET", "/api/v1/pods?fieldSelector=&fieldSelector=spec.nodeName%3Dn1", "", false},
		{"GET", "/api/v1/watch/pods?fieldSelector=spec.nodeName%3Dn1", "", false},
		{"GET", ns + "/pods/pod-n2", "", false},
		{"PATCH", nodes + "/n1", `{"metadata":{"labels":{"kubernetes.io/hostname":"n1"}}}`, true},
		{"PATCH", nodes + "/n2", `{"metadata":{"labels":{"kubernetes.io/hostname":"n1"}}}`, false},
		{"PATCH", nodes + "/n1", `{"metadata":{"labels":{"node-restriction.kubernetes.io/trusted":"yes"}}}`, false},
		{"PATCH", nodes + "/n1", `{"metadata":{"labels":{"node-role.kubernetes.io/control-plane":""}}}`, false},
		{"PATCH", nodes + "/n1", `{"spec":{"taints":[{"key":"k","effect":"NoSchedule"}]}}`, false},
		{"PATCH", nodes + "/n1/status", `{"metadata":{"labels":{"node-restriction.kubernetes.io/trusted":"yes"}},"status":{"phase":"Running"}}`, false},
		{"PATCH", nodes + "/n2/status", running, false},
		{"POST", nodes, `{"metadata":{"name":"n3"}}`, false},
		{"DELETE", nodes + "/n2", "", false},
		{"POST", ns + "/pods", podOn("n1", "plain", "of-n2"), false},
		{"POST", ns + "/pods", mirror("n2", ""), false},
		{"POST", ns + "/pods", mirror("n1", `,"volumes":[{"name":"v","secret":{"secretName":"of-n2"}}]`), false},
		{"POST", ns + "/pods", mirror("n1", `,"serviceAccountName":"default"`), false},
		{"POST", ns + "/pods", mirror("n1", ""), true},
		{"PATCH", ns + "/pods/pod-n1/status", running, true},
		{"PATCH", ns + "/pods/pod-n1/status", `{"metadata":{"labels":{"app":"stolen"}}}`, false},
		{"PATCH", ns + "/pods/pod-n2/status", running, false},
		{"PATCH", ns + "/pods/pod-n1", `{"metadata":{"labels":{"a":"b"}}}`, false},
		{"POST", ns + "/pods/pod-n2/eviction", evict("pod-n2"), false},
		{"DELETE", ns + "/pods/pod-n2", "", false},
		{"POST", ns + "/serviceaccounts/default/token", token("pod-n1", own, ""), true},
		{"POST", ns + "/serviceaccounts/default/token", token("pod-n2", other, ""), false},
		{"POST", ns + "/serviceaccounts/default/token", token("pod-n1", other, ""), false},
		{"POST", ns + "/serviceaccounts/default/token", token("pod-n1", own, `"vault"`), false},
		{"POST", ns + "/serviceaccounts/default/token", `{"spec":{}}`, false},
		{"POST", "/api/v1/namespaces/kube-system/serviceaccounts/default/token", token("pod-n1", own, ""), false},
		{"POST", leases, `{"metadata":{"name":"n1","namespace":"kube-node-lease"}}`, true},
		{"POST", leases, `{"metadata":{"name":"n2","namespace":"kube-node-lease"}}`, false},
		{"PUT", leases + "/n2", `{"metadata":{"name":"n2","namespace":"kube-node-lease"}}`, false},
		{"POST", "/apis/storage.k8s.io/v1/csinodes", `{"metadata":{"name":"n2"},"spec":{"drivers":[]}}`, false},
		{"POST", "/apis/resource.k8s.io/v1/resourceslices", `{"metadata":{"name":"s"},"spec":{"driver":"d.example.com","nodeName":"n2","pool":{"name":"p","generation":1,"resourceSliceCount":1}}}`, false},
		{"POST", ns + "/pods/pod-n1/eviction", evict("pod-n1"), true},
	} {
		header := ""
		if r.method == "PATCH" {
			header = merge
		}
		code, body, err := i.ask(kubelet, r.method, r.path, r.body, header)
		if err != nil || r.allowed && code >= 300 || !r.allowed && code != http.StatusForbidden {
			t.Errorf("%s %s %.90s: %d %.300s %v", r.method, r.path, r.body, code, body, err)
		}
	}
	fake := i.client(i.user(t, "system:node:n1"))
	if code, body, err := i.ask(fake, "GET", ns+"/secrets/of-n1", ""); err != nil || code != http.StatusForbidden {
		t.Errorf("a user outside the group of nodes: %d %s %v", code, body, err)
	}
	if body := i.must(t, "GET", nodes+"/n1", ""); strings.Contains(body, "trusted") {
		t.Errorf("the node labelled itself: %s", body)
	}
}
