package handlers

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestPatch(t *testing.T) {
	b := newBench(t)
	b.create(bare("a"))
	for _, test := range []struct{ patchType, patch, want string }{
		{jsonPatch, `[{"op":"add","path":"/data/j","value":"1"},{"op":"test","path":"/data/k","value":"v"}]`, "map[j:1 k:v]"},
		{mergePatch + ";charset=utf-8", `{"data":{"j":null,"m":"2"}}`, "map[k:v m:2]"},
		{strategicPatch, `{"data":{"$patch":"replace","s":"3"}}`, "map[s:3]"},
	} {
		got := b.send("PATCH", inDefault+"configmaps/a", test.patch, "Content-Type", test.patchType).want(200, "").configMap()
		if fmt.Sprint(got.Data) != test.want {
			t.Errorf("%s: %v, want %s", test.patchType, got.Data, test.want)
		}
	}
}

// Strategic merge knows the merge keys of Go types.
func TestStrategicPatchMergesByKey(t *testing.T) {
	b := newBench(t)
	b.send("POST", inDefault+"services", &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "s"},
		Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "a", Port: 1}, {Name: "b", Port: 2}}}}).want(201, "")
	got := b.send("PATCH", inDefault+"services/s", `{"spec":{"ports":[{"port":2,"name":"c"},{"$patch":"delete","port":1}]}}`,
		"Content-Type", strategicPatch).want(200, "").service()
	if len(got.Spec.Ports) != 1 || got.Spec.Ports[0].Name != "c" || got.Generation != 2 {
		t.Errorf("%+v", got)
	}
}

// An error quotes only a part of a large result.
func TestBadResultIsQuotedInPart(t *testing.T) {
	b := newBench(t)
	large := bare("a")
	large.Data = map[string]string{"large": strings.Repeat("x", 200<<10)}
	b.create(large)
	a := b.send("PATCH", configMapA, `{"immutable":"no"}`, "Content-Type", mergePatch).want(422, "")
	if m := a.status().Message; len(a.body) > 80<<10 || !strings.Contains(m, " bytes more)") {
		t.Errorf("an answer of %d bytes: %.300s", len(a.body), m)
	}
}

func TestPatchWarns(t *testing.T) {
	b := newBench(t)
	b.create(bare("a"))
	b.send("PATCH", inDefault+"configmaps/a", `{"foo":1,"data":{"a":"1","a":"2"}}`, "Content-Type", mergePatch).want(200, "")
	b.send("PATCH", inDefault+"configmaps/a", `[{"op":"test","path":"/data/k","value":"v","foo":1}]`, "Content-Type", jsonPatch).want(200, "")
	warned := b.takeWarnings()
	for _, want := range []string{`unknown field "foo"`, `duplicate field "data.a"`, `json patch unknown field "[0].foo"`} {
		if !strings.Contains(warned, want) {
			t.Errorf("no %q in %q", want, warned)
		}
	}
}
