// Package resttest has kinds and objects for tests of packages that serve resources.
//
// Runs in: tests.
package resttest

import (
	"net/http"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico/resource"
	"portico/resource/rest"
)

// CoreScheme returns a scheme with core/v1.
func CoreScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		panic(err)
	}
	return scheme
}

// ConfigMaps is a kind without special behaviour, stored as protobuf.
func ConfigMaps() *rest.Kind {
	return &rest.Kind{
		Info:  resource.Info{Versions: []string{"v1"}, Resource: "configmaps", Kind: "ConfigMap", Namespaced: true},
		Codec: rest.Typed(CoreScheme(), corev1.SchemeGroupVersion.WithKind("ConfigMap")),
	}
}

// Secrets is a kind with columns and a selectable field, stored as JSON.
func Secrets() *rest.Kind {
	return &rest.Kind{
		Info:    resource.Info{Versions: []string{"v1"}, Resource: "secrets", Kind: "Secret", Namespaced: true},
		Codec:   rest.TypedJSON(CoreScheme(), corev1.SchemeGroupVersion.WithKind("Secret"), nil),
		Columns: []metav1.TableColumnDefinition{{Name: "Name", Type: "string", Format: "name"}, {Name: "Data", Type: "integer"}},
		Cells: func(obj runtime.Object) ([]any, error) {
			secret := obj.(*corev1.Secret)
			return []any{secret.Name, len(secret.Data)}, nil
		},
		FieldLabels: []string{"type"},
		Fields: func(obj runtime.Object) map[string]string {
			return map[string]string{"type": string(obj.(*corev1.Secret).Type)}
		},
	}
}

// ConfigMap returns a config map in the namespace default.
func ConfigMap(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: "default", UID: "u-1", Labels: map[string]string{"name": name},
			CreationTimestamp: metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)),
		},
		Data: map[string]string{"<key>": "value of " + name},
	}
}

// Secret returns a secret in the namespace default.
func Secret(name string) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"}, Type: corev1.SecretTypeOpaque,
		Data: map[string][]byte{"k": []byte("v")},
	}
}

// Stored returns an object as a store returns it at a revision.
func Stored(t testing.TB, k *rest.Kind, obj runtime.Object, rev int64) *resource.Object {
	t.Helper()
	o, err := k.Codec.EncodeStored(obj)
	if err != nil {
		t.Fatal(err)
	}
	return o.WithRevision(rev)
}

// Discard is a ResponseWriter that counts bytes and writes. The zero value is ready for use.
type Discard struct {
	header       http.Header
	Code         int
	Bytes, Calls int64
}

// Header implements http.ResponseWriter.
func (d *Discard) Header() http.Header {
	if d.header == nil {
		d.header = http.Header{}
	}
	return d.header
}

// WriteHeader implements http.ResponseWriter.
func (d *Discard) WriteHeader(code int) { d.Code = code }

// Write implements http.ResponseWriter.
func (d *Discard) Write(p []byte) (int, error) {
	d.Bytes += int64(len(p))
	d.Calls++
	return len(p), nil
}

// Untyped is a Codec of Go types for a kind that is served as if it had none: lists keep
// apiVersion and kind, as those of custom resources.
type Untyped struct{ rest.Codec }

// StrategicMerge implements rest.Codec.
func (Untyped) StrategicMerge(schema.GroupVersionKind) runtime.Object { return nil }
