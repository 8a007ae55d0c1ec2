package access

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico/resource"
	"portico/resource/authz"
)

// updateRow is an update by user u, as a merge patch.
type updateRow struct {
	name  string
	held  []rbacv1.PolicyRule // by u, everywhere
	path  string
	patch string
	want  func(error) bool // nil: allowed
}

// The patches of rows.
const (
	label      = `{"metadata":{"labels":{"rbac.authorization.k8s.io/aggregate-to-view":"true"}}}`
	annotate   = `{"metadata":{"annotations":{"a":"b"}}}`
	finalize   = `{"metadata":{"finalizers":["example.com/keep"]}}`
	adopt      = `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"c","uid":"u"}]}}`
	both       = `{"metadata":{"finalizers":["example.com/keep"],"labels":{"a":"b"}}}`
	nothing    = `{}`
	noRules    = `{"rules":null}`
	podRules   = `{"rules":[{"verbs":["get"],"apiGroups":[""],"resources":["pods"]}]}`
	aggregate  = `{"aggregationRule":{"clusterRoleSelectors":[{"matchLabels":{"a":"b"}}]}}`
	noSelector = `{"aggregationRule":null}`
	otherGroup = `{"subjects":[{"kind":"Group","apiGroup":"rbac.authorization.k8s.io","name":"g"}]}`
	noSubjects = `{"subjects":null}`
)

var (
	secretsRule = on("get", "-", "secrets")
	podsRule    = on("get", "-", "pods")
)

func holds(rules ...rbacv1.PolicyRule) []rbacv1.PolicyRule { return rules }

// roleUpdates are updates of the roles that storePolicy stores: "secrets" in
// both kinds, and "aggregated", without collected rules.
func roleUpdates(path, res string) []updateRow {
	escalate := on("escalate", rbacv1.GroupName, res)
	return []updateRow{
		{"label without its rules", nil, path + "secrets", label, apierrors.IsForbidden},
		{"label with other rules", holds(podsRule), path + "secrets", label, apierrors.IsForbidden},
		{"label with its rules", holds(secretsRule), path + "secrets", label, nil},
		{"label with escalate", holds(escalate), path + "secrets", label, nil},
		{"label with escalate by name", holds(named("escalate", rbacv1.GroupName, res, "secrets")), path + "secrets", label, nil},
		{"label with escalate on another", holds(named("escalate", rbacv1.GroupName, res, "other")), path + "secrets", label, apierrors.IsForbidden},
		{"label with bind", holds(on("bind", rbacv1.GroupName, res)), path + "secrets", label, apierrors.IsForbidden},
		{"annotate without its rules", nil, path + "secrets", annotate, apierrors.IsForbidden},
		{"finalizers", nil, path + "secrets", finalize, nil},
		{"owner references", nil, path + "secrets", adopt, nil},
		{"finalizers and a label", nil, path + "secrets", both, apierrors.IsForbidden},
		{"nothing", nil, path + "secrets", nothing, nil},
		{"fewer rules", nil, path + "secrets", noRules, nil},
		{"rules that are not held", nil, path + "secrets", podRules, apierrors.IsForbidden},
		{"rules that are held", holds(podsRule), path + "secrets", podRules, nil},
	}
}

func aggregationUpdates() []updateRow {
	const path = "clusterroles/"
	return []updateRow{
		{"begin to aggregate with its rules", holds(secretsRule), path + "secrets", aggregate, apierrors.IsForbidden},
		{"begin to aggregate with every right", authz.Everything(), path + "secrets", aggregate, nil},
		{"begin to aggregate with every read", holds(on("get list watch", "*", "*")), path + "secrets", aggregate, apierrors.IsForbidden},
		{"begin to aggregate with escalate", holds(on("escalate", rbacv1.GroupName, "clusterroles")), path + "secrets", aggregate, nil},
		{"label an aggregated role", nil, path + "aggregated", label, apierrors.IsForbidden},
		{"give an aggregated role rules that are held", holds(podsRule), path + "aggregated", podRules, apierrors.IsForbidden},
		{"end aggregation", nil, path + "aggregated", noSelector, apierrors.IsForbidden},
		{"end aggregation with every right", authz.Everything(), path + "aggregated", noSelector, nil},
		{"finalizers of an aggregated role", nil, path + "aggregated", finalize, nil},
	}
}

