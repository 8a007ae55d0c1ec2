package access

import (
	"reflect"
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico/internal/testing/await"
	"portico/resource"
	"portico/resource/authz"
	"portico/resource/rest"
)

// put stores an object without the API.
func put[T rest.Object](b *bench, res string, obj T) {
	b.t.Helper()
	if _, err := rest.CreateObject(b.t.Context(), b.find(rbacv1.Resource(res)), obj); err != nil {
		b.t.Fatal(err)
	}
}

// stored returns the stored object; nil if there is none.
func stored[T rest.Object](b *bench, res, namespace, name string) (out T) {
	b.t.Helper()
	r := b.find(rbacv1.Resource(res))
	o, err := r.Store.Get(b.t.Context(), resource.Key{Namespace: namespace, Name: name}, resource.At{})
	if err != nil {
		return out
	}
	obj, err := r.Decode(o)
	if err != nil {
		b.t.Fatal(err)
	}
	return obj.(T)
}

// All objects of the bootstrap policy are stored with
// the label and annotation of bootstrap objects.
func TestBootstrapPolicyIsStored(t *testing.T) {
	b := newBench(t, Config{})
	b.run()
	for kind, objects := range bootstrapPolicy().objects {
		for _, want := range objects {
			got := stored[rest.Object](b, groupResource(kind).Resource, want.GetNamespace(), want.GetName())
			if got == nil || got.GetLabels()["kubernetes.io/bootstrapping"] != "rbac-defaults" || got.GetAnnotations()["rbac.authorization.kubernetes.io/autoupdate"] != "true" || got.GetUID() == "" {
				t.Errorf("%s/%s: got %v", want.GetNamespace(), want.GetName(), got)
			}
		}
	}
}

// Every binding of the policy refers to an existing role, and every object is valid.
func TestBootstrapPolicyIsConsistent(t *testing.T) {
	p, known := bootstrapPolicy(), map[resource.Key]bool{}
	check := func(kind int, rules func(rest.Object) []rbacv1.PolicyRule) {
		for _, r := range p.objects[kind] {
			key := resource.Key{Namespace: r.GetNamespace(), Name: r.GetName()}
			if errs := validateRules(rules(r), kind == roles); len(errs) > 0 || known[key] {
				t.Errorf("role %s: duplicate or invalid: %v", key, errs)
			}
			known[key] = true
		}
	}
	check(clusterRoles, func(r rest.Object) []rbacv1.PolicyRule { return r.(*rbacv1.ClusterRole).Rules })
	check(roles, func(r rest.Object) []rbacv1.PolicyRule { return r.(*rbacv1.Role).Rules })
	for _, kind := range []int{roleBindings, clusterRoleBindings} {
		for _, b := range p.objects[kind] {
			errs := validateBinding(bindingOf(b), kind == roleBindings)
			if len(errs) > 0 || !known[resource.Key{Namespace: b.GetNamespace(), Name: bindingOf(b).ref.Name}] {
				t.Errorf("binding %s/%s: invalid or without a role: %v", b.GetNamespace(), b.GetName(), errs)
			}
		}
	}
}

// Stored objects get missing rules, subjects and labels and keep additional ones, unless they
// opted out. Roles of Portico's processes lose rules that an earlier version needed.
func TestBootstrapReconciles(t *testing.T) {
	b := newBench(t, Config{})
	extra := on("get", "-", "extras")
	put(b, "clusterroles", &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "system:discovery", Labels: map[string]string{"own": "label"}},
		Rules:      []rbacv1.PolicyRule{extra},
	})
	put(b, "clusterroles", &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "system:portico:crd"}, Rules: []rbacv1.PolicyRule{on("*", "*", "*")}})
	optOut := metav1.ObjectMeta{Name: "system:basic-user", Annotations: map[string]string{autoupdateAnnotation: "false"}}
	put(b, "clusterroles", &rbacv1.ClusterRole{ObjectMeta: optOut})
	put(b, "clusterrolebindings", &rbacv1.ClusterRoleBinding{ObjectMeta: optOut, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:basic-user"}})
	put(b, "clusterrolebindings", &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "cluster-admin"}, Subjects: []rbacv1.Subject{user("root")},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
	})
	b.run()
	discovery := stored[*rbacv1.ClusterRole](b, "clusterroles", "", "system:discovery")
	if len(discovery.Rules) != 2 || !reflect.DeepEqual(discovery.Rules[0], extra) || !slices.Contains(discovery.Rules[1].NonResourceURLs, "/apis/*") {
		t.Errorf("rules %v", discovery.Rules)
	}
	if discovery.Labels["own"] != "label" || discovery.Labels[bootstrapLabel] != bootstrapValue || discovery.Annotations[autoupdateAnnotation] != "true" {
		t.Errorf("metadata %+v", discovery.ObjectMeta)
	}
	if got := stored[*rbacv1.ClusterRole](b, "clusterroles", "", "system:portico:crd"); slices.ContainsFunc(got.Rules, func(r rbacv1.PolicyRule) bool { return slices.Contains(r.Verbs, "*") }) {
		t.Errorf("the CRD server keeps the rules %v", got.Rules)
	}
	if got := stored[*rbacv1.ClusterRole](b, "clusterroles", "", "system:basic-user"); len(got.Rules) != 0 || got.Annotations[autoupdateAnnotation] != "false" || len(got.Labels) != 0 {
		t.Errorf("opted out role %+v", got)
	}
	if got := stored[*rbacv1.ClusterRoleBinding](b, "clusterrolebindings", "", "system:basic-user"); len(got.Subjects) != 0 {
		t.Errorf("opted out binding %+v", got)
	}
	got := stored[*rbacv1.ClusterRoleBinding](b, "clusterrolebindings", "", "cluster-admin")
	if !slices.Equal(got.Subjects, []rbacv1.Subject{user("root"), group("system:masters")}) {
		t.Errorf("subjects %+v", got.Subjects)
	}
}

