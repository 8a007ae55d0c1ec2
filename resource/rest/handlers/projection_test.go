package handlers

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"portico/resource/rest"
)

func TestScaleIsRead(t *testing.T) {
	b := newTrackedBench(t)
	w := b.widget(`{"replicas":3}`)
	meta := read(w, &metav1.PartialObjectMetadata{})
	want := fmt.Sprintf(`{"kind":"Scale","apiVersion":"autoscaling/v1","metadata":{"resourceVersion":"%s","name":"w","namespace":"default",`+
		`"uid":"%s","creationTimestamp":"%s"},"spec":{"replicas":3},"status":{"replicas":0}}`+"\n",
		meta.ResourceVersion, meta.UID, meta.CreationTimestamp.UTC().Format("2006-01-02T15:04:05Z"))
	if a := b.send("GET", scaleW, nil).want(200, ""); string(a.body) != want {
		t.Errorf("got %s, want %s", a.body, want)
	}
	for _, test := range []struct{ accept, want string }{
		{runtime.ContentTypeYAML, "kind: Scale"},
		{runtime.ContentTypeProtobuf, "k8s\x00"},
		{"application/json;as=Table;v=v1;g=meta.k8s.io", `"cells":["w",3,0,"`},
		{"application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io", `"kind":"PartialObjectMetadata"`},
	} {
		a := b.send("GET", scaleW, nil, "Accept", test.accept).want(200, "")
		if !strings.Contains(string(a.body), test.want) {
			t.Errorf("%s: %s", test.accept, a.body)
		}
	}
}

func TestScaleIsWritten(t *testing.T) {
	b := newTrackedBench(t)
	b.widget(`{"replicas":1,"size":1}`)
	scale := b.send("GET", scaleW, nil).scale()
	scale.Spec.Replicas = 2
	scale.Status.Replicas = 9
	put := b.send("PUT", scaleW, scale).want(200, "").scale()
	if put.Spec.Replicas != 2 || put.Status.Replicas != 0 || put.ResourceVersion == scale.ResourceVersion || put.Kind != "Scale" {
		t.Errorf("%+v", put)
	}
	b.send("PUT", scaleW, scale).want(409, `Operation cannot be fulfilled on widgets.example.com "w": `+errModified)
	scale.ResourceVersion = ""
	scale.Spec.Replicas = 3
	b.send("PUT", scaleW, scale).want(200, "")
	for i, test := range []struct{ patchType, patch string }{
		{jsonPatch, `[{"op":"test","path":"/spec/replicas","value":3},{"op":"replace","path":"/spec/replicas","value":4}]`},
		{mergePatch, `{"spec":{"replicas":5}}`},
		{applyPatch, "apiVersion: autoscaling/v1\nkind: Scale\nmetadata: {name: w}\nspec: {replicas: 6}\n"},
	} {
		path := scaleW
		if test.patchType == applyPatch {
			path += "?force=true"
		}
		b.patch(path, test.patchType, "m", test.patch).want(200, "")
		if got := b.send("GET", scaleW, nil).scale(); got.Spec.Replicas != int32(4+i) {
			t.Errorf("%s: %d replicas", test.patchType, got.Spec.Replicas)
		}
	}
	w := b.send("GET", widgetW, nil).widget()
	if fmt.Sprint(w["spec"]) != "map[replicas:6 size:1]" || fmt.Sprint(w["metadata"].(map[string]any)["generation"]) != "6" {
		t.Errorf("%v", w)
	}
}

// An object without replicas cannot be shown as a scale, but it can be scaled.
func TestScaleWithoutReplicas(t *testing.T) {
	b := newTrackedBench(t)
	b.widget(`{"size":1}`)
	b.send("GET", scaleW, nil).want(500, "")
	b.patch(scaleW, mergePatch, "m", `{"spec":{"replicas":2}}`).want(200, "")
	if got := b.send("GET", scaleW, nil).want(200, "").scale(); got.Spec.Replicas != 2 {
		t.Errorf("%+v", got)
	}
}

