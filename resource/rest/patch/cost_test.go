package patch

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
)

// A strategic merge patch may merge long lists or many, up to a bound.
func TestMergeCost(t *testing.T) {
	list := func(n int, item string) string {
		items := make([]string, n)
		for i := range items {
			items[i] = strings.ReplaceAll(item, "#", fmt.Sprint(i))
		}
		return "[" + strings.Join(items, ",") + "]"
	}
	const env = `{"name":"#"}`
	container := func(n int) string { return `{"spec":{"containers":[{"name":"c","env":` + list(n, env) + `}]}}` }
	tests := []struct{ name, object, patch, refused string }{
		{"within", container(1000), container(999), ""},
		{"items in items", container(1001), container(1001), "spec.containers.env"},
		{"order", `{"metadata":{"finalizers":` + list(2000, `"#"`) + `}}`, `{"metadata":{"$setElementOrder/finalizers":` + list(2000, `"#"`) + `}}`, "metadata.finalizers"},
		{"deletion", `{"metadata":{"finalizers":` + list(2000, `"#"`) + `}}`, `{"metadata":{"$deleteFromPrimitiveList/finalizers":` + list(2000, `"#"`) + `}}`, "metadata.finalizers"},
		{"nothing to merge with", `{"metadata":{}}`, `{"metadata":{"finalizers":` + list(2000, `"#"`) + `}}`, ""},
		{"replaced", `{"spec":{"tolerations":` + list(2000, `{"key":"#"}`) + `}}`, `{"spec":{"tolerations":` + list(2000, `{"key":"#"}`) + `}}`, ""},
	}
	for _, test := range tests {
		p, err := Parse(types.StrategicMergePatchType, []byte(test.patch), &corev1.Pod{}, false)
		if err != nil {
			t.Fatal(err)
		}
		_, err = p.Apply([]byte(test.object))
		if refused := apierrors.IsRequestEntityTooLargeError(err); refused != (test.refused != "") || err != nil && !refused {
			t.Errorf("%s: %v", test.name, err)
		} else if refused && !strings.Contains(err.Error(), "with "+test.refused+":") {
			t.Errorf("%s: %v", test.name, err)
		}
	}
}
