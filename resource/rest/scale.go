package rest

import (
	"fmt"
	"sync"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/apimachinery/pkg/util/managedfields"
	smd "sigs.k8s.io/structured-merge-diff/v6/typed"

	"portico/resource"
)

// ScaleKind returns the kind autoscaling/v1 Scale, for Projection.Kind. Any number of
// resources can share it.
func ScaleKind() *Kind {
	scheme := runtime.NewScheme()
	scheme.AddKnownTypes(autoscalingv1.SchemeGroupVersion, &autoscalingv1.Scale{})
	docs := metav1.ObjectMeta{}.SwaggerDoc()
	return &Kind{
		Info: resource.Info{Group: autoscalingv1.GroupName, Versions: []string{"v1"}, Resource: "scales", Kind: "Scale"},
		// JSON is what most clients request.
		Codec: TypedJSON(scheme, autoscalingv1.SchemeGroupVersion.WithKind("Scale"), nil),
		Ownership: sync.OnceValues(func() (managedfields.TypeConverter, error) {
			parser, err := smd.NewParser(scaleSchema)
			if err != nil {
				return nil, fmt.Errorf("read schema of Scale: %w", err)
			}
			return managedfields.NewSchemeTypeConverter(scheme, parser), nil
		}),
		Columns: []metav1.TableColumnDefinition{
			{Name: "Name", Type: "string", Format: "name", Description: docs["name"]},
			{Name: "Desired", Type: "integer", Description: "Number of desired replicas"},
			{Name: "Available", Type: "integer", Description: "Number of actual replicas"},
			{Name: "Age", Type: "date", Description: docs["creationTimestamp"]},
		},
		Cells: scaleCells,
	}
}

func scaleCells(obj runtime.Object) ([]any, error) {
	scale, ok := obj.(*autoscalingv1.Scale)
	if !ok {
		return nil, fmt.Errorf("print Scale: got %T", obj)
	}
	age := "<unknown>"
	if !scale.CreationTimestamp.IsZero() {
		age = duration.HumanDuration(time.Since(scale.CreationTimestamp.Time))
	}
	return []any{scale.Name, int64(scale.Spec.Replicas), int64(scale.Status.Replicas), age}, nil
}

// scaleSchema is the schema of Scale for field ownership, which client-go does not have. A
// write of a scale does not change metadata, so that its type is left open.
const scaleSchema smd.YAMLObject = `types:
- name: io.k8s.api.autoscaling.v1.Scale
  map:
    fields:
    - {name: apiVersion, type: {scalar: string}}
    - {name: kind, type: {scalar: string}}
    - {name: metadata, type: {namedType: __untyped_deduced_}}
    - name: spec
      type:
        map:
          fields:
          - {name: replicas, type: {scalar: numeric}}
    - name: status
      type:
        map:
          fields:
          - {name: replicas, type: {scalar: numeric}}
          - {name: selector, type: {scalar: string}}
- name: __untyped_atomic_
  scalar: untyped
  list: {elementType: {namedType: __untyped_atomic_}, elementRelationship: atomic}
  map: {elementType: {namedType: __untyped_atomic_}, elementRelationship: atomic}
- name: __untyped_deduced_
  scalar: untyped
  list: {elementType: {namedType: __untyped_atomic_}, elementRelationship: atomic}
  map: {elementType: {namedType: __untyped_deduced_}, elementRelationship: separable}
`
