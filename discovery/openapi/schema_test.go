package openapi

import (
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The metadata and the status of an object are not required, as upstream has it; the
// status of a condition is.
func TestRequired(t *testing.T) {
	for ty, fields := range map[reflect.Type]map[string]bool{
		reflect.TypeFor[corev1.Namespace]():   {"ObjectMeta": false, "Spec": false, "Status": false},
		reflect.TypeFor[metav1.Condition]():   {"Type": true, "Status": true, "Reason": true, "ObservedGeneration": false},
		reflect.TypeFor[corev1.ServicePort](): {"Port": true, "Name": false},
	} {
		for name, want := range fields {
			f, ok := ty.FieldByName(name)
			if _, required, _ := jsonName(f); !ok || required != want {
				t.Errorf("%s.%s: required is %v", ty, name, required)
			}
		}
	}
}
