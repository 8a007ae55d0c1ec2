package form

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"weak"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico/resource"
	"portico/resource/response"
	"portico/resource/response/render"
	"portico/resource/rest"
	"portico/resource/rest/resttest"
)

func TestStoredBytesAreNotEncoded(t *testing.T) {
	api := NewCache(1 << 20)
	for _, c := range []struct {
		kind *rest.Kind
		obj  rest.Object
		form Form
		same bool
	}{
		{resttest.ConfigMaps(), resttest.ConfigMap("a"), Form{Media: response.Protobuf, Version: "v1"}, true},
		{resttest.ConfigMaps(), resttest.ConfigMap("a"), Form{Version: "v1"}, false},
		{resttest.Secrets(), &corev1.Secret{}, Form{Version: "v1"}, true},
		{resttest.Secrets(), &corev1.Secret{}, Form{Media: response.Protobuf, Version: "v1"}, false},
		{resttest.Secrets(), &corev1.Secret{}, Form{Version: "v1", Partial: true}, false},
	} {
		o := resttest.Stored(t, c.kind, c.obj, 5)
		data, err := api.Encode(c.kind, o, c.form)
		if err != nil {
			t.Fatal(err)
		}
		if same := &data[0] == &o.Data[0]; same != c.same {
			t.Errorf("%s in %+v: the same bytes: %v", c.kind.Resource, c.form, same)
		}
		again, err := api.Encode(c.kind, o, c.form)
		if err != nil || &again[0] != &data[0] {
			t.Errorf("%s in %+v: encoded twice", c.kind.Resource, c.form)
		}
	}
}

func TestPartialOfBothEncodings(t *testing.T) {
	gvk := corev1.SchemeGroupVersion.WithKind("ConfigMap")
	const want = `{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"a","namespace":"default",` +
		`"uid":"u-1","resourceVersion":"5","creationTimestamp":"2026-01-02T03:04:05Z","labels":{"name":"a"}}}`
	for _, codec := range []rest.Codec{rest.Typed(resttest.CoreScheme(), gvk), rest.TypedJSON(resttest.CoreScheme(), gvk, nil)} {
		o := resttest.Stored(t, &rest.Kind{Codec: codec}, resttest.ConfigMap("a"), 5)
		got, err := encodePartial(&rest.Kind{}, o, Form{Version: "v1", Partial: true})
		if err != nil || string(got) != want {
			t.Errorf("got\n%s, %v, want\n%s", got, err, want)
		}
		message, err := encodePartial(&rest.Kind{}, o, Form{Media: response.Protobuf, Version: "v1", Partial: true})
		if err != nil {
			t.Fatal(err)
		}
		raw, err := render.OpenEnvelope(message)
		if err != nil {
			t.Fatal(err)
		}
		var partial metav1.PartialObjectMetadata
		if err := partial.Unmarshal(raw); err != nil || partial.Name != "a" || partial.ResourceVersion != "5" {
			t.Errorf("protobuf: %+v, %v", partial, err)
		}
	}
}

// Concurrent readers encode once, and the oldest encodings are evicted.
func TestEncodingsAreSharedAndEvicted(t *testing.T) {
	const limit = 64 << 10
	c := NewShared[int](limit)
	var made atomic.Int32
	encode := func(size int) func() ([]byte, error) {
		return func() ([]byte, error) { made.Add(1); return make([]byte, size), nil }
	}
	var readers sync.WaitGroup
	for range 8 {
		readers.Go(func() {
			if data, err := c.Get(0, encode(100)); err != nil || len(data) != 100 {
				t.Errorf("got %d bytes, %v", len(data), err)
			}
		})
	}
	readers.Wait()
	if made.Load() != 1 {
		t.Fatalf("encoded %d times", made.Load())
	}
	for i := range 100 {
		if _, err := c.Get(i+1, encode(4000)); err != nil {
			t.Fatal(err)
		}
		if _, bytes := c.entries.Size(); bytes > limit {
			t.Fatalf("%d bytes kept", bytes)
		}
	}
	made.Store(0)
	if _, err := c.Get(0, encode(100)); err != nil || made.Load() != 1 {
		t.Fatal("the oldest encoding was kept")
	}
	for range 2 {
		if _, err := c.Get(-1, encode(limit)); err != nil {
			t.Fatal(err)
		}
	}
	if made.Load() != 3 {
		t.Fatal("an encoding too large for the cache was kept")
	}
}

// An encoder that panics fails its concurrent readers, and no later ones.
func TestPanicsAreNotKept(t *testing.T) {
	c := NewShared[int](1 << 20)
	func() {
		defer func() { _ = recover() }()
		_, _ = c.Get(0, func() ([]byte, error) { panic("broken") })
		t.Error("the panic was swallowed")
	}()
	if data, err := c.Get(0, func() ([]byte, error) { return []byte("x"), nil }); err != nil || string(data) != "x" {
		t.Errorf("%q, %v after a panic", data, err)
	}
}

// Forms may be much smaller than their objects: they do not keep them in memory.
func TestFormsDoNotKeepObjects(t *testing.T) {
	a := NewCache(1 << 20)
	kind := resttest.ConfigMaps()
	o, err := resource.Parse([]byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"k":"v"}}`))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Encode(kind, o, Form{Media: response.JSON, Version: "v1", Partial: true}); err != nil {
		t.Fatal(err)
	}
	gone := weak.Make(o)
	runtime.KeepAlive(o)
	runtime.GC()
	if forms, _ := a.forms.entries.Size(); gone.Value() != nil || forms != 1 {
		t.Errorf("an object without readers is kept in memory by %d forms", forms)
	}
}

// canonicalCodec counts the calls of Canonical.
type canonicalCodec struct {
	rest.Codec
	asked int
}

func (e *canonicalCodec) Canonical(*resource.Object) bool { e.asked++; return true }

// Canonical may be costly, and readers of another version do not need it.
func TestCanonicalIsCalledForTheStoredVersionOnly(t *testing.T) {
	kind := resttest.ConfigMaps()
	e := &canonicalCodec{Codec: kind.Codec}
	kind.Codec = e
	o, err := resource.Parse([]byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}`))
	if err != nil {
		t.Fatal(err)
	}
	if (Form{Media: response.JSON, Version: "v2"}).matchesStored(kind, o) || e.asked != 0 {
		t.Errorf("asked %d times for another version", e.asked)
	}
	if !(Form{Media: response.JSON, Version: "v1"}).matchesStored(kind, o) || e.asked != 1 {
		t.Errorf("asked %d times for the version stored", e.asked)
	}
}

func TestPartialIsCaseSensitive(t *testing.T) {
	o, err := resource.Parse([]byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","Name":"b"},"Metadata":{"name":"c"}}`))
	if err != nil {
		t.Fatal(err)
	}
	partial, err := metadataOf(&rest.Kind{}, o)
	if err != nil || partial.Name != "a" {
		t.Errorf("%+v, %v", partial, err)
	}
}
