package kinds

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/kubernetes/pkg/capabilities"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico/resource"
	"portico/resource/rest"
)

const jsonType, protobufType = "application/json", "application/vnd.kubernetes.protobuf"

func init() { capabilities.Setup(true, 0) }

func echo(_ context.Context, _ resource.Key, body runtime.Object, _ bool) (runtime.Object, error) {
	return body, nil
}

// connections are the names of those of package kubelet.
func connections(of string) []rest.Subresource {
	names := map[string][]string{"nodes": {"proxy"}, "services": {"proxy"}, "pods": {"attach", "exec", "log", "portforward", "proxy"}}
	var out []rest.Subresource
	for _, name := range names[of] {
		out = append(out, rest.Subresource{Name: name, Verbs: []string{"get"}, Connect: &rest.Connection{}})
	}
	return out
}

func allKinds() []*rest.Kind {
	return All(Config{
		CreateToken: echo, BindPod: echo, EvictPod: echo, Connections: connections,
		Permissions: Permissions{Authorize: func(context.Context, *resource.Action) error { return nil }},
	})
}

// kind returns the row of one resource ("services", "events.events.k8s.io").
func kind(t *testing.T, name string) *rest.Kind {
	t.Helper()
	for _, k := range allKinds() {
		if gr := k.GroupResource(); gr.String() == name {
			return k
		}
	}
	t.Fatalf("no kind %q", name)
	return nil
}

// decode decodes and defaults a manifest, in which apiVersion and kind may be missing.
func decode[T rest.Object](t *testing.T, k *rest.Kind, manifest string) T {
	t.Helper()
	obj, strict, err := k.Codec.Decode([]byte(manifest), "application/yaml", k.GVK(k.Versions[0]), true)
	if err != nil || len(strict) > 0 {
		t.Fatalf("decode manifest: %v %v\n%s", err, strict, manifest)
	}
	if k.Strategy.Default != nil {
		k.Strategy.Default(obj.(rest.Object))
	}
	return obj.(T)
}

func texts(errs field.ErrorList) []string {
	var all []string
	for _, e := range errs {
		if e.Type == field.ErrorTypeInternal { // of allocated
			all = append(all, e.Field+": "+e.Detail)
			continue
		}
		all = append(all, e.Error())
	}
	return all
}

// expect compares errors, in order.
func expect(t *testing.T, got field.ErrorList, want ...string) {
	t.Helper()
	if !slices.Equal(texts(got), want) {
		t.Errorf("got\n\t%s\nwant\n\t%s", strings.Join(texts(got), "\n\t"), strings.Join(want, "\n\t"))
	}
}

// allocated prepares obj, calls Strategy.Allocate and returns the causes of an Invalid error.
func allocated(t *testing.T, k *rest.Kind, obj, old rest.Object) (causes field.ErrorList) {
	t.Helper()
	if k.Strategy.Allocate == nil {
		return nil
	}
	if old != nil {
		k.Strategy.PrepareUpdate(t.Context(), obj, old)
	}
	_, err := k.Strategy.Allocate(t.Context(), obj, old, false)
	var status *apierrors.StatusError
	if errors.As(err, &status) && status.ErrStatus.Details != nil {
		for _, c := range status.ErrStatus.Details.Causes {
			causes = append(causes, &field.Error{Type: field.ErrorTypeInternal, Field: c.Field, Detail: c.Message})
		}
	} else if err != nil {
		t.Fatal(err)
	}
	return causes
}

