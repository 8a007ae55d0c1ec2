package liststream

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico/resource"
	"portico/resource/cbor"
	"portico/resource/response"
	"portico/resource/response/render"
	"portico/resource/rest/form"
)

// document is a JSON object that ends with an array: a list with its items, or a table with
// its rows.
type document struct {
	// head is everything before the first member, including the bracket.
	head []byte
	// member encodes a member; its bytes are opening and rest.
	member func(o *resource.Object) (opening string, rest []byte, err error)
	// costly: members are not cached, so that the document is encoded once.
	costly bool
}

// unstructuredListMeta is the metadata of a list of custom resources: as in an UnstructuredList
// continue is never omitted.
type unstructuredListMeta struct {
	ResourceVersion    string `json:"resourceVersion"`
	Continue           string `json:"continue"`
	RemainingItemCount *int64 `json:"remainingItemCount,omitempty"`
}

// newDocument returns a list of encoded objects. head is its metadata.
func newDocument(gvk schema.GroupVersionKind, head any, encode func(*resource.Object) ([]byte, error)) (*document, error) {
	start, err := json.Marshal(struct {
		Kind       string `json:"kind"`
		APIVersion string `json:"apiVersion"`
		Metadata   any    `json:"metadata"`
	}{gvk.Kind, gvk.GroupVersion().String(), head})
	if err != nil {
		return nil, fmt.Errorf("encode list: %w", err)
	}
	return &document{
		head: append(start[:len(start)-1], `,"items":[`...),
		member: func(o *resource.Object) (string, []byte, error) {
			data, err := encode(o)
			return "", data, err
		},
	}, nil
}

// memberWithoutTypeMeta encodes members without apiVersion and kind, as lists of Go types
// have them.
func memberWithoutTypeMeta(gvk schema.GroupVersionKind, encode func(*resource.Object) ([]byte, error)) func(*resource.Object) (string, []byte, error) {
	prefix := typeMetaPrefix(gvk)
	return func(o *resource.Object) (string, []byte, error) {
		data, err := encode(o)
		if err != nil {
			return "", nil, err
		}
		if rest, ok := bytes.CutPrefix(data, prefix); ok {
			return "{", rest, nil
		}
		data, err = dropTypeMeta(data)
		return "", data, err
	}
}

// newTable returns a Table of objects.
func newTable(t *form.Tables, head metav1.ListMeta) (*document, error) {
	data, err := t.Encode(head, nil, true)
	if err != nil {
		return nil, err
	}
	start, ok := bytes.CutSuffix(data, []byte("]}"))
	if !ok {
		return nil, errors.New("encode table: it does not end with its rows")
	}
	return &document{
		head:   start,
		costly: true,
		member: func(o *resource.Object) (string, []byte, error) {
			row, err := t.Row(o)
			if err != nil {
				return "", nil, err
			}
			data, err := json.Marshal(&row)
			if err != nil {
				return "", nil, fmt.Errorf("encode table row: %w", err)
			}
			return "", data, nil
		},
	}, nil
}

// typeMetaPrefix is the beginning of an object as the encoder of Go types writes it.
func typeMetaPrefix(gvk schema.GroupVersionKind) []byte {
	return fmt.Appendf(nil, `{"kind":%q,"apiVersion":%q,`, gvk.Kind, gvk.GroupVersion().String())
}

// dropTypeMeta removes kind and apiVersion from an object that does not begin with them.
func dropTypeMeta(data []byte) ([]byte, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(data, &fields); err != nil {
		return nil, fmt.Errorf("read list item: %w", err)
	}
	delete(fields, "kind")
	delete(fields, "apiVersion")
	return json.Marshal(fields)
}

// as returns the encoder of the document in a format.
func (d *document) as(f response.Format) encoder {
	switch {
	case f.Media == response.YAML:
		return &yamlList{document: d}
	case f.Media == response.CBOR:
		return &cborList{d}
	case f.Pretty:
		return &indentedList{document: d}
	}
	return &jsonList{d}
}

// jsonList encodes a document as JSON without indentation.
type jsonList struct{ *document }

func (e *jsonList) measure(parts bool) bool { return !parts && !e.costly }

func (e *jsonList) begin(out output, _ int64) error { return out.write(e.head) }

func (e *jsonList) item(out output, o *resource.Object, first bool) error {
	opening, rest, err := e.member(o)
	if err != nil {
		return err
	}
	if !first {
		opening = "," + opening
	}
	if err := out.writeString(opening); err != nil {
		return err
	}
	return out.write(rest)
}

func (e *jsonList) end(out output, _ bool) error { return out.writeString("]}\n") }

// indentedList encodes a document indented by two spaces.
type indentedList struct {
	*document
	buf bytes.Buffer
}

func (e *indentedList) measure(bool) bool { return false }

// memberIndent is the indentation of members, which are two levels deep.
const memberIndent = "    "

func (e *indentedList) begin(out output, _ int64) error {
	e.buf.Reset()
	if err := json.Indent(&e.buf, append(bytes.Clone(e.head), "]}"...), "", "  "); err != nil {
		return fmt.Errorf("indent JSON: %w", err)
	}
	// What follows the bracket depends on whether there is a member.
	head, _ := bytes.CutSuffix(e.buf.Bytes(), []byte("]\n}"))
	return out.write(head)
}

