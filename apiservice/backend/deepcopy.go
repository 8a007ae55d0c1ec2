package backend

import (
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// AddToScheme registers the kind and its list.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion(), &Backend{}, &BackendList{})
	metav1.AddToGroupVersion(s, GroupVersion())
	return nil
}

// DeepCopyObject implements runtime.Object.
func (b *Backend) DeepCopyObject() runtime.Object { return b.DeepCopy() }

// DeepCopy returns a copy that shares nothing with b; nil of nil.
func (b *Backend) DeepCopy() *Backend {
	if b == nil {
		return nil
	}
	out := &Backend{}
	b.DeepCopyInto(out)
	return out
}

// DeepCopyInto makes out a copy that shares nothing with b.
func (b *Backend) DeepCopyInto(out *Backend) {
	*out = Backend{TypeMeta: b.TypeMeta, Spec: b.Spec, Status: b.Status.DeepCopy()}
	unshare(reflect.ValueOf(&out.Spec).Elem())
	b.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
}

// DeepCopyObject implements runtime.Object.
func (l *BackendList) DeepCopyObject() runtime.Object {
	if l == nil {
		return nil
	}
	out := &BackendList{TypeMeta: l.TypeMeta}
	l.ListMeta.DeepCopyInto(&out.ListMeta)
	if l.Items != nil {
		out.Items = make([]Backend, len(l.Items))
		for i := range l.Items {
			l.Items[i].DeepCopyInto(&out.Items[i])
		}
	}
	return out
}

// DeepCopy returns a copy that shares nothing with s.
func (s *Status) DeepCopy() Status {
	out := *s
	unshare(reflect.ValueOf(&out).Elem())
	return out
}

// unshare copies what v points to, so that a copy of a struct becomes a deep one. The types of
// Spec and Status are made of structs, pointers and slices of structs, strings or bytes.
func unshare(v reflect.Value) {
	switch {
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			if f := v.Field(i); f.CanSet() { // not the fields of time.Time, which are never changed
				unshare(f)
			}
		}
	case v.Kind() == reflect.Pointer && !v.IsNil():
		p := reflect.New(v.Type().Elem())
		p.Elem().Set(v.Elem())
		v.Set(p)
		unshare(p.Elem())
	case v.Kind() == reflect.Slice && !v.IsNil():
		s := reflect.MakeSlice(v.Type(), v.Len(), v.Len())
		reflect.Copy(s, v)
		v.Set(s)
		if v.Type().Elem().Kind() == reflect.Struct {
			for i := range s.Len() {
				unshare(s.Index(i))
			}
		}
	}
}