// bindingUpdates are updates of the bindings that storePolicy stores: to
// ClusterRole secrets, and to one that does not exist.
func bindingUpdates(path string) []updateRow {
	bind := on("bind", rbacv1.GroupName, "clusterroles")
	return []updateRow{
		{"label without the role's rules", nil, path + "secrets", label, apierrors.IsForbidden},
		{"label with the role's rules", holds(secretsRule), path + "secrets", label, nil},
		{"label with bind", holds(bind), path + "secrets", label, nil},
		{"label with bind by name", holds(named("bind", rbacv1.GroupName, "clusterroles", "secrets")), path + "secrets", label, nil},
		{"label with bind on roles", holds(on("bind", rbacv1.GroupName, "roles")), path + "secrets", label, apierrors.IsForbidden},
		{"label with escalate", holds(on("escalate", rbacv1.GroupName, "clusterroles")), path + "secrets", label, apierrors.IsForbidden},
		{"annotate", nil, path + "secrets", annotate, apierrors.IsForbidden},
		{"subjects without the role's rules", nil, path + "secrets", otherGroup, apierrors.IsForbidden},
		{"subjects with the role's rules", holds(secretsRule), path + "secrets", otherGroup, nil},
		{"fewer subjects without the role's rules", nil, path + "secrets", noSubjects, apierrors.IsForbidden},
		{"finalizers", nil, path + "secrets", finalize, nil},
		{"owner references", nil, path + "secrets", adopt, nil},
		{"finalizers and a label", nil, path + "secrets", both, apierrors.IsForbidden},
		{"nothing", nil, path + "secrets", nothing, nil},
		{"label of a binding to a missing role", nil, path + "lost", label, apierrors.IsNotFound},
		{"label of a binding to a missing role with bind", holds(bind), path + "lost", label, nil},
		{"finalizers of a binding to a missing role", nil, path + "lost", finalize, nil},
	}
}

// Updates of roles and bindings are allowed and rejected as by kube-apiserver's storage
// (k8s.io/kubernetes/pkg/registry/rbac, policybased and escalation checks): every update is
// checked, except updates of finalizers and owner references only.
func TestEveryUpdateIsCheckedForEscalation(t *testing.T) {
	t.Parallel()
	for kind, rows := range map[string][]updateRow{
		"ClusterRole":        roleUpdates("clusterroles/", "clusterroles"),
		"Role":               roleUpdates("namespaces/n/roles/", "roles"),
		"aggregated":         aggregationUpdates(),
		"ClusterRoleBinding": bindingUpdates("clusterrolebindings/"),
		"RoleBinding":        bindingUpdates("namespaces/n/rolebindings/"),
	} {
		for _, row := range rows {
			t.Run(kind+"/"+row.name, func(t *testing.T) {
				t.Parallel()
				b := policyBench(t, row.policy())
				b.storePolicy()
				err := b.as(&resource.User{Name: "u"}, http.MethodPatch, rbacPath+row.path, json.RawMessage(row.patch), nil)
				if row.want == nil && err != nil || row.want != nil && !row.want(err) {
					t.Errorf("got %v", err)
				}
				if err := b.as(masters(), http.MethodPatch, rbacPath+row.path, json.RawMessage(row.patch), nil); err != nil {
					t.Errorf("system:masters: %v", err)
				}
			})
		}
	}
}

// policy returns the rights of user u, and the role of the bindings.
func (row *updateRow) policy() *policy {
	p := granting(row.held...)
	p.clusterRole("secrets", secretsRule)
	return p
}

