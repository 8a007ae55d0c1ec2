package faults

import (
	"fmt"
	"net/http"
	"testing"

	"portico/cmd/e2e"
)

// readsParameters checks that policies on the gateway's kinds read their parameters from the
// core server and from the gateway itself, and apply changes of them.
func (c holder) readsParameters(t *testing.T) {
	for _, p := range []struct{ name, kind, path, namespace string }{
		{"paramcore", `{"apiVersion":"v1","kind":"ConfigMap"}`, "/api/v1/namespaces/default/configmaps", `,"namespace":"default"`},
		{"paramown", `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole"}`, rbacPath + "clusterroles", ""},
	} {
		t.Run(p.name, func(t *testing.T) {
			source := func(allowed string) string {
				return fmt.Sprintf(`{"metadata":{"name":"source-%s","annotations":{"allowed":%q}}}`, p.name, allowed)
			}
			if err := c.post(p.path, source("a"), http.StatusCreated); err != nil {
				t.Fatal(err)
			}
			policy := fmt.Sprintf(`{"metadata":{"name":%q},"spec":{"paramKind":%s,"matchConstraints":{"resourceRules":[
				{"apiGroups":["rbac.authorization.k8s.io"],"apiVersions":["*"],"resources":["clusterroles"],"operations":["CREATE"]}]},
				"matchConditions":[{"name":"mine","expression":"object.metadata.name.startsWith('%s-')"}],
				"validations":[{"expression":"object.metadata.name == '%s-' + params.metadata.annotations.allowed","message":"by its parameter"}]}}`, p.name, p.kind, p.name, p.name)
			binding := fmt.Sprintf(`{"metadata":{"name":%q},"spec":{"policyName":%q,"validationActions":["Deny"],"paramRef":{"name":"source-%s"%s,"parameterNotFoundAction":"Deny"}}}`,
				p.name, p.name, p.name, p.namespace)
			for path, body := range map[string]string{"validatingadmissionpolicies": policy, "validatingadmissionpolicybindings": binding} {
				if err := c.post(e2e.Admission+path, body, http.StatusCreated); err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() {
					if _, err := c.ask(http.MethodDelete, e2e.Admission+path+"/"+p.name, "", "application/json", http.StatusOK); err != nil {
						t.Error(err)
					}
				})
			}
			role := func(suffix string, code int, texts ...string) func() error {
				return func() error {
					return c.post(rbacPath+"clusterroles?dryRun=All", fmt.Sprintf(`{"metadata":{"name":"%s-%s"},"rules":[]}`, p.name, suffix), code, texts...)
				}
			}
			e2e.Eventually(t, "the policy denies by its parameter", role("b", http.StatusUnprocessableEntity, "by its parameter"))
			e2e.Eventually(t, "the policy allows by its parameter", role("a", http.StatusCreated))
			if _, err := c.ask(http.MethodPut, p.path+"/source-"+p.name, source("b"), "application/json", http.StatusOK); err != nil {
				t.Fatal(err)
			}
			e2e.Eventually(t, "a change of the parameter applies", role("b", http.StatusCreated))
		})
	}
}