// The rules of all rows.
func TestRows(t *testing.T) {
	served, stored := map[string]bool{}, map[string]int{}
	for _, k := range allKinds() {
		t.Run(k.GroupResource().String(), func(t *testing.T) {
			if gvr := k.GVR(k.Versions[0]).String(); served[gvr] {
				t.Errorf("%s has two rows", gvr)
			} else {
				served[gvr] = true
			}
			stored[k.StoragePath()]++
			if k.Columns == nil {
				return // the default ones
			}
			obj := decode[rest.Object](t, k, `{"metadata":{"name":"x"}}`)
			row, err := k.Cells(obj)
			columns := len(k.Columns)
			if k.Resource == "ipaddresses" {
				columns++ // as kube-apiserver
			}
			if err != nil || len(row) != columns {
				t.Errorf("%d columns but cells %v, %v", len(k.Columns), row, err)
			}
			for i, cell := range row {
				switch cell.(type) {
				case string, int64, bool:
				default:
					t.Errorf("cell %s is a %T, which JSON clients do not expect", k.Columns[i].Name, cell)
				}
			}
			if _, err := k.Cells(&metav1.Status{}); err == nil {
				t.Error("Cells takes an object of another kind")
			}
			if len(k.FieldLabels) > 0 {
				values := k.Fields(obj)
				for _, label := range k.FieldLabels {
					if _, ok := values[label]; !ok {
						t.Errorf("no value for field label %s", label)
					}
				}
			}
			if !slices.IsSortedFunc(k.Subresources, func(a, b rest.Subresource) int { return strings.Compare(a.Name, b.Name) }) {
				t.Error("subresources are not in name order")
			}
		})
	}
	for path, n := range stored {
		if want := map[string]int{"events": 2}[path]; n != max(want, 1) {
			t.Errorf("%d kinds are stored under %s", n, path)
		}
	}
	for _, path := range []string{"services/specs", "services/endpoints", "leases", "validatingadmissionpolicybindings"} {
		if stored[path] != 1 {
			t.Errorf("nothing is stored under %s", path)
		}
	}
}

// The switches of each kind are those of docs/wire.md 4.7, and all but namespaces have all verbs.
func TestWriteSemantics(t *testing.T) {
	type semantics struct{ createOnUpdate, unconditional, returnDeleted, generation bool }
	admission := semantics{generation: true}
	want := map[string]semantics{
		"controllerrevisions.apps":        {unconditional: true},
		"namespaces":                      {unconditional: true, returnDeleted: true},
		"configmaps":                      {unconditional: true},
		"pods":                            {unconditional: true, returnDeleted: true, generation: true},
		"nodes":                           {unconditional: true},
		"secrets":                         {unconditional: true},
		"services":                        {createOnUpdate: true, unconditional: true, returnDeleted: true},
		"endpoints":                       {createOnUpdate: true, unconditional: true},
		"serviceaccounts":                 {unconditional: true, returnDeleted: true},
		"events":                          {createOnUpdate: true, unconditional: true},
		"events.events.k8s.io":            {createOnUpdate: true, unconditional: true},
		"endpointslices.discovery.k8s.io": {unconditional: true, generation: true},
		"leases.coordination.k8s.io":      {createOnUpdate: true},
		"validatingwebhookconfigurations.admissionregistration.k8s.io":   admission,
		"mutatingwebhookconfigurations.admissionregistration.k8s.io":     admission,
		"validatingadmissionpolicies.admissionregistration.k8s.io":       admission,
		"validatingadmissionpolicybindings.admissionregistration.k8s.io": admission,
		"mutatingadmissionpolicies.admissionregistration.k8s.io":         admission,
		"mutatingadmissionpolicybindings.admissionregistration.k8s.io":   admission,
	}
	for _, name := range []string{
		"daemonsets.apps", "deployments.apps", "priorityclasses.scheduling.k8s.io", "replicasets.apps", "replicationcontrollers",
		"statefulsets.apps",
	} {
		want[name] = semantics{unconditional: true, generation: true}
	}
	want["podtemplates"] = semantics{unconditional: true, returnDeleted: true, generation: true}
	want["limitranges"] = semantics{createOnUpdate: true, unconditional: true}
	want["resourcequotas"] = semantics{unconditional: true, returnDeleted: true}
	want["runtimeclasses.node.k8s.io"] = semantics{createOnUpdate: true}
	want["storageversionmigrations.storagemigration.k8s.io"] = semantics{}
	for name, unconditional := range map[string]bool{
		"certificatesigningrequests": true, "clustertrustbundles": false, "podcertificaterequests": false,
	} {
		want[name+".certificates.k8s.io"] = semantics{unconditional: unconditional}
	}
	for name, generation := range map[string]bool{
		"ingresses": true, "ingressclasses": true, "ipaddresses": false, "networkpolicies": true, "servicecidrs": false,
	} {
		want[name+".networking.k8s.io"] = semantics{unconditional: true, generation: generation}
	}
	for _, name := range []string{"jobs.batch", "cronjobs.batch", "horizontalpodautoscalers.autoscaling"} {
		want[name] = semantics{unconditional: true, generation: true}
	}
	want["poddisruptionbudgets.policy"] = semantics{generation: true}
	for name, generation := range map[string]bool{
		"deviceclasses": true, "resourceclaims": false, "resourceclaimtemplates": false, "resourceslices": true,
	} {
		want[name+".resource.k8s.io"] = semantics{unconditional: true, returnDeleted: true, generation: generation}
	}
	want["devicetaintrules.resource.k8s.io"] = semantics{generation: true}
	for _, name := range []string{"persistentvolumes", "persistentvolumeclaims", "storageclasses.storage.k8s.io", "volumeattributesclasses.storage.k8s.io"} {
		want[name] = semantics{unconditional: true, returnDeleted: true}
	}
	for _, name := range []string{"csidrivers", "csinodes", "csistoragecapacities", "volumeattachments"} {
		want[name+".storage.k8s.io"] = semantics{returnDeleted: name != "csistoragecapacities"}
	}
	all := slices.DeleteFunc(allKinds(), (*rest.Kind).Virtual)
	if len(all) != len(want) {
		t.Errorf("%d kinds, want %d", len(all), len(want))
	}
	for _, k := range all {
		name := k.GroupResource().String()
		if verbs := strings.Join(k.Verbs, " "); verbs != map[string]string{"namespaces": "create delete get list patch update watch"}[name] {
			t.Errorf("%s: got verbs %s", name, verbs)
		}
		obj := decode[rest.Object](t, k, "{}")
		k.Strategy.PrepareCreate(t.Context(), obj)
		if got := (semantics{k.CreateOnUpdate, k.UnconditionalUpdate, k.ReturnDeleted, obj.GetGeneration() == 1}); got != want[name] {
			t.Errorf("%s: got %+v, want %+v", name, got, want[name])
		}
	}
}

