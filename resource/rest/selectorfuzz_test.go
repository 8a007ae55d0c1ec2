package rest_test

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"portico/resource"
	"portico/resource/rest"
	"portico/resource/rest/resttest"
)

// A selector that parses selects what the library of Kubernetes clients selects.
func FuzzSelector(f *testing.F) {
	for _, seed := range [][2]string{
		{"a=b", "metadata.name=x"}, {"a in (b,c),!d", "metadata.name!=x,metadata.namespace=y"}, {"a notin (b), c==d, e", `metadata.name=a\\,b`}, {"a>1,a<5", "metadata.name==x"},
		{"a in ()", "type=x"}, {"(", "="}, {"a=b,a=c", "metadata.name"}, {"é=b", "metadata.name=\x00"}, {",", ","},
	} {
		f.Add(seed[0], seed[1], "b", "x")
	}
	kind := &rest.Kind{Codec: rest.Typed(resttest.CoreScheme(), corev1.SchemeGroupVersion.WithKind("ConfigMap"))}
	unknown := func(r fields.Requirement) bool { return r.Field != "metadata.name" && r.Field != "metadata.namespace" }
	f.Fuzz(func(t *testing.T, labelText, fieldText, value, name string) {
		s, err := kind.Selector("v1", labelText, fieldText, "")
		byLabel, labelErr := labels.Parse(labelText)
		byField, fieldErr := fields.ParseSelector(fieldText)
		if err != nil {
			if !apierrors.IsBadRequest(err) {
				t.Fatalf("%q %q: %v", labelText, fieldText, err)
			}
			if labelErr == nil && fieldErr == nil && !slices.ContainsFunc(byField.Requirements(), unknown) {
				t.Fatalf("%q %q refused: %v", labelText, fieldText, err)
			}
			return
		}
		if labelErr != nil || fieldErr != nil {
			t.Fatalf("%q (%v) or %q (%v) was taken", labelText, labelErr, fieldText, fieldErr)
		}
		o := &resource.Object{Header: resource.Header{Name: name, Namespace: "default", Labels: resource.Labels{{Key: "a", Value: value}}}}
		want := byLabel.Matches(labels.Set{"a": value}) && byField.Matches(fields.Set{"metadata.name": name, "metadata.namespace": "default"})
		if got := s.Matches(o); got != want {
			t.Fatalf("%q %q chooses %+v: %v, want %v", labelText, fieldText, o.Header, got, want)
		}
	})
}
