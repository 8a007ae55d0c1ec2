package liststream

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"reflect"
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
	"portico/resource/response"
	"portico/resource/response/render"
	"portico/resource/rest"
	"portico/resource/rest/form"
	"portico/resource/rest/resttest"
)

// write writes a list of v1 with a new cache.
func write(w http.ResponseWriter, r *http.Request, kind *rest.Kind, c Contents, f response.Format) error {
	opts := Options{Kind: kind, Version: "v1", Format: f, Forms: form.NewCache(formCache), Logger: slog.New(slog.DiscardHandler)}
	if f.Transform == response.AsTable {
		t, err := form.NewTables(r, opts.Forms, kind, "v1", f.MetaVersion)
		if err != nil {
			return err
		}
		opts.Tables = t
	}
	return Write(w, r, opts, c)
}

// formCache is the size of the cache of encoded objects in bytes.
const formCache = 64 << 20

// listed sends a list of objects through the whole path of a response.
func listed(tb testing.TB, kind *rest.Kind, l *resource.List, f response.Format, query string) (*httptest.ResponseRecorder, error) {
	tb.Helper()
	r := httptest.NewRequest("GET", "/api/v1/"+kind.Resource+query, nil)
	w := httptest.NewRecorder()
	return w, write(w, r, kind, Contents{List: l}, f)
}

// awkward returns a config map with everything that YAML and indentation treat specially.
func awkward(i int) *corev1.ConfigMap {
	cm := resttest.ConfigMap("cm-" + strconv.Itoa(i))
	cm.Labels["empty"] = ""
	cm.Annotations = map[string]string{
		"lines": "a\nitems: []\n\n  b\n", "long": strings.Repeat("many words ", 40), "number": "010", "bool": "yes", "colon": "a: b # c",
	}
	cm.BinaryData = map[string][]byte{"x": {0, 1, 2}}
	cm.OwnerReferences = []metav1.OwnerReference{{Name: "owner"}}
	return cm
}

// A list sent in pieces is the list that an encoder writes.
func TestListsAreByteIdentical(t *testing.T) {
	t.Parallel()
	for _, kind := range []*rest.Kind{resttest.ConfigMaps(), {Info: resttest.ConfigMaps().Info, Codec: rest.TypedJSON(resttest.CoreScheme(), corev1.SchemeGroupVersion.WithKind("ConfigMap"), nil)}} {
		for _, n := range []int{0, 1, 3, 700} {
			want := &corev1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: "9", Continue: "more"}, Items: []corev1.ConfigMap{}}
			want.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: "ConfigMapList"})
			l := &resource.List{Revision: 9, Continue: "more"}
			for i := range n {
				o := resttest.Stored(t, kind, awkward(i), int64(i+1))
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
				wantJSON = joined(wantJSON, l) // resourceVersion has another position in stored bytes
			}
			sameList(t, kind, l, wantJSON, response.AsObject)
			var buf bytes.Buffer
			if err := protobuf.NewSerializer(nil, nil).Encode(want, &buf); err != nil {
				t.Fatal(err)
			}
			w, err := listed(t, kind, l, response.Format{Media: response.Protobuf}, "")
			if err != nil || !bytes.Equal(w.Body.Bytes(), buf.Bytes()) || w.Header().Get("Content-Length") != strconv.Itoa(buf.Len()) {
				t.Fatalf("%d as protobuf: %d bytes, want %d, %v", n, w.Body.Len(), buf.Len(), err)
			}
			sameTable(t, kind, l)
		}
	}
}

// joined returns a list with its items replaced by the stored ones.
func joined(list []byte, l *resource.List) []byte {
	out := bytes.Clone(list[:bytes.IndexByte(list, '[')+1])
	for i, o := range l.Items {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(append(out, '{'), bytes.TrimPrefix(o.Data, typeMetaPrefix(resttest.ConfigMaps().GVK("v1")))...)
	}
	return append(out, "]}"...)
}