// Objects of every kind are encoded and decoded in both media types.
func TestCodec(t *testing.T) {
	for _, k := range allKinds() {
		t.Run(k.GroupResource().String(), func(t *testing.T) {
			obj := decode[rest.Object](t, k, `{"metadata":{"name":"x","labels":{"a":"b"}}}`)
			for _, mediaType := range []string{jsonType, protobufType} {
				data, err := k.Codec.Encode(obj, k.GVK("v1"), mediaType)
				if err != nil {
					t.Fatalf("encode as %s: %v", mediaType, err)
				}
				back, _, err := k.Codec.Decode(data, mediaType, k.GVK("v1"), false)
				if err != nil {
					t.Fatalf("decode %s: %v", mediaType, err)
				}
				if !equality.Semantic.DeepEqual(obj, back) {
					t.Errorf("%s: got %+v, want %+v", mediaType, back, obj)
				}
				var head metav1.PartialObjectMetadata
				if mediaType == jsonType && (json.Unmarshal(data, &head) != nil || head.GroupVersionKind() != k.GVK("v1")) {
					t.Errorf("encoded as %s, want %s", head.GroupVersionKind(), k.GVK("v1"))
				}
			}
		})
	}
}

func TestServiceAccountKeepsNamesOfSecrets(t *testing.T) {
	k := kind(t, "serviceaccounts")
	sa := decode[*corev1.ServiceAccount](t, k, `{"secrets":[{"name":"s","namespace":"other","kind":"Secret"}]}`)
	k.Strategy.PrepareCreate(t.Context(), sa)
	if want := (corev1.ObjectReference{Name: "s"}); sa.Secrets[0] != want {
		t.Errorf("got %+v", sa.Secrets[0])
	}
}

func TestEventTTL(t *testing.T) {
	if got := kind(t, "events").TTL(nil); got != time.Hour {
		t.Errorf("the default TTL is %v", got)
	}
	for _, k := range All(Config{EventTTL: time.Minute}) {
		if k.TTL != nil && k.TTL(nil) != time.Minute {
			t.Errorf("%s: the TTL is %v", k.GroupResource(), k.TTL(nil))
		}
	}
}

// kube-apiserver has every field label of a row.
func TestFieldLabelsAreThoseOfKubeAPIServer(t *testing.T) {
	t.Parallel()
	for _, k := range All(Config{}) {
		for _, version := range k.Versions {
			for _, label := range append([]string{"metadata.name"}, k.FieldLabels...) {
				if _, _, err := scheme.ConvertFieldLabel(k.GVK(version), label, "x"); err != nil {
					t.Errorf("%s: %v", k.GVK(version), err)
				}
			}
		}
	}
}
