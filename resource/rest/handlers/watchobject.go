package handlers

import (
	"encoding/json"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"portico/resource"
	"portico/resource/rest/render"
)

// bookmarkMeta is all that a bookmark's object has (docs/wire.md 5.6).
func bookmarkMeta(rev int64, initialEnd bool) metav1.ObjectMeta {
	meta := metav1.ObjectMeta{ResourceVersion: strconv.FormatInt(rev, 10)}
	if initialEnd {
		meta.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
	}
	return meta
}

// bookmark makes the object of a BOOKMARK event, in the form of the stream.
func (s *stream) bookmark(rev int64, initialEnd bool) ([]byte, error) {
	partial := &metav1.PartialObjectMetadata{ObjectMeta: bookmarkMeta(rev, initialEnd)}
	gvk := s.kind.GVK(s.version)
	if s.shape.partial {
		gvk = metaGVK(s.shape.version, "PartialObjectMetadata")
	}
	if s.tables != nil {
		return s.bookmarkTable(partial, rev)
	}
	if s.format.media == mediaProtobuf {
		raw, err := partial.Marshal()
		if err != nil {
			return nil, err
		}
		return render.Envelope(gvk, raw), nil
	}
	partial.SetGroupVersionKind(gvk)
	return json.Marshal(partial)
}

// bookmarkTable is a bookmark for a client that reads tables: its one row holds
// the metadata, whatever includeObject says.
func (s *stream) bookmarkTable(partial *metav1.PartialObjectMetadata, rev int64) ([]byte, error) {
	gvk := metaGVK(s.tables.metaVersion, "PartialObjectMetadata")
	if s.tables.include == metav1.IncludeObject {
		gvk = s.kind.GVK(s.version)
	}
	partial.SetGroupVersionKind(gvk)
	raw, err := json.Marshal(partial)
	if err != nil {
		return nil, err
	}
	table := metav1.Table{
		ListMeta:          metav1.ListMeta{ResourceVersion: strconv.FormatInt(rev, 10)},
		ColumnDefinitions: []metav1.TableColumnDefinition{},
		Rows:              []metav1.TableRow{{Cells: []any{}, Object: runtime.RawExtension{Raw: raw}}},
	}
	if !s.columns {
		table.ColumnDefinitions, s.columns = s.tables.columns(), true
	}
	for range s.tables.columns() {
		table.Rows[0].Cells = append(table.Rows[0].Cells, "")
	}
	table.SetGroupVersionKind(metaGVK(s.tables.metaVersion, "Table"))
	return json.Marshal(&table)
}

// table makes the Table of one event; only the first has the columns.
func (s *stream) table(o *resource.Object) ([]byte, error) {
	head := metav1.ListMeta{ResourceVersion: strconv.FormatInt(o.Revision, 10)}
	data, err := s.tables.encode(head, []*resource.Object{o}, !s.columns)
	s.columns = true
	return data, err
}

// encodeStatus makes the object of an ERROR event: always a plain Status.
func encodeStatus(status *metav1.Status, m media) ([]byte, error) {
	if m != mediaProtobuf {
		return json.Marshal(status)
	}
	raw, err := status.Marshal()
	if err != nil {
		return nil, err
	}
	return render.Envelope(statusGVK(), raw), nil
}