// sameList checks the three formats that are made from JSON.
func sameList(t *testing.T, kind *rest.Kind, l *resource.List, want []byte, as response.Transform) {
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
		f    response.Format
		want string
	}{
		{response.Format{}, string(want) + "\n"},
		{response.Format{Pretty: true}, indented.String() + "\n"},
		{response.Format{Media: response.YAML}, string(asYAML)},
	} {
		c.f.Transform, c.f.MetaVersion = as, "v1"
		w, err := listed(t, kind, l, c.f, "")
		if err != nil {
			t.Fatal(err)
		}
		if got := w.Body.String(); got != c.want {
			t.Fatalf("%d items in %+v:\n%.3000s\nwant\n%.3000s", len(l.Items), c.f, got, c.want)
		}
		if n := w.Header().Get("Content-Length"); n != "" && n != strconv.Itoa(len(c.want)) || n == "" && len(c.want) < response.GzipThreshold {
			t.Errorf("%d items in %+v: length %q of %d", len(l.Items), c.f, n, len(c.want))
		}
	}
}

func sameTable(t *testing.T, kind *rest.Kind, l *resource.List) {
	t.Helper()
	tables, err := form.NewTables(httptest.NewRequest("GET", "/", nil), form.NewCache(formCache), kind, "v1", "v1")
	if err != nil {
		t.Fatal(err)
	}
	want, err := tables.Encode(metav1.ListMeta{ResourceVersion: "9", Continue: "more"}, l.Items, true)
	if err != nil {
		t.Fatal(err)
	}
	sameList(t, kind, l, want, response.AsTable)
}

// Custom resources keep apiVersion and kind; Go types lose them at any position.
func TestJSONListItems(t *testing.T) {
	gvk := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}
	list := gvk
	list.Kind = "WidgetList"
	var items []*resource.Object
	for _, text := range []string{`{"kind":"Widget","apiVersion":"example.com/v1","x":1}`, `{"x":2,"apiVersion":"example.com/v1","kind":"Widget"}`} {
		items = append(items, &resource.Object{Data: []byte(text)})
	}
	item := func(o *resource.Object) ([]byte, error) { return o.Data, nil }
	const head = `{"kind":"WidgetList","apiVersion":"example.com/v1","metadata":{},"items":[`
	d, err := newDocument(list, metav1.ListMeta{}, item)
	if err != nil {
		t.Fatal(err)
	}
	encoded := func() string {
		out := &text{}
		if err := encode(d.as(response.Format{}), out, 0, &Contents{List: &resource.List{Items: items}}); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	if got := encoded(); got != head+string(items[0].Data)+","+string(items[1].Data)+"]}\n" {
		t.Errorf("whole: %s", got)
	}
	d.member = memberWithoutTypeMeta(gvk, item)
	if got := encoded(); got != head+`{"x":1},{"x":2}]}`+"\n" {
		t.Errorf("bare: %s", got)
	}
}

// text is an output that keeps all bytes.
type text struct{ bytes.Buffer }

func (t *text) write(p []byte) error       { _, err := t.Write(p); return err }
func (t *text) writeString(p string) error { _, err := t.WriteString(p); return err }

// spoilt is a codec that cannot decode one object.
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

