package rest

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"golang.org/x/net/websocket"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico/resource"
)

// bookmarkMeta is all that a bookmark's object has (contract 5.6).
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
		return envelope(gvk, raw), nil
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
	if !s.rows {
		table.ColumnDefinitions, s.rows = s.tables.columns(), true
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
	data, err := s.tables.encode(head, []*resource.Object{o}, !s.rows)
	s.rows = true
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
	return envelope(schema.GroupVersionKind{Version: "v1", Kind: "Status"}, raw), nil
}

// webSocketWrite bounds the sending of one message.
const webSocketWrite = 30 * time.Second

// overWebSocket sends one message for each event: text for JSON, else binary
// (contract 5.4). What the client sends is read and dropped; when it closes,
// the watch ends.
func (s *stream) overWebSocket(ctx context.Context, w http.ResponseWriter, r *http.Request, run func(context.Context)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	server := websocket.Server{
		Handshake: func(config *websocket.Config, _ *http.Request) error {
			config.Protocol = nil // none is needed, and none that was offered is chosen
			return nil
		},
		Handler: func(ws *websocket.Conn) {
			defer ws.Close()
			go func() {
				defer cancel()
				var ignored []byte
				for websocket.Message.Receive(ws, &ignored) == nil {
				}
			}()
			ws.MaxPayloadBytes = 4096
			s.send = func(frames []byte, ends []int) error { return s.sendMessages(ws, frames, ends) }
			run(ctx)
		},
	}
	server.ServeHTTP(w, r)
	return nil
}

func (s *stream) sendMessages(ws *websocket.Conn, frames []byte, ends []int) error {
	if err := ws.SetWriteDeadline(time.Now().Add(webSocketWrite)); err != nil {
		return err
	}
	start := 0
	for _, end := range ends {
		var err error
		if s.format.media == mediaJSON {
			err = websocket.Message.Send(ws, string(frames[start:end]))
		} else {
			err = websocket.Message.Send(ws, frames[start:end])
		}
		if err != nil {
			return err
		}
		start = end
	}
	return nil
}
