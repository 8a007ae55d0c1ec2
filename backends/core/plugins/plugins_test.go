package plugins

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico/backends/core/kinds"
	"portico/internal/testing/memstore"
	"portico/resource"
	"portico/resource/admission"
	"portico/resource/rest"
)

// world is what plugins see of a server: its kinds with a store in memory.
type world struct {
	t         *testing.T
	resources map[string]*rest.Resource
	options   Options
	// allowed decides what Authorize permits; nil: everything.
	allowed  func(a *resource.Action) bool
	warnings []string
	mapper   meta.RESTMapper
}

// newWorld returns a server with objects in its stores.
func newWorld(t *testing.T, objects ...rest.Object) *world {
	t.Helper()
	w := &world{t: t, resources: map[string]*rest.Resource{}, mapper: meta.MultiRESTMapper{}}
	storage := memstore.New()
	for _, k := range kinds.All(kinds.Config{}) {
		w.resources[k.GroupResource().String()] = &rest.Resource{Kind: k, Store: storage.Store(&k.Info)}
	}
	w.store(objects...)
	return w
}

// store creates objects past admission.
func (w *world) store(objects ...rest.Object) {
	w.t.Helper()
	for _, obj := range objects {
		if _, err := rest.CreateObject(w.t.Context(), w.kindOf(obj), obj.DeepCopyObject().(rest.Object)); err != nil {
			w.t.Fatalf("store %T %s: %v", obj, obj.GetName(), err)
		}
	}
}

// kindOf returns the resource that an object is of.
func (w *world) kindOf(obj runtime.Object) *rest.Resource {
	w.t.Helper()
	for _, r := range w.resources {
		made := r.Codec.StrategicMerge(r.GVK(r.Storage()))
		if made != nil && typeName(made) == typeName(obj) {
			return r
		}
	}
	w.t.Fatalf("no kind of %T", obj)
	return nil
}

func (w *world) config() Config {
	return Config{
		Options: w.options, Mapper: w.mapper,
		Resource: func(group, res string) *rest.Resource { return w.resources[grOf(group, res)] },
		Authorize: func(_ context.Context, a *resource.Action) error {
			if w.allowed == nil || w.allowed(a) {
				return nil
			}
			return forbiddenAction(a)
		},
		Warn: func(_ context.Context, text string) { w.warnings = append(w.warnings, text) },
		Namespace: func(context.Context, string, bool) (admission.NamespaceState, error) {
			return admission.NamespaceState{Exists: true}, nil
		},
	}
}