// An object that cannot be encoded is an error Status at any position of a list that is
// measured; after the first megabyte of another list it aborts the response.
func TestListsThatCannotBeEncoded(t *testing.T) {
	l := &resource.List{Revision: 1}
	kind := resttest.ConfigMaps()
	for i := range 2000 {
		cm := resttest.ConfigMap(strconv.Itoa(i))
		cm.Data["k"] = strings.Repeat("x", 1000)
		l.Items = append(l.Items, resttest.Stored(t, kind, cm, 1))
	}
	for _, c := range []struct {
		name string
		f    response.Format
		bad  string
		cut  bool
	}{
		{"JSON", response.Format{}, "1999", false},
		{"YAML near", response.Format{Media: response.YAML}, "100", false},
		{"YAML far", response.Format{Media: response.YAML}, "1999", true},
		{"Table near", response.Format{Transform: response.AsTable, MetaVersion: "v1"}, "100", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			kind.Codec = &spoilt{Codec: rest.Typed(resttest.CoreScheme(), corev1.SchemeGroupVersion.WithKind("ConfigMap")), name: c.bad}
			kind.Columns, kind.Cells = resttest.Secrets().Columns, func(runtime.Object) ([]any, error) { return []any{"", 0}, nil }
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

// A list that differs from the measured one is aborted, also without Content-Length. Parts
// that were fetched to measure it are not fetched again unless they are too large to keep.
func TestListsThatChangeAfterMeasuringAreAborted(t *testing.T) {
	typed := corev1.SchemeGroupVersion.WithKind("ConfigMap")
	kind := resttest.ConfigMaps()
	kind.Codec = rest.Typed(resttest.CoreScheme(), typed)
	big, huge := resttest.ConfigMap("a"), resttest.ConfigMap("b")
	big.Data["k"] = strings.Repeat("x", 2*response.GzipThreshold)
	huge.Data["k"] = strings.Repeat("x", maxKeptBytes)
	first := resttest.Stored(t, kind, big, 1)
	for name, tt := range map[string]struct {
		next    *resource.Object
		changes bool
		fetched int
		ends    any
	}{
		"kept":                {first, true, 1, nil},
		"too much":            {resttest.Stored(t, kind, huge, 1), false, 2, nil},
		"too much, and other": {resttest.Stored(t, kind, huge, 1), true, 2, http.ErrAbortHandler},
	} {
		fetched := 0
		c := Contents{List: &resource.List{Revision: 1, Items: []*resource.Object{first}, Continue: "x", Page: &resource.PageEnd{}}}
		c.Rest = func(string) (*resource.List, error) {
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
			w := &resttest.Discard{}
			if err := write(w, r, kind, c, response.Format{Media: response.Protobuf}); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}()
	}
}

// Objects that indentation would make too long are in one line in lists too.
func TestDeepObjectsInLists(t *testing.T) {
	deep := []byte(`{"kind":"ConfigMap","apiVersion":"v1","a":` + strings.Repeat(`{"a":`, 300) + "[" + strings.Repeat("1,", 20000) + "1]" + strings.Repeat("}", 300) + "}")
	plain := []byte(`{"kind":"ConfigMap","apiVersion":"v1"}`)
	items := []*resource.Object{{Data: deep}, {Data: plain}, {Data: deep}}
	d, err := newDocument(schema.GroupVersionKind{Version: "v1", Kind: "ConfigMapList"}, metav1.ListMeta{ResourceVersion: "1"},
		func(o *resource.Object) ([]byte, error) { return o.Data, nil })
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Appendf(nil, `{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[%s,%s,%s]}`, deep, plain, deep)
	for name, f := range map[string]response.Format{"pretty": {Pretty: true}, "YAML": {Media: response.YAML}} {
		out := &text{}
		if err := encode(d.as(f), out, 0, &Contents{List: &resource.List{Items: items}}); err != nil {
			t.Fatal(err)
		}
		if out.Len() > 2*(len(deep)*render.MaxGrowth+render.FreeGrowth) {
			t.Errorf("%s: a list of %d bytes became %d", name, 2*len(deep), out.Len())
			continue
		}
		got := out.Bytes()
		if f.Media == response.YAML {
			if got, err = yaml.YAMLToJSON(got); err != nil {
				t.Fatal(err)
			}
		}
		var x, y any
		if err := errors.Join(json.Unmarshal(got, &x), json.Unmarshal(want, &y)); err != nil || !reflect.DeepEqual(x, y) {
			t.Errorf("%s: the list differs (%v): %.100s", name, err, got)
		}
	}
}

// A Table, whose rows are decoded, ends with its request.
func TestTablesEndWithTheirRequest(t *testing.T) {
	t.Parallel()
	kind := *resttest.ConfigMaps()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	rows := 0
	kind.Columns = []metav1.TableColumnDefinition{{Name: "Name", Type: "string"}}
	kind.Cells = func(runtime.Object) ([]any, error) {
		if rows++; rows == 3 {
			cancel()
		}
		return []any{"x"}, nil
	}
	l := &resource.List{Revision: 1}
	for i := range 100 {
		l.Items = append(l.Items, resttest.Stored(t, &kind, awkward(i), int64(i+1)))
	}
	r := httptest.NewRequest("GET", "/api/v1/configmaps", nil).WithContext(ctx)
	w := httptest.NewRecorder()
	err := write(w, r, &kind, Contents{List: l}, response.Format{Media: response.JSON, Transform: response.AsTable, MetaVersion: "v1"})
	if err != nil || rows != 3 || w.Body.Len() > 0 {
		t.Errorf("%d rows were made and %d bytes sent, with the error %v", rows, w.Body.Len(), err)
	}
}
