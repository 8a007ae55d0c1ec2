package handlers

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"sigs.k8s.io/yaml"

	"portico/resource"
	"portico/resource/rest"
)

// listed sends a list of objects through the whole path of a response.
func listed(tb testing.TB, kind *rest.Kind, l *resource.List, f format, query string) (*httptest.ResponseRecorder, error) {
	tb.Helper()
	r := httptest.NewRequest("GET", "/api/v1/"+kind.Resource+query, nil)
	w := httptest.NewRecorder()
	err := New(Config{}).sendList(w, r, resource.ParseAction(r), &rest.Resource{Kind: kind}, contents{List: l}, f)
	return w, err
}

// awkward is a config map with everything that YAML and indentation treat
// specially.
func awkward(i int) *corev1.ConfigMap {
	cm := configMap("cm-" + strconv.Itoa(i))
	cm.Labels["empty"] = ""
	cm.Annotations = map[string]string{
		"lines": "a\nitems: []\n\n  b\n", "long": strings.Repeat("many words ", 40), "number": "010", "bool": "yes", "colon": "a: b # c",
	}
	cm.BinaryData = map[string][]byte{"x": {0, 1, 2}}
	cm.OwnerReferences = []metav1.OwnerReference{{Name: "owner"}}
	return cm
}

// A list made piece by piece must be the list that an encoder makes.
func TestListsAreByteIdentical(t *testing.T) {
	t.Parallel()
	for _, kind := range []*rest.Kind{configMaps(), {Info: configMaps().Info, Codec: rest.TypedJSON(coreScheme(), corev1.SchemeGroupVersion.WithKind("ConfigMap"))}} {
		for _, n := range []int{0, 1, 3, 700} {
			want := &corev1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: "9", Continue: "more"}, Items: []corev1.ConfigMap{}}
			want.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: "ConfigMapList"})
			l := &resource.List{Revision: 9, Continue: "more"}
			for i := range n {
				o := stored(t, kind, awkward(i), int64(i+1))
				obj, err := kind.Decode(o)
				if err != nil {
					t.Fatal(err)
				}
				item := *obj.(*corev1.ConfigMap)
				item.TypeMeta = metav1.TypeMeta{}
				l.Items, want.Items = append(l.Items, o), append(want.Items, item)
			}
			wantJSON, err := json.Marshal(want)
			if err != nil {
				t.Fatal(err)
			}
			if l.Items != nil && l.Items[0].Encoding == resource.JSON {
				wantJSON = joined(wantJSON, l) // the revision stands elsewhere in stored bytes
			}
			sameList(t, kind, l, wantJSON, asObject)
			var buf bytes.Buffer
			if err := protobuf.NewSerializer(nil, nil).Encode(want, &buf); err != nil {
				t.Fatal(err)
			}
			w, err := listed(t, kind, l, format{media: mediaProtobuf}, "")
			if err != nil || !bytes.Equal(w.Body.Bytes(), buf.Bytes()) || w.Header().Get("Content-Length") != strconv.Itoa(buf.Len()) {
				t.Fatalf("%d as protobuf: %d bytes, want %d, %v", n, w.Body.Len(), buf.Len(), err)
			}
			sameTable(t, kind, l)
		}
	}
}

// joined is a list with its items replaced by the stored ones.
func joined(list []byte, l *resource.List) []byte {
	out := bytes.Clone(list[:bytes.IndexByte(list, '[')+1])
	for i, o := range l.Items {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(append(out, '{'), bytes.TrimPrefix(o.Data, typeMetaPrefix(configMaps().GVK("v1")))...)
	}
	return append(out, "]}"...)
}

// sameList checks the three forms that are made of JSON.
func sameList(t *testing.T, kind *rest.Kind, l *resource.List, want []byte, as transform) {
	t.Helper()
	var indented bytes.Buffer
	if err := json.Indent(&indented, want, "", "  "); err != nil {
		t.Fatal(err)
	}
	asYAML, err := yaml.JSONToYAML(want)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		f    format
		want string
	}{
		{format{}, string(want) + "\n"},
		{format{pretty: true}, indented.String() + "\n"},
		{format{media: mediaYAML}, string(asYAML)},
	} {
		c.f.transform, c.f.metaVersion = as, "v1"
		w, err := listed(t, kind, l, c.f, "")
		if err != nil {
			t.Fatal(err)
		}
		if got := w.Body.String(); got != c.want {
			t.Fatalf("%d items in %+v:\n%.3000s\nwant\n%.3000s", len(l.Items), c.f, got, c.want)
		}
		if n := w.Header().Get("Content-Length"); n != "" && n != strconv.Itoa(len(c.want)) || n == "" && len(c.want) < gzipThreshold {
			t.Errorf("%d items in %+v: length %q of %d", len(l.Items), c.f, n, len(c.want))
		}
	}
}

func sameTable(t *testing.T, kind *rest.Kind, l *resource.List) {
	t.Helper()
	tables := &tables{api: New(Config{}), kind: kind, version: "v1", metaVersion: "v1", include: metav1.IncludeMetadata}
	want, err := tables.encode(metav1.ListMeta{ResourceVersion: "9", Continue: "more"}, l.Items, true)
	if err != nil {
		t.Fatal(err)
	}
	sameList(t, kind, l, want, asTable)
}

