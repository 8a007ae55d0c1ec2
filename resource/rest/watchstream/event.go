package watchstream

import (
	"encoding/json"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"portico/resource"
	"portico/resource/response"
	"portico/resource/response/render"
	"portico/resource/rest/form"
)

// object returns the object of an event in the form of the stream. Only the first Table has
// the column definitions.
func (s *stream) object(o *resource.Object) ([]byte, error) {
	if s.Tables == nil {
		return s.forms.Encode(s.Kind, o, s.form)
	}
	head := metav1.ListMeta{ResourceVersion: strconv.FormatInt(o.Revision, 10)}
	data, err := s.Tables.Encode(head, []*resource.Object{o}, !s.columns)
	s.columns = true
	return data, err
}

// bookmark returns the object of a BOOKMARK event (docs/wire.md 5.6). initialEnd: it ends
// the initial events.
func (s *stream) bookmark(rev int64, initialEnd bool) ([]byte, error) {
	partial := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{ResourceVersion: strconv.FormatInt(rev, 10)}}
	if initialEnd {
		partial.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
	}
	gvk := s.Kind.GVK(s.Version)
	if s.form.Partial {
		gvk = form.MetaGVK(s.form.Version, "PartialObjectMetadata")
	}
	if s.Tables != nil {
		return s.bookmarkTable(partial)
	}
	if s.Format.Media == response.Protobuf {
		raw, err := partial.Marshal()
		if err != nil {
			return nil, err
		}
		return render.Envelope(gvk, raw), nil
	}
	partial.SetGroupVersionKind(gvk)
	return json.Marshal(partial)
}

// bookmarkTable returns a bookmark as a Table. Its row has the metadata with any
// includeObject.
func (s *stream) bookmarkTable(partial *metav1.PartialObjectMetadata) ([]byte, error) {
	gvk := form.MetaGVK(s.Tables.MetaVersion, "PartialObjectMetadata")
	if s.Tables.Include == metav1.IncludeObject {
		gvk = s.Kind.GVK(s.Version)
	}
	partial.SetGroupVersionKind(gvk)
	raw, err := json.Marshal(partial)
	if err != nil {
		return nil, err
	}
	table := metav1.Table{
		ListMeta: metav1.ListMeta{ResourceVersion: partial.ResourceVersion},
		Rows:     []metav1.TableRow{{Cells: []any{}, Object: runtime.RawExtension{Raw: raw}}},
	}
	if !s.columns {
		table.ColumnDefinitions, s.columns = s.Tables.Columns(), true
	}
	for range s.Tables.Columns() {
		table.Rows[0].Cells = append(table.Rows[0].Cells, "")
	}
	table.SetGroupVersionKind(form.MetaGVK(s.Tables.MetaVersion, "Table"))
	return json.Marshal(&table)
}

// encodeStatus returns the object of an ERROR event: a Status in every form.
func encodeStatus(status *metav1.Status, m response.Media) ([]byte, error) {
	if m != response.Protobuf {
		return json.Marshal(status)
	}
	raw, err := status.Marshal()
	if err != nil {
		return nil, err
	}
	return render.Envelope(response.StatusGVK(), raw), nil
}