// storePolicy stores the objects that rows update.
func (b *bench) storePolicy() {
	b.t.Helper()
	meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name} }
	ref := func(name string) rbacv1.RoleRef {
		return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name}
	}
	subjects, rules := []rbacv1.Subject{user("friend")}, holds(secretsRule)
	for path, list := range map[string][]any{
		"clusterroles": {
			&rbacv1.ClusterRole{ObjectMeta: meta("secrets"), Rules: rules},
			&rbacv1.ClusterRole{ObjectMeta: meta("aggregated"), AggregationRule: &rbacv1.AggregationRule{ClusterRoleSelectors: []metav1.LabelSelector{{}}}},
		},
		"namespaces/n/roles": {&rbacv1.Role{ObjectMeta: meta("secrets"), Rules: rules}},
		"clusterrolebindings": {
			&rbacv1.ClusterRoleBinding{ObjectMeta: meta("secrets"), RoleRef: ref("secrets"), Subjects: subjects},
			&rbacv1.ClusterRoleBinding{ObjectMeta: meta("lost"), RoleRef: ref("lost"), Subjects: subjects},
		},
		"namespaces/n/rolebindings": {
			&rbacv1.RoleBinding{ObjectMeta: meta("secrets"), RoleRef: ref("secrets"), Subjects: subjects},
			&rbacv1.RoleBinding{ObjectMeta: meta("lost"), RoleRef: ref("lost"), Subjects: subjects},
		},
	} {
		for _, obj := range list {
			if err := b.as(masters(), http.MethodPost, rbacPath+path, obj, nil); err != nil {
				b.t.Fatal(err)
			}
		}
	}
}

// Updates by all methods and patches are checked; deletions are not, as upstream.
func TestEveryWayToUpdateIsChecked(t *testing.T) {
	t.Parallel()
	b := policyBench(t, granting())
	b.storePolicy()
	u := &resource.User{Name: "u"}
	var role rbacv1.ClusterRole
	if err := b.as(u, http.MethodGet, rbacPath+"clusterroles/secrets", nil, &role); err != nil {
		t.Fatal(err)
	}
	if err := b.as(u, http.MethodPut, rbacPath+"clusterroles/secrets", &role, &role); err != nil {
		t.Errorf("PUT of what is stored: %v", err)
	}
	role.Labels = map[string]string{"a": "b"}
	applied := json.RawMessage(`{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole","metadata":{"name":"secrets","labels":{"a":"b"}}}`)
	for name, c := range map[string]struct {
		contentType, method, query string
		body                       any
	}{
		"PUT":             {"application/json", http.MethodPut, "", &role},
		"dry run":         {"application/json", http.MethodPut, "?dryRun=All", &role},
		"JSON patch":      {"application/json-patch+json", http.MethodPatch, "", json.RawMessage(`[{"op":"add","path":"/metadata/labels","value":{"a":"b"}}]`)},
		"merge patch":     {"application/merge-patch+json", http.MethodPatch, "", json.RawMessage(label)},
		"strategic patch": {"application/strategic-merge-patch+json", http.MethodPatch, "", json.RawMessage(label)},
		"apply":           {"application/apply-patch+yaml", http.MethodPatch, "?fieldManager=m", applied},
		"forced apply":    {"application/apply-patch+yaml", http.MethodPatch, "?fieldManager=m&force=true", applied},
	} {
		if err := b.send(u, c.method, rbacPath+"clusterroles/secrets"+c.query, c.contentType, c.body, nil); !apierrors.IsForbidden(err) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	for path, kind := range map[string]string{
		"clusterroles/secrets": "ClusterRole", "clusterrolebindings/secrets": "ClusterRoleBinding", "namespaces/n/roles/secrets": "Role", "namespaces/n/rolebindings/secrets": "RoleBinding",
	} {
		// The ownership of fields is tracked for every kind.
		applied := json.RawMessage(strings.Replace(string(applied), "ClusterRole", kind, 1))
		if err := b.send(masters(), http.MethodPatch, rbacPath+path+"?fieldManager=m", "application/apply-patch+yaml", applied, nil); err != nil {
			t.Errorf("apply %s: %v", path, err)
		}
		if err := b.as(u, http.MethodDelete, rbacPath+path, nil, nil); err != nil {
			t.Errorf("delete %s: %v", path, err)
		}
	}
}