// configure writes the configuration of one plugin.
func (w *world) configure(plugin string, config any) {
	w.t.Helper()
	data, err := json.Marshal(map[string]any{
		"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AdmissionConfiguration", "plugins": []any{map[string]any{"name": plugin, "configuration": config}},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.options.ConfigFile = filepath.Join(w.t.TempDir(), "admission.json")
	if err := os.WriteFile(w.options.ConfigFile, data, 0o600); err != nil {
		w.t.Fatal(err)
	}
}

// only returns one plugin, as a chain that observes it.
func (w *world) only(name string) rest.Admission {
	w.t.Helper()
	cfg := w.config()
	cfg.Enable, cfg.Disable = []string{name}, slices.DeleteFunc(Names(), func(n string) bool { return n == name })
	a, err := New(cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	return a
}

// write describes a write: a create if old is nil, a deletion if obj is.
func (w *world) write(obj, old rest.Object, change ...func(*rest.Attributes)) *rest.Attributes {
	w.t.Helper()
	some := obj
	a := &rest.Attributes{Operation: rest.Update}
	switch {
	case obj == nil:
		a.Operation, some = rest.Delete, old
		a.Old = old
	case old == nil:
		a.Operation, a.Object = rest.Create, obj
	default:
		a.Object, a.Old = obj, old
	}
	r := w.kindOf(some)
	a.Kind, a.Key = r.Kind, resource.Key{Namespace: some.GetNamespace(), Name: some.GetName()}
	a.Action = &resource.Action{
		Verb: strings.ToLower(string(a.Operation)), IsResource: true, Group: r.Group, Version: r.Versions[0], Resource: r.Resource,
		Namespace: a.Key.Namespace, Name: a.Key.Name, User: &resource.User{Name: "alice"},
	}
	for _, c := range change {
		c(a)
	}
	return a
}

// subresource makes a write one of a subresource.
func subresource(name string) func(*rest.Attributes) {
	return func(a *rest.Attributes) { a.Action.Subresource = name }
}

// admitWrite runs both phases.
func admitWrite(t *testing.T, plugin rest.Admission, a *rest.Attributes) error {
	t.Helper()
	if err := plugin.Mutate(t.Context(), a); err != nil {
		return err
	}
	return plugin.Validate(t.Context(), a)
}

func accountOf(name string, change ...func(*corev1.ServiceAccount)) *corev1.ServiceAccount {
	sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
	for _, c := range change {
		c(sa)
	}
	return sa
}

// amounts parses "cpu=1 memory=2Gi".
func amounts(text string) corev1.ResourceList {
	var out corev1.ResourceList
	for _, f := range strings.Fields(text) {
		if out == nil {
			out = corev1.ResourceList{}
		}
		name, q, _ := strings.Cut(f, "=")
		out[corev1.ResourceName(name)] = apiresource.MustParse(q)
	}
	return out
}

// aPod returns a pod of namespace ns with one container, changed.
func aPod(change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	for _, c := range change {
		c(p)
	}
	return p
}

// The table has kube-apiserver's plugins in its order and with its defaults.
func TestTable(t *testing.T) {
	t.Parallel()
	order := strings.Fields(`AlwaysAdmit NamespaceAutoProvision NamespaceLifecycle NamespaceExists LimitPodHardAntiAffinityTopology LimitRanger
		ServiceAccount NodeRestriction TaintNodesByCondition AlwaysPullImages ImagePolicyWebhook PodSecurity PodNodeSelector Priority
		DefaultTolerationSeconds PodTolerationRestriction EventRateLimit ExtendedResourceToleration DefaultStorageClass StorageObjectInUseProtection
		PodGroupProtection OwnerReferencesPermissionEnforcement PersistentVolumeClaimResize RuntimeClass CertificateApproval CertificateSigning
		ClusterTrustBundleAttest CertificateSubjectRestriction DefaultIngressClass DenyServiceExternalIPs PodTopologyLabels
		NodeDeclaredFeatureValidator PodResizeValidator MutatingAdmissionPolicy MutatingAdmissionWebhook ValidatingAdmissionPolicy
		ValidatingAdmissionWebhook ResourceQuota AlwaysDeny`)
	off := strings.Fields(`AlwaysAdmit AlwaysDeny AlwaysPullImages DenyServiceExternalIPs EventRateLimit ExtendedResourceToleration ImagePolicyWebhook
		LimitPodHardAntiAffinityTopology NamespaceAutoProvision NamespaceExists NodeRestriction OwnerReferencesPermissionEnforcement
		PodNodeSelector PodTolerationRestriction`)
	table := all()
	if len(table) != len(order) {
		t.Fatalf("%d plugins, want %d", len(table), len(order))
	}
	for i, r := range table {
		if r.name != order[i] {
			t.Errorf("plugin %d is %s, want %s", i, r.name, order[i])
		}
		if r.on == slices.Contains(off, r.name) {
			t.Errorf("%s: on by default is %v", r.name, r.on)
		}
		if r.exists() != (r.missing == "") {
			t.Errorf("%s: a plugin that is missing says why, others do not", r.name)
		}
		for _, gr := range r.resources {
			if servedKinds[gr.String()] == nil {
				t.Errorf("%s is called for %s, which is not served", r.name, gr)
			}
		}
	}
}

// servedKinds are the served kinds by resource.
var servedKinds = func() map[string]*rest.Kind {
	out := map[string]*rest.Kind{}
	for _, k := range kinds.All(kinds.Config{}) {
		out[k.GroupResource().String()] = k
	}
	return out
}()

// Flags that name no plugin, or one that is missing, are refused in a line that says what to do.
func TestOptions(t *testing.T) {
	t.Parallel()
	file := func(text string) string {
		name := filepath.Join(t.TempDir(), "admission.yaml")
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	head := "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\n"
	webhooks := func(field string) string {
		return file(head + "plugins: [{name: ValidatingAdmissionWebhook, configuration: {apiVersion: apiserver.config.k8s.io/v1, kind: WebhookAdmissionConfiguration, " + field + "}}]\n")
	}
	for _, tc := range []struct {
		name    string
		options Options
		err     string
	}{
		{name: "none"},
		{name: "on by default", options: Options{Enable: []string{"DefaultTolerationSeconds"}}},
		{name: "off", options: Options{Disable: []string{"DefaultTolerationSeconds", "NamespaceLifecycle", "MutatingAdmissionWebhook"}}},
		{name: "a missing one off", options: Options{Disable: []string{"PodGroupProtection"}}},
		{name: "unknown", options: Options{Enable: []string{"Nonesuch"}}, err: `--enable-admission-plugins: there is no plugin "Nonesuch"; the plugins are AlwaysAdmit, NamespaceAutoProvision, NamespaceLifecycle, `},
		{name: "unknown off", options: Options{Disable: []string{"podsecurity"}}, err: `--disable-admission-plugins: there is no plugin "podsecurity"`},
		{name: "missing", options: Options{Enable: []string{"PodGroupProtection"}}, err: "PodGroupProtection cannot be enabled: PodGroups are off"},
		{name: "both", options: Options{Enable: []string{"NamespaceLifecycle"}, Disable: []string{"NamespaceLifecycle"}}, err: "both name NamespaceLifecycle"},
		{name: "no file", options: Options{ConfigFile: "/nonesuch/x"}, err: "--admission-control-config-file=/nonesuch/x: no such file"},
		{name: "empty configuration", options: Options{ConfigFile: file(head)}},
		{name: "older version", options: Options{ConfigFile: file("apiVersion: apiserver.k8s.io/v1alpha1\nkind: AdmissionConfiguration\nplugins: []\n")}},
		{name: "unknown field", options: Options{ConfigFile: file(head + "plugin: []\n")}, err: `unknown field "plugin"`},
		{name: "another kind", options: Options{ConfigFile: file("apiVersion: v1\nkind: Pod\n")}, err: "no kind \"Pod\" is registered"},
		{name: "unknown plugin", options: Options{ConfigFile: file(head + "plugins: [{name: Nonesuch}]\n")}, err: `plugins[0]: there is no plugin "Nonesuch"`},
		{name: "missing plugin", options: Options{ConfigFile: file(head + "plugins: [{name: PodGroupProtection}]\n")}, err: "plugins[0]: plugin PodGroupProtection: PodGroups are off"},
		{name: "no configuration", options: Options{ConfigFile: file(head + "plugins: [{name: NamespaceLifecycle, configuration: {a: b}}]\n")}, err: "plugin NamespaceLifecycle has no configuration"},
		{name: "webhooks", options: Options{ConfigFile: webhooks(`kubeConfigFile: ` + file("apiVersion: v1\nkind: Config\n"))}},
		{name: "a relative kubeconfig", options: Options{ConfigFile: webhooks(`kubeConfigFile: x`)}, err: "admission plugin ValidatingAdmissionWebhook: configuration: kubeConfigFile: Invalid value"},
		{name: "no kubeconfig", options: Options{ConfigFile: webhooks(`kubeConfigFile: /nonesuch/x`)}, err: "configuration: kubeConfigFile: stat /nonesuch/x"},
		{name: "webhooks of files", options: Options{ConfigFile: webhooks(`staticManifestsDir: /x`)}, err: "staticManifestsDir"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			err := tc.options.Check()
			switch {
			case err == nil && tc.err == "":
			case err == nil || tc.err == "" || !strings.Contains(err.Error(), tc.err) || strings.Contains(err.Error(), "\n"):
				t.Errorf("got %v, want %q", err, tc.err)
			}
		})
	}
}

// A plugin that is disabled is not called, nor one for other resources.
func TestChain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, accountOf("default"))
	w.options.Disable = []string{"DefaultTolerationSeconds"}
	plugin, err := New(w.config())
	if err != nil {
		t.Fatal(err)
	}
	pod := aPod()
	if err := plugin.Mutate(t.Context(), w.write(pod, nil)); err != nil || len(pod.Spec.Tolerations) != 0 {
		t.Errorf("disabled: %v, %v", pod.Spec.Tolerations, err)
	}
	called := 0
	count := mutates(func(context.Context, *rest.Attributes) error { called++; return nil })
	list := chain{{row: row{name: "x", resources: on("pods", "ingresses.networking.k8s.io")}, Admission: count}}
	for _, obj := range []rest.Object{aPod(), &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "s"}}} {
		if err := admitWrite(t, list, w.write(obj, nil)); err != nil {
			t.Fatal(err)
		}
	}
	if called != 1 {
		t.Errorf("called %d times, want once", called)
	}
}

func typeName(obj runtime.Object) string { return fmt.Sprintf("%T", obj) }

func grOf(group, res string) string {
	return schema.GroupResource{Group: group, Resource: res}.String()
}

func forbiddenAction(a *resource.Action) error {
	return apierrors.NewForbidden(schema.GroupResource{Group: a.Group, Resource: a.Resource}, a.Name, errors.New("not allowed"))
}