// system:public-info-viewer gets the subjects of a stored system:discovery, and the default subjects
// too unless system:discovery has autoupdate "false".
func TestBootstrapSplitsDiscovery(t *testing.T) {
	for autoupdate, closed := range map[string]bool{"false": true, "true": false} {
		b := newBench(t, Config{})
		put(b, "clusterrolebindings", &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "system:discovery", Labels: map[string]string{"own": "label"}, Annotations: map[string]string{autoupdateAnnotation: autoupdate}},
			Subjects:   []rbacv1.Subject{group("system:authenticated")},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:discovery"},
		})
		b.run()
		got := stored[*rbacv1.ClusterRoleBinding](b, "clusterrolebindings", "", "system:public-info-viewer")
		if got.Labels["own"] != "label" || got.RoleRef.Name != "system:public-info-viewer" ||
			!slices.Contains(got.Subjects, group("system:authenticated")) || slices.Contains(got.Subjects, group("system:unauthenticated")) == closed {
			t.Errorf("autoupdate %s: %+v", autoupdate, got)
		}
	}
}

// A second bootstrap writes nothing.
func TestBootstrapIsIdempotent(t *testing.T) {
	b := newBench(t, Config{})
	b.run()
	await.Until(b.t, "aggregation is complete", func() bool {
		r := stored[*rbacv1.ClusterRole](b, "clusterroles", "", "admin")
		return slices.ContainsFunc(r.Rules, func(r rbacv1.PolicyRule) bool { return slices.Contains(r.Resources, "pods/log") })
	})
	again, before := New(Config{}), b.storage.Revision()
	again.bootstrap(t.Context(), b.access.resources.Load())
	if n := b.storage.Revision() - before; n != 0 || !again.ready.Load() {
		t.Errorf("%d writes, ready %v", n, again.ready.Load())
	}
}

// admin aggregates edit and view, and roles with their labels.
func TestAggregation(t *testing.T) {
	b := newBench(t, Config{})
	b.run()
	custom := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "custom", Labels: map[string]string{aggregateTo + "view": "true"}},
		Rules:      []rbacv1.PolicyRule{on("get", "example.com", "widgets")},
	}
	put(b, "clusterroles", custom)
	put(b, "rolebindings", &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "b"}, Subjects: []rbacv1.Subject{user("u")},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "admin"},
	})
	may := func(act *resource.Action) func() bool {
		return func() bool {
			got, _, err := b.access.Authorize(t.Context(), act)
			return err == nil && got == authz.Allow
		}
	}
	widgets := do("get", "example.com", "widgets", "", "ns", "w")
	await.Until(b.t, "admin has the rules of view", may(do("get", "", "pods", "log", "ns", "p")))
	await.Until(b.t, "admin has the rules of edit", may(do("delete", "", "secrets", "", "ns", "p")))
	await.Until(b.t, "admin has its own", may(do("create", rbacv1.GroupName, "roles", "", "ns", "")))
	await.Until(b.t, "admin has the custom rule", may(widgets))
	if may(do("get", "", "pods", "", "other", "p"))() {
		t.Error("the binding holds in another namespace")
	}
	if _, err := b.find(rbacv1.Resource("clusterroles")).Store.Delete(t.Context(), resource.Key{Name: "custom"}, nil); err != nil {
		t.Fatal(err)
	}
	await.Until(b.t, "the custom rule is withdrawn", func() bool { return !may(widgets)() })
}
