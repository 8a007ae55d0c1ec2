package handlers

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strconv"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"portico/resource"
	"portico/resource/rest"
)

// widgetKind is a row like those of custom resources: one for each version, that
// version its hub form, with a status and a scale view.
func widgetKind(version string) *rest.Kind {
	info := resource.Info{
		Group: "example.com", Versions: []string{version}, StorageVersion: "v1",
		Resource: "widgets", Kind: "Widget", Namespaced: true, Path: "example.com/widgets",
	}
	replicas := []string{"spec", "replicas"}
	scale := &rest.Projection{
		Kind: rest.ScaleKind(),
		Get: func(obj rest.Object) (rest.Object, error) {
			u := obj.(*unstructured.Unstructured)
			n, ok, err := unstructured.NestedInt64(u.Object, replicas...)
			if err != nil || !ok {
				return nil, fmt.Errorf("no replicas: %v", err)
			}
			return scaleOf(u, n), nil
		},
		Begin: func(obj rest.Object) (rest.Object, error) {
			u := obj.(*unstructured.Unstructured)
			n, ok, err := unstructured.NestedInt64(u.Object, replicas...)
			if !ok {
				n = -1 << 31
			}
			return scaleOf(u, n), err
		},
		Set: func(obj, view rest.Object) error {
			n := view.(*autoscalingv1.Scale).Spec.Replicas
			return unstructured.SetNestedField(obj.(*unstructured.Unstructured).Object, int64(n), replicas...)
		},
		Paths: managedfields.ResourcePathMappings{
			"example.com/v1":      fieldpath.MakePathOrDie("spec", "replicas"),
			"example.com/v1beta1": fieldpath.MakePathOrDie("spec", "replicas"),
		},
	}
	return &rest.Kind{
		Info:      info,
		Codec:     &looseCodec{hub: info.GVK(version), storage: info.GVK("v1")},
		Ownership: func() (managedfields.TypeConverter, error) { return managedfields.NewDeducedTypeConverter(), nil },
		Strategy: rest.Strategy{
			TrackGeneration: true,
			PrepareUpdate:   func(_ context.Context, obj, old rest.Object) { moveField(obj, old, "status") },
			ValidateUpdate: func(_ context.Context, obj, _ rest.Object) field.ErrorList {
				if n, _, _ := unstructured.NestedInt64(obj.(*unstructured.Unstructured).Object, replicas...); n < 0 {
					return field.ErrorList{field.Invalid(field.NewPath("spec", "replicas"), n, "must not be negative")}
				}
				return nil
			},
		},
		Subresources: []rest.Subresource{
			{Name: "scale", GVK: autoscalingv1.SchemeGroupVersion.WithKind("Scale"), Projection: scale},
			{Name: "status", Strategy: &rest.Strategy{PrepareUpdate: func(_ context.Context, obj, old rest.Object) {
				next := old.DeepCopyObject().(rest.Object)
				moveField(next, obj, "status")
				obj.(*unstructured.Unstructured).Object = next.(*unstructured.Unstructured).Object
			}}},
		},
	}
}

func moveField(to, from rest.Object, name string) {
	value, ok := from.(*unstructured.Unstructured).Object[name]
	delete(to.(*unstructured.Unstructured).Object, name)
	if ok {
		to.(*unstructured.Unstructured).Object[name] = value
	}
}

func scaleOf(u *unstructured.Unstructured, replicas int64) *autoscalingv1.Scale {
	return &autoscalingv1.Scale{
		ObjectMeta: metav1.ObjectMeta{
			Name: u.GetName(), Namespace: u.GetNamespace(), UID: u.GetUID(),
			ResourceVersion: u.GetResourceVersion(), CreationTimestamp: u.GetCreationTimestamp(),
		},
		Spec: autoscalingv1.ScaleSpec{Replicas: int32(replicas)},
	}
}

// looseCodec is a codec without Go types: any fields will do, and versions differ
// by their name.
type looseCodec struct{ hub, storage schema.GroupVersionKind }

var _ rest.Versioned = (*looseCodec)(nil)

func (c *looseCodec) Decode(data []byte, _ string, want schema.GroupVersionKind, _ bool) (runtime.Object, []error, error) {
	u := &unstructured.Unstructured{}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(data, &u.Object); err != nil {
		return nil, nil, err
	}
	if u.GetAPIVersion() == "" {
		u.SetGroupVersionKind(want)
	}
	if err := rest.ExpectKind(u.GroupVersionKind(), want); err != nil {
		return nil, nil, err
	}
	u.SetGroupVersionKind(c.hub)
	return u, nil, nil
}

func (c *looseCodec) DecodeStored(o *resource.Object) (runtime.Object, error) {
	u := &unstructured.Unstructured{}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(o.Data, &u.Object); err != nil {
		return nil, err
	}
	u.SetGroupVersionKind(c.hub)
	u.SetResourceVersion(strconv.FormatInt(o.Revision, 10))
	return u, nil
}

func (c *looseCodec) EncodeStored(obj runtime.Object) (*resource.Object, error) {
	u := obj.(*unstructured.Unstructured).DeepCopy()
	u.SetGroupVersionKind(c.storage)
	u.SetResourceVersion("")
	data, err := json.Marshal(u.Object)
	if err != nil {
		return nil, err
	}
	return resource.Parse(data)
}

func (c *looseCodec) Encode(obj runtime.Object, gvk schema.GroupVersionKind, _ string) ([]byte, error) {
	u := obj.(*unstructured.Unstructured).DeepCopy()
	u.SetGroupVersionKind(gvk)
	return json.Marshal(u.Object)
}

func (c *looseCodec) StrategicMerge(schema.GroupVersionKind) runtime.Object { return nil }

func (c *looseCodec) Hub() schema.GroupVersion { return c.hub.GroupVersion() }

func (c *looseCodec) ConvertTo(obj runtime.Object, gv schema.GroupVersion) (runtime.Object, error) {
	to := gv.WithKind(c.hub.Kind)
	if gv.Group != c.hub.Group || gv.Version != "v1" && gv.Version != "v1beta1" {
		return nil, runtime.NewNotRegisteredErrForKind("widgets", to)
	}
	u := obj.(*unstructured.Unstructured)
	if u.GroupVersionKind() == to {
		return u, nil
	}
	out := &unstructured.Unstructured{Object: maps.Clone(u.Object)}
	out.SetGroupVersionKind(to)
	return out, nil
}
