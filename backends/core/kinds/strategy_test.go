package kinds

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico/internal/testing/kindtest"
	"portico/resource"
	"portico/resource/rest"
)

// A pod with thousands of ports or files has no warnings, of which there would be one for each pair.
func TestWarningsAreBounded(t *testing.T) {
	k := kind(t, "pods")
	many := func(n int, one string) string { return strings.TrimSuffix(strings.Repeat(one+",", n), ",") }
	for what, spec := range map[string]string{
		"ports": `"containers":[{"name":"a","image":"b","ports":[` + many(10000, `{"containerPort":80}`) + `]}]`,
		"files": `"containers":[{"name":"a","image":"b"}],"volumes":[{"name":"v","configMap":{"name":"c","items":[` + many(10000, `{"key":"k","path":"p"}`) + `]}}]`,
	} {
		pod := decode[*corev1.Pod](t, k, `{"metadata":{"name":"x"},"spec":{`+spec+`}}`)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		warnings := k.Strategy.Warnings(t.Context(), pod, nil)
		runtime.ReadMemStats(&after)
		if used := after.TotalAlloc - before.TotalAlloc; len(warnings) > 0 || used > 32<<20 {
			t.Errorf("%s: %d warnings, %d MB", what, len(warnings), used>>20)
		}
	}
	few := decode[*corev1.Pod](t, k, `{"metadata":{"name":"x"},"spec":{"containers":[{"name":"a","image":"b","ports":[{"containerPort":80},{"containerPort":80}]}]}}`)
	if len(k.Strategy.Warnings(t.Context(), few, nil)) == 0 {
		t.Error("no warning about two equal ports")
	}
}

// An object with thousands of errors is refused with them, without a comparison of each with each other one.
func TestManyErrorsAreLinear(t *testing.T) {
	k := kind(t, "pods")
	ports := strings.TrimSuffix(strings.Repeat("{},", 50000), ",")
	pod := decode[*corev1.Pod](t, k, `{"metadata":{"name":"x","namespace":"default"},"spec":{"containers":[{"name":"a","image":"b","ports":[`+ports+`]}]}}`)
	start := time.Now()
	if errs := k.Strategy.Validate(t.Context(), pod); len(errs) < 50000 {
		t.Errorf("%d errors", len(errs))
	}
	if took := time.Since(start); took > 20*time.Second { // minutes if they are compared
		t.Errorf("it takes %v", took)
	}
}

// An annotation that stands for a number of the internal version and is none is refused in each write of the object, and
// does not spoil objects that have it.
func TestMalformedAnnotations(t *testing.T) {
	for name, annotation := range map[string]string{"deployments.apps": "deprecated.deployment.rollback.to", "daemonsets.apps": "deprecated.daemonset.template.generation"} {
		k := kind(t, name)
		const manifest = `{"metadata":{"name":"x","namespace":"default","uid":"u","resourceVersion":"1"%s},"spec":{"selector":{"matchLabels":{"a":"b"}},` +
			`"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"d"}]}}}}`
		bad := decode[rest.Object](t, k, fmt.Sprintf(manifest, `,"annotations":{"`+annotation+`":"x"}`))
		strategies := []*rest.Strategy{&k.Strategy}
		for _, sub := range k.Subresources {
			if sub.Strategy != nil {
				strategies = append(strategies, sub.Strategy)
			}
		}
		for _, s := range strategies {
			if err := s.Check(t.Context(), "update", bad, nil); !apierrors.IsBadRequest(err) || !strings.Contains(err.Error(), "cannot be handled as a "+k.Kind) {
				t.Errorf("%s: %v", name, err)
			}
		}
		good := decode[rest.Object](t, k, fmt.Sprintf(manifest, ""))
		k.Strategy.PrepareUpdate(t.Context(), good, bad)
		expect(t, k.Strategy.ValidateUpdate(t.Context(), good, bad))
		bad.SetAnnotations(map[string]string{annotation: "x"})
		if _, err := k.Cells(bad); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Deletions have the grace periods and propagation policies of kube-apiserver, and writers do not own what strategies reset.
func TestDeletionAndResets(t *testing.T) {
	for _, k := range allKinds() {
		orphans := map[string]bool{"jobs.batch": true, "replicationcontrollers": true}[k.GroupResource().String()]
		if got := k.Strategy.DefaultPropagation == metav1.DeletePropagationOrphan; got != orphans && k.Resource != "cronjobs" {
			t.Errorf("%s: orphans by default %v", k.GroupResource(), got)
		}
		if got := k.Strategy.IgnorePropagation; got != (k.Resource == "events") {
			t.Errorf("%s: ignores propagation %v", k.GroupResource(), got)
		}
	}
	pods := kind(t, "pods")
	pod := decode[*corev1.Pod](t, pods, `{"spec":{"containers":[{"name":"a","image":"b"}]}}`)
	if got := pods.Strategy.Grace(pod, nil); got != 0 {
		t.Errorf("grace period without a node: %d", got)
	}
	if pod.Spec.NodeName = "n"; pods.Strategy.Grace(pod, nil) != 30 || pods.Strategy.Grace(pod, new(int64(5))) != 5 {
		t.Errorf("grace period with a node: %d", pods.Strategy.Grace(pod, nil))
	}
	if got := fmt.Sprint(kind(t, "deployments.apps").ResetFields("v1", nil)); got != "[status]" {
		t.Errorf("resets of deployments: %s", got)
	}
}

// A LimitRange without a name gets one under which it is stored.
func TestNamesOfLimitRanges(t *testing.T) {
	s := kindtest.Serve(kind(t, "limitranges"), "v1")
	for range 2 {
		w := s.Send("", "", []byte(`{"spec":{"limits":[]}}`))
		if w.Code != http.StatusCreated {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
		var made metav1.PartialObjectMetadata
		if err := json.Unmarshal(w.Body.Bytes(), &made); err != nil || made.Name == "" {
			t.Fatalf("%v, name %q", err, made.Name)
		}
		if w = s.Send(made.Name, "", w.Body.Bytes()); w.Code != http.StatusOK {
			t.Errorf("update: %d %s", w.Code, w.Body)
		}
	}
}

// The bodies of all resources and subresources pass the internal version, as plugins get them.
func TestBodiesPassTheInternalVersion(t *testing.T) {
	call := func(context.Context, resource.Key, kruntime.Object, bool) (kruntime.Object, error) { return nil, nil }
	for _, k := range All(Config{CreateToken: call, BindPod: call, EvictPod: call}) {
		bodies := []schema.GroupVersionKind{k.GVK(k.Storage())}
		for _, sub := range k.Subresources {
			if !sub.GVK.Empty() {
				bodies = append(bodies, sub.GVK)
			}
		}
		for _, gvk := range bodies {
			obj, err := scheme.New(gvk)
			if err != nil {
				t.Fatal(err)
			}
			obj.GetObjectKind().SetGroupVersionKind(gvk)
			in, err := Internal(obj)
			if err == nil {
				err = SetFromInternal(obj, in)
			}
			if now := obj.GetObjectKind().GroupVersionKind(); err != nil || now != gvk {
				t.Errorf("%s of %s: %v, %v", gvk, k.Resource, now, err)
			}
		}
	}
}
