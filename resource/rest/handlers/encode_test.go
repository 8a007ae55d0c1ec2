package handlers

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"weak"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico/resource"
	"portico/resource/rest"
	"portico/resource/rest/render"
)

func TestStoredBytesAreServedAsTheyStand(t *testing.T) {
	api := New(Config{})
	for _, c := range []struct {
		kind *rest.Kind
		obj  rest.Object
		form form
		same bool
	}{
		{configMaps(), configMap("a"), form{media: mediaProtobuf, version: "v1"}, true},
		{configMaps(), configMap("a"), form{version: "v1"}, false},
		{secrets(), &corev1.Secret{}, form{version: "v1"}, true},
		{secrets(), &corev1.Secret{}, form{media: mediaProtobuf, version: "v1"}, false},
		{secrets(), &corev1.Secret{}, form{version: "v1", partial: true}, false},
	} {
		o := stored(t, c.kind, c.obj, 5)
		data, err := api.render(c.kind, o, c.form)
		if err != nil {
			t.Fatal(err)
		}
		if same := &data[0] == &o.Data[0]; same != c.same {
			t.Errorf("%s in %+v: the same bytes: %v", c.kind.Resource, c.form, same)
		}
		again, err := api.render(c.kind, o, c.form)
		if err != nil || &again[0] != &data[0] {
			t.Errorf("%s in %+v: made twice", c.kind.Resource, c.form)
		}
	}
}

func TestPartialOfBothEncodings(t *testing.T) {
	gvk := corev1.SchemeGroupVersion.WithKind("ConfigMap")
	const want = `{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"a","namespace":"default",` +
		`"uid":"u-1","resourceVersion":"5","creationTimestamp":"2026-01-02T03:04:05Z","labels":{"name":"a"}}}`
	for _, codec := range []rest.Codec{rest.Typed(coreScheme(), gvk), rest.TypedJSON(coreScheme(), gvk)} {
		o := stored(t, &rest.Kind{Codec: codec}, configMap("a"), 5)
		got, err := encodePartial(&rest.Kind{}, o, form{version: "v1", partial: true})
		if err != nil || string(got) != want {
			t.Errorf("got\n%s, %v, want\n%s", got, err, want)
		}
		message, err := encodePartial(&rest.Kind{}, o, form{media: mediaProtobuf, version: "v1", partial: true})
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

func TestFormCacheMakesOnceAndForgets(t *testing.T) {
	const limit = 64 << 10
	c := newFormCache(limit)
	var made atomic.Int32
	encode := func(size int) func() ([]byte, error) {
		return func() ([]byte, error) { made.Add(1); return make([]byte, size), nil }
	}
	key := formKey{object: weak.Make(&resource.Object{})}
	var readers sync.WaitGroup
	for range 8 {
		readers.Go(func() {
			if data, err := c.get(key, encode(100)); err != nil || len(data) != 100 {
				t.Errorf("got %d bytes, %v", len(data), err)
			}
		})
	}
	readers.Wait()
	if made.Load() != 1 {
		t.Fatalf("made %d times", made.Load())
	}
	for range 100 {
		if _, err := c.get(formKey{object: weak.Make(&resource.Object{})}, encode(4000)); err != nil {
			t.Fatal(err)
		}
		if _, bytes := c.entries.Size(); bytes > limit {
			t.Fatalf("%d bytes kept", bytes)
		}
	}
	made.Store(0)
	if _, err := c.get(key, encode(100)); err != nil || made.Load() != 1 {
		t.Fatal("the oldest form was kept")
	}
	for range 2 {
		if _, err := c.get(formKey{object: key.object, form: form{partial: true}}, encode(limit)); err != nil {
			t.Fatal(err)
		}
	}
	if made.Load() != 3 {
		t.Fatal("a form too large for the cache was kept")
	}
}

// An encoder that panics fails those who wait for it, and nobody after.
func TestWhatPanickedIsNotKept(t *testing.T) {
	c, frames := newFormCache(1<<20), newFrameTable()
	o := &resource.Object{}
	broken := func() ([]byte, error) { panic("broken") }
	works := func() ([]byte, error) { return []byte("x"), nil }
	for what, get := range map[string]func(encode func() ([]byte, error)) ([]byte, error){
		"form": func(encode func() ([]byte, error)) ([]byte, error) {
			return c.get(formKey{object: weak.Make(o)}, encode)
		},
		"frame": func(encode func() ([]byte, error)) ([]byte, error) {
			f := frames.get(frameKey{object: o}, encode)
			return f.data, f.err
		},
	} {
		func() {
			defer func() { _ = recover() }()
			_, _ = get(broken)
			t.Errorf("%s: the panic was swallowed", what)
		}()
		if data, err := get(works); err != nil || string(data) != "x" {
			t.Errorf("%s: %q, %v after a panic", what, data, err)
		}
	}
	runtime.KeepAlive(o)
}

// What is kept of an object need not be as large as the object: it does not
// keep the object.
func TestFormsDoNotKeepObjects(t *testing.T) {
	a := New(Config{})
	kind := configMaps()
	o, err := resource.Parse([]byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"k":"v"}}`))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.render(kind, o, form{media: mediaJSON, version: "v1", partial: true}); err != nil {
		t.Fatal(err)
	}
	gone := weak.Make(o)
	runtime.KeepAlive(o)
	runtime.GC()
	if forms, _ := a.forms.entries.Size(); gone.Value() != nil || forms != 1 {
		t.Errorf("an object without readers is kept by %d forms of it", forms)
	}
}

// canonicalCodec counts the calls of Canonical.
type canonicalCodec struct {
	rest.Codec
	asked int
}

func (e *canonicalCodec) Canonical(*resource.Object) bool { e.asked++; return true }

// Whether stored bytes can be served as they are may be dear to find out, and
// readers of another version cannot have them in any case.
func TestCanonicalIsCalledForTheStoredVersionOnly(t *testing.T) {
	kind := configMaps()
	e := &canonicalCodec{Codec: kind.Codec}
	kind.Codec = e
	o, err := resource.Parse([]byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}`))
	if err != nil {
		t.Fatal(err)
	}
	if (form{media: mediaJSON, version: "v2"}).matchesStored(kind, o) || e.asked != 0 {
		t.Errorf("asked %d times for another version", e.asked)
	}
	if !(form{media: mediaJSON, version: "v1"}).matchesStored(kind, o) || e.asked != 1 {
		t.Errorf("asked %d times for the version stored", e.asked)
	}
}