func (e *indentedList) item(out output, o *resource.Object, first bool) error {
	data, err := e.join(o, "", "")
	if err != nil {
		return err
	}
	separator := ",\n" + memberIndent
	if first {
		separator = separator[1:]
	}
	e.buf.Reset()
	e.buf.WriteString(separator)
	if err := render.AppendIndented(&e.buf, data, memberIndent); err != nil {
		return err
	}
	return out.write(bytes.TrimRight(e.buf.Bytes(), "\n"))
}

func (e *indentedList) end(out output, empty bool) error {
	if empty {
		return out.writeString("]\n}\n")
	}
	return out.writeString("\n  ]\n}\n")
}

// join returns a member between two texts.
func (d *document) join(o *resource.Object, before, after string) ([]byte, error) {
	opening, rest, err := d.member(o)
	if err != nil || before+opening+after == "" {
		return rest, err
	}
	data := make([]byte, 0, len(before)+len(opening)+len(rest)+len(after))
	data = append(append(data, before...), opening...)
	return append(append(data, rest...), after...), nil
}

// yamlList encodes a document as YAML. Fields are in the order of their names, so that some
// follow the array: they are kept in tail.
type yamlList struct {
	*document
	tail []byte
}

func (e *yamlList) measure(bool) bool { return false }

func (e *yamlList) begin(out output, _ int64) error {
	data, err := render.YAML(append(bytes.Clone(e.head), "]}"...))
	if err != nil {
		return err
	}
	// Only fields of the document are not indented; the array is the last one in JSON, and
	// empty here.
	name := e.head[bytes.LastIndexByte(e.head[:len(e.head)-3], '"')+1 : len(e.head)-3]
	empty := []byte("\n" + string(name) + ": []\n")
	at := bytes.Index(data, empty)
	if at < 0 {
		return fmt.Errorf("encode YAML: the list has no %s", name)
	}
	e.tail = data[at+len(empty):]
	return out.write(data[:at+len(empty)-len(" []\n")])
}

func (e *yamlList) item(out output, o *resource.Object, first bool) error {
	data, err := e.join(o, "[", "]")
	if err != nil {
		return err
	}
	opening := ""
	if first {
		opening = "\n"
	}
	if render.TooLong(data, render.YAMLLines) {
		opening += "- "
		data, err = render.FlowYAML(data[1 : len(data)-1])
	} else {
		data, err = render.YAML(data)
	}
	if err != nil {
		return err
	}
	if err := out.writeString(opening); err != nil {
		return err
	}
	return out.write(data)
}

func (e *yamlList) end(out output, empty bool) error {
	if empty {
		if err := out.writeString(" []\n"); err != nil {
			return err
		}
	}
	return out.write(e.tail)
}

// cborList encodes a list as CBOR (RFC 8949, 3.2). Its map and the array of its items end with
// a break, because their lengths are not known when they begin.
type cborList struct{ *document }

const (
	cborMap   = '\xbf'
	cborItems = "\x45items\x9f"
	cborBreak = "\xff"
)

func (e *cborList) measure(bool) bool { return false }

func (e *cborList) begin(out output, _ int64) error {
	start, err := cbor.FromJSON(append(bytes.TrimSuffix(bytes.Clone(e.head), []byte(`,"items":[`)), '}'))
	if err != nil {
		return err
	}
	start[len(cbor.SelfDescribed)] = cborMap // was one of a few members
	return out.write(append(start, cborItems...))
}

func (e *cborList) item(out output, o *resource.Object, _ bool) error {
	data, err := e.join(o, "", "")
	if err != nil {
		return err
	}
	if data, err = cbor.Item(data); err != nil {
		return err
	}
	return out.write(data)
}

func (e *cborList) end(out output, _ bool) error { return out.writeString(cborBreak + cborBreak) }

// protobufList encodes a protobuf list in an envelope from items in envelopes: ListMeta is
// field 1 of every list message, the items are field 2.
type protobufList struct {
	gvk     schema.GroupVersionKind
	head    []byte
	encode  func(*resource.Object) ([]byte, error)
	scratch []byte
}

func newProtobufList(gvk schema.GroupVersionKind, head metav1.ListMeta, encode func(*resource.Object) ([]byte, error)) (*protobufList, error) {
	data, err := head.Marshal()
	if err != nil {
		return nil, fmt.Errorf("encode list: %w", err)
	}
	return &protobufList{gvk: gvk, head: append(render.AppendFieldStart(nil, 1, len(data)), data...), encode: encode}, nil
}

// measure returns true: the envelope has the length of the list.
func (e *protobufList) measure(bool) bool { return true }

func (e *protobufList) begin(out output, items int64) error {
	start := render.AppendEnvelopeStart(nil, e.gvk, len(e.head)+int(items))
	return out.write(append(start, e.head...))
}

func (e *protobufList) item(out output, o *resource.Object, _ bool) error {
	data, err := e.encode(o)
	if err != nil {
		return err
	}
	raw, err := render.OpenEnvelope(data)
	if err != nil {
		return err
	}
	e.scratch = render.AppendFieldStart(e.scratch[:0], 2, len(raw))
	if err := out.write(e.scratch); err != nil {
		return err
	}
	return out.write(raw)
}

func (e *protobufList) end(out output, _ bool) error { return out.write(render.AppendEnvelopeEnd(nil)) }
