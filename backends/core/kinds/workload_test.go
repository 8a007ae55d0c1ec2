package kinds

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
)

// The scale of every kind reads and sets spec.replicas, and refuses negative numbers.
func TestScale(t *testing.T) {
	for _, name := range []string{"deployments.apps", "replicasets.apps", "replicationcontrollers", "statefulsets.apps"} {
		k := kind(t, name)
		selector := `{"matchLabels":{"a":"b"}}`
		if k.Group == "" {
			selector = `{"a":"b"}`
		}
		obj := looseDecode(t, k, `{"metadata":{"name":"x","uid":"u"},"spec":{"replicas":3,"selector":`+selector+`},"status":{"replicas":2}}`)
		p := k.Subresources[0].Projection
		view, err := p.Get(obj)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		scale := view.(*autoscalingv1.Scale)
		if scale.Spec.Replicas != 3 || scale.Status.Replicas != 2 || scale.Status.Selector != "a=b" || scale.Name != "x" || scale.UID != "u" {
			t.Errorf("%s: got %+v", name, scale)
		}
		scale.Spec.Replicas = 5
		if err := p.Set(obj, scale); err != nil {
			t.Fatal(err)
		}
		if view, _ := p.Get(obj); view.(*autoscalingv1.Scale).Spec.Replicas != 5 {
			t.Errorf("%s: the replicas are not set", name)
		}
		scale.Spec.Replicas = -1
		const want = `Scale.autoscaling "x" is invalid: spec.replicas: Invalid value: -1: must be greater than or equal to 0`
		if err := p.Set(obj, scale); err == nil || err.Error() != want {
			t.Errorf("%s: got %v, want %s", name, err, want)
		}
	}
	d := looseDecode(t, kind(t, "deployments.apps"), `{"spec":{"selector":{"matchExpressions":[{"operator":"?"}]}}}`)
	if _, err := kind(t, "deployments.apps").Subresources[0].Projection.Get(d); err == nil {
		t.Error("a selector that cannot be read is shown")
	}
}

// The annotation of a DaemonSet counts the changes of its template, whatever clients write.
func TestDaemonSetCountsTemplates(t *testing.T) {
	k := kind(t, "daemonsets.apps")
	read := func(count, image string) *appsv1.DaemonSet {
		return looseDecode(t, k, `{"metadata":{"annotations":{"deprecated.daemonset.template.generation":"`+count+`"}},
			"spec":{"template":{"spec":{"containers":[{"name":"c","image":"`+image+`"}]}}}}`).(*appsv1.DaemonSet)
	}
	if got := looseDecode(t, k, `{}`).GetAnnotations()[appsv1.DeprecatedTemplateGeneration]; got != "0" {
		t.Errorf("the default of the annotation is %q, want 0: its writer must own it", got)
	}
	for _, c := range []struct{ count, want string }{{"-1", "1"}, {"x", "1"}, {"7", "7"}} {
		ds := read(c.count, "i")
		k.Strategy.PrepareCreate(t.Context(), ds)
		if got := ds.Annotations[appsv1.DeprecatedTemplateGeneration]; got != c.want {
			t.Errorf("created with %s: got %s, want %s", c.count, got, c.want)
		}
	}
	for image, want := range map[string]string{"i": "7", "other": "8"} {
		ds, old := read("1", image), read("7", "i")
		k.Strategy.PrepareUpdate(t.Context(), ds, old)
		if got := ds.Annotations[appsv1.DeprecatedTemplateGeneration]; got != want || k.Strategy.SpecChanged(ds, old) != (want == "8") {
			t.Errorf("image %s: got %s, want %s", image, got, want)
		}
	}
}

// A Deployment's generation grows with its annotations, a ReplicaSet's does not.
func TestAnnotationsAndGeneration(t *testing.T) {
	for name, want := range map[string]bool{"deployments.apps": true, "replicasets.apps": false} {
		k := kind(t, name)
		obj, old := looseDecode(t, k, `{"metadata":{"annotations":{"a":"b"}}}`), looseDecode(t, k, `{}`)
		if got := k.Strategy.SpecChanged(obj, old); got != want {
			t.Errorf("%s: got %v", name, got)
		}
	}
}

// The volumes of claim templates replace those of the template, which stays as it is.
func TestStatefulSetVolumes(t *testing.T) {
	spec := &appsv1.StatefulSetSpec{VolumeClaimTemplates: make([]corev1.PersistentVolumeClaim, 2)}
	spec.VolumeClaimTemplates[0].Name, spec.VolumeClaimTemplates[1].Name = "data", "data"
	spec.Template.Spec = corev1.PodSpec{Hostname: "_", Volumes: []corev1.Volume{{Name: "data"}, {Name: "config"}}}
	run := asRun(spec).Spec
	if v := run.Volumes; len(v) != 2 || v[0].PersistentVolumeClaim == nil || v[1].Name != "config" || run.Hostname != "" {
		t.Errorf("got %+v", run)
	}
	if v := spec.Template.Spec; len(v.Volumes) != 2 || v.Volumes[1].Name != "config" || v.Hostname != "_" {
		t.Errorf("the template became %+v", v)
	}
}

// New objects with names that are no host names get a warning, and those of claims no panic.
func TestWorkloadWarnings(t *testing.T) {
	for name, manifest := range map[string]string{
		"deployments.apps": `{"metadata":{"name":"a.b"}}`, "replicasets.apps": `{"metadata":{"name":"a"},"spec":{"template":{"spec":{"terminationGracePeriodSeconds":-1}}}}`, "replicationcontrollers": `{"metadata":{"name":"a.b"}}`,
		"statefulsets.apps": `{"spec":{"revisionHistoryLimit":-1,"volumeClaimTemplates":[{}]}}`,
	} {
		k := kind(t, name)
		obj := looseDecode(t, k, manifest)
		if got := k.Strategy.Warnings(t.Context(), obj, nil); len(got) != 1 {
			t.Errorf("%s: got %q", name, got)
		}
		old := looseDecode(t, k, manifest)
		if got := k.Strategy.Warnings(t.Context(), obj, old); name != "statefulsets.apps" && len(got) != 0 {
			t.Errorf("%s: got %q", name, got)
		}
	}
}
