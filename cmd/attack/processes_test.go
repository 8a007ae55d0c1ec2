package attack

import (
	"crypto/tls"
	"path/filepath"
	"testing"
)

// The certificates of the core and the CRD server are good for their work at the gateway and nothing else: neither
// creates what grants rights, acts as another user, or leaves its role; the CRD server changes no object.
func TestCertificatesOfProcesses(t *testing.T) {
	t.Parallel()
	i := target
	const (
		configmaps = "/api/v1/namespaces/default/configmaps"
		secrets    = "/api/v1/namespaces/kube-system/secrets"
		rbac       = "/apis/rbac.authorization.k8s.io/v1/"
	)
	for process, cases := range map[string][]struct {
		name, method, path, body string
		header                   []string
		code                     int
	}{
		"core": {
			{"control: reads", "GET", configmaps, "", nil, 200},
			{"control: creates what controllers create", "POST", configmaps, `{"metadata":{"generateName":"of-core-"}}`, nil, 201},
			{"control: deletes", "DELETE", configmaps + "/missing", "", nil, 404},
			{"creates a secret", "POST", secrets, `{"metadata":{"name":"x"}}`, nil, 403},
			{"creates a role", "POST", rbac + "clusterroles", `{"metadata":{"name":"x"}}`, nil, 403},
			{"creates a binding", "POST", rbac + "clusterrolebindings", `{"metadata":{"name":"x"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"cluster-admin"}}`, nil, 403},
			{"creates a pod", "POST", "/api/v1/namespaces/default/pods", `{"metadata":{"name":"x"}}`, nil, 403},
			{"creates a token", "POST", "/api/v1/namespaces/kube-system/serviceaccounts/default/token", `{}`, nil, 403},
			{"acts as the administrator", "GET", configmaps, "", []string{"Impersonate-User: admin", "Impersonate-Group: system:masters"}, 403},
		},
		"crd": {
			{"control: reads", "GET", configmaps, "", nil, 200},
			{"creates", "POST", configmaps, `{"metadata":{"name":"x"}}`, nil, 403},
			{"deletes", "DELETE", configmaps + "/missing", "", nil, 403},
			{"deletes a collection", "DELETE", configmaps, "", nil, 403},
			{"updates", "PUT", configmaps + "/missing", `{"metadata":{"name":"missing"}}`, nil, 403},
			{"binds a role", "PATCH", rbac + "clusterrolebindings/cluster-admin", `{}`, nil, 403},
			{"removes a definition", "DELETE", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/missing", "", nil, 403},
			{"acts as the administrator", "GET", configmaps, "", []string{"Impersonate-User: admin", "Impersonate-Group: system:masters"}, 403},
			{"reads metrics", "GET", "/metrics", "", nil, 403},
		},
	} {
		pair, err := tls.LoadX509KeyPair(filepath.Join(i.Dir, "pki", process+".crt"), filepath.Join(i.Dir, "pki", process+".key"))
		if err != nil {
			t.Fatal(err)
		}
		client := i.client(&pair)
		for _, c := range cases {
			if code, body, err := i.ask(client, c.method, c.path, c.body, c.header...); err != nil || code != c.code {
				t.Errorf("%s %s: %d %s %v, want %d", process, c.name, code, body, err, c.code)
			}
		}
	}
}