// Custom resources keep apiVersion and kind; items that somebody else wrote
// lose them wherever they stand.
func TestJSONListItems(t *testing.T) {
	gvk := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}
	list := gvk
	list.Kind = "WidgetList"
	var items []*resource.Object
	for _, text := range []string{`{"kind":"Widget","apiVersion":"example.com/v1","x":1}`, `{"x":2,"apiVersion":"example.com/v1","kind":"Widget"}`} {
		items = append(items, &resource.Object{Data: []byte(text)})
	}
	render := func(o *resource.Object) ([]byte, error) { return o.Data, nil }
	const head = `{"kind":"WidgetList","apiVersion":"example.com/v1","metadata":{},"items":[`
	d, err := newDocument(list, metav1.ListMeta{}, render)
	if err != nil {
		t.Fatal(err)
	}
	encoded := func() string {
		out := &text{}
		if err := encodeList(d.as(format{}), out, 0, &contents{List: &resource.List{Items: items}}); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	if got := encoded(); got != head+string(items[0].Data)+","+string(items[1].Data)+"]}\n" {
		t.Errorf("whole: %s", got)
	}
	d.member = bareMember(gvk, render)
	if got := encoded(); got != head+`{"x":1},{"x":2}]}`+"\n" {
		t.Errorf("bare: %s", got)
	}
}

// text is an output that keeps everything.
type text struct{ bytes.Buffer }

func (t *text) write(p []byte) error       { _, err := t.Write(p); return err }
func (t *text) writeString(p string) error { _, err := t.WriteString(p); return err }

// spoilt is a codec that cannot encode one object.
type spoilt struct {
	rest.Codec
	name string
}

var errSpoilt = errors.New("the object is spoilt")

func (c *spoilt) DecodeStored(o *resource.Object) (runtime.Object, error) {
	if o.Name == c.name {
		return nil, errSpoilt
	}
	return c.Codec.DecodeStored(o)
}

// An object that cannot be rendered is an error Status, wherever it stands in a
// list that can be measured; one far behind in a list that cannot be cuts the
// connection.
func TestListsThatCannotBeMade(t *testing.T) {
	l := &resource.List{Revision: 1}
	kind := configMaps()
	for i := range 2000 {
		cm := configMap(strconv.Itoa(i))
		cm.Data["k"] = strings.Repeat("x", 1000)
		l.Items = append(l.Items, stored(t, kind, cm, 1))
	}
	for _, c := range []struct {
		name string
		f    format
		bad  string
		cut  bool
	}{
		{"JSON", format{}, "1999", false},
		{"YAML near", format{media: mediaYAML}, "100", false},
		{"YAML far", format{media: mediaYAML}, "1999", true},
		{"Table near", format{transform: asTable, metaVersion: "v1"}, "100", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			kind.Codec = &spoilt{Codec: rest.Typed(coreScheme(), corev1.SchemeGroupVersion.WithKind("ConfigMap")), name: c.bad}
			kind.Columns, kind.Cells = secrets().Columns, func(runtime.Object) ([]any, error) { return []any{"", 0}, nil }
			cut := func() (cut bool) {
				defer func() { cut = recover() == http.ErrAbortHandler }()
				w, err := listed(t, kind, l, c.f, "")
				if resource.AsStatus(err).Reason != metav1.StatusReasonStoreReadError || w.Body.Len() > 0 {
					t.Errorf("error %v after %d bytes", err, w.Body.Len())
				}
				return false
			}()
			if cut != c.cut {
				t.Errorf("cut: %v", cut)
			}
		})
	}
}

// A list that is measured as it is sent a moment later is sent; one that has
// become another is cut, also where no length was announced. What was fetched to
// measure it is not fetched again, unless it is too much to be kept.
func TestListsAreAsTheyWereMeasured(t *testing.T) {
	typed := corev1.SchemeGroupVersion.WithKind("ConfigMap")
	kind := configMaps()
	kind.Codec = rest.Typed(coreScheme(), typed)
	big, huge := configMap("a"), configMap("b")
	big.Data["k"] = strings.Repeat("x", 2*gzipThreshold)
	huge.Data["k"] = strings.Repeat("x", maxKeptBytes)
	first := stored(t, kind, big, 1)
	for name, tt := range map[string]struct {
		next    *resource.Object
		changes bool
		fetched int
		ends    any
	}{
		"kept":                {first, true, 1, nil},
		"too much":            {stored(t, kind, huge, 1), false, 2, nil},
		"too much, and other": {stored(t, kind, huge, 1), true, 2, http.ErrAbortHandler},
	} {
		fetched := 0
		c := contents{List: &resource.List{Revision: 1, Items: []*resource.Object{first}, Continue: "x", Page: &resource.PageEnd{}}}
		c.rest = func(string) (*resource.List, error) {
			l := &resource.List{Revision: 1, Items: []*resource.Object{tt.next}}
			if fetched++; tt.changes && fetched > 1 {
				l.Items = append(l.Items, first)
			}
			return l, nil
		}
		r := httptest.NewRequest("GET", "/api/v1/configmaps", nil)
		r.Header.Set("Accept-Encoding", "gzip")
		func() {
			defer func() {
				if got := recover(); got != tt.ends || fetched != tt.fetched {
					t.Errorf("%s: ended with %v, fetched %d times", name, got, fetched)
				}
			}()
			w := &discard{header: http.Header{}}
			if err := New(Config{}).sendList(w, r, resource.ParseAction(r), &rest.Resource{Kind: kind}, c, format{media: mediaProtobuf}); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}()
	}
}