// Who owns a scale's replicas owns the object's, and the other way round.
func TestOwnershipOfScale(t *testing.T) {
	b := newTrackedBench(t)
	b.widget(`{"replicas":1,"size":1}`).wantOwners("creator Update example.com/v1 .spec.replicas .spec.size")
	b.patch(scaleW, mergePatch, "scaler", `{"spec":{"replicas":2}}`).want(200, "")
	// Owners by way of scale have no time, as upstream, and come first.
	b.send("GET", widgetW, nil).wantOwners("scaler Update/scale example.com/v1 .spec.replicas", "creator Update example.com/v1 .spec.size")
	before := b.send("GET", widgetW, nil).revision()
	b.patch(scaleW, mergePatch, "nobody", `{"spec":{"replicas":2}}`).want(200, "")
	if after := b.send("GET", widgetW, nil).revision(); after != before {
		t.Error("a scale that changes nothing was written")
	}
	intent := func(n int) string {
		return fmt.Sprintf("apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: w}\nspec: {replicas: %d}\n", n)
	}
	b.apply(widgetW, "applier", intent(5)).want(409, `Apply failed with 1 conflict: conflict with "scaler" with subresource "scale" using example.com/v1: .spec.replicas`)
	b.apply(widgetW+"?force=true", "applier", intent(5)).want(200, "").
		wantOwners("applier Apply example.com/v1 .spec.replicas", "creator Update example.com/v1 .spec.size")
	scale := "apiVersion: autoscaling/v1\nkind: Scale\nmetadata: {name: w}\nspec: {replicas: 6}\n"
	b.apply(scaleW, "hpa", scale).want(409, `Apply failed with 1 conflict: conflict with "applier": .spec.replicas`)
	b.apply(scaleW+"?force=true", "hpa", scale).want(200, "")
	b.send("GET", widgetW, nil).wantOwners("hpa Apply/scale example.com/v1 .spec.replicas", "applier Apply example.com/v1 .spec", "creator Update example.com/v1 .spec.size")
}

// Without Paths no manager is recorded for a write through the projection.
func TestScaleWithoutOwnership(t *testing.T) {
	b := newTrackedBench(t)
	b.widgets["v1"].Subresources[0].Projection.Paths = nil
	b.widget(`{"replicas":1}`)
	b.patch(scaleW, mergePatch, "scaler", `{"spec":{"replicas":2}}`).want(200, "")
	b.send("GET", widgetW, nil).wantOwners("creator Update example.com/v1 .spec.replicas")
	b.apply(scaleW, "m", `{"apiVersion":"autoscaling/v1","kind":"Scale"}`).want(415, "")
}

func TestAdmissionSeesScales(t *testing.T) {
	var seen []string
	see := func(step string, a *rest.Attributes) (*autoscalingv1.Scale, bool) {
		obj, ok := a.Object.(*autoscalingv1.Scale)
		if ok {
			seen = append(seen, fmt.Sprintf("%s %s %s/%s %d to %d", step, a.Operation, a.Kind.Resource, a.Action.Subresource,
				a.Old.(*autoscalingv1.Scale).Spec.Replicas, obj.Spec.Replicas))
		}
		return obj, ok
	}
	b := newTrackedBench(t, func(cfg *Config, _ *bench) {
		cfg.Admission = admission{func(a *rest.Attributes) error {
			if obj, ok := see("mutate", a); ok {
				obj.Spec.Replicas = min(obj.Spec.Replicas, 10)
			}
			return nil
		}, func(a *rest.Attributes) error {
			if obj, ok := see("validate", a); ok && obj.Spec.Replicas == 9 {
				return apierrors.NewForbidden(corev1.Resource("widgets"), obj.Name, errors.New("not nine"))
			}
			return nil
		}}
	})
	b.widget(`{"replicas":1}`)
	if got := b.patch(scaleW, mergePatch, "m", `{"spec":{"replicas":20}}`).want(200, "").scale(); got.Spec.Replicas != 10 {
		t.Errorf("%+v", got)
	}
	b.patch(scaleW, mergePatch, "m", `{"spec":{"replicas":9}}`).want(403, "")
	want := "mutate UPDATE widgets/scale 1 to 20,validate UPDATE widgets/scale 1 to 10,mutate UPDATE widgets/scale 10 to 9,validate UPDATE widgets/scale 10 to 9"
	if got := strings.Join(seen, ","); got != want {
		t.Errorf("seen %s", got)
	}
}

// A scale that loses a race is made again of the object that won.
func TestScaleRetriesAfterARace(t *testing.T) {
	b := newTrackedBench(t)
	b.widget(`{"replicas":1}`)
	b.race(b.widgets["v1"], func(obj rest.Object) {
		obj.(*unstructured.Unstructured).Object["spec"].(map[string]any)["size"] = int64(9)
	})
	b.merge(scaleW, `{"spec":{"replicas":2}}`).want(200, "")
	if w := b.send("GET", widgetW, nil).widget(); fmt.Sprint(w["spec"]) != "map[replicas:2 size:9]" {
		t.Errorf("%v", w["spec"])
	}
}
