package handlers

import (
	"bytes"
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico/resource"
	"portico/resource/rest/render"
)

// document is a JSON object that ends with an array: a list and its items, or a
// table and its rows.
type document struct {
	// head is everything up to the array's members, its bracket included.
	head []byte
	// member makes one of them; its bytes are opening followed by rest.
	member func(o *resource.Object) (opening string, rest []byte, err error)
	// measured is that of a document as it stands.
	measured measuring
}

// newDocument is a list of objects as they are rendered.
func newDocument(gvk schema.GroupVersionKind, head metav1.ListMeta, render func(*resource.Object) ([]byte, error)) (*document, error) {
	start, err := json.Marshal(struct {
		Kind       string          `json:"kind"`
		APIVersion string          `json:"apiVersion"`
		Metadata   metav1.ListMeta `json:"metadata"`
	}{gvk.Kind, gvk.GroupVersion().String(), head})
	if err != nil {
		return nil, fmt.Errorf("encode list: %w", err)
	}
	return &document{
		head: append(start[:len(start)-1], `,"items":[`...),
		member: func(o *resource.Object) (string, []byte, error) {
			data, err := render(o)
			return "", data, err
		},
	}, nil
}

// bareMember makes objects without apiVersion and kind, as Go types have them
// in lists.
func bareMember(gvk schema.GroupVersionKind, render func(*resource.Object) ([]byte, error)) func(*resource.Object) (string, []byte, error) {
	prefix := typeMetaPrefix(gvk)
	return func(o *resource.Object) (string, []byte, error) {
		data, err := render(o)
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

// document is a Table of objects.
func (t *tables) document(head metav1.ListMeta) (*document, error) {
	data, err := t.encode(head, nil, true)
	if err != nil {
		return nil, err
	}
	start, ok := bytes.CutSuffix(data, []byte("]}"))
	if !ok {
		return nil, fmt.Errorf("encode table: it does not end with its rows")
	}
	return &document{
		head:     start,
		measured: never,
		member: func(o *resource.Object) (string, []byte, error) {
			row, err := t.row(o)
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

// typeMetaPrefix is how the encoder of Go types opens an object that has
// anything besides kind and apiVersion.
func typeMetaPrefix(gvk schema.GroupVersionKind) []byte {
	return fmt.Appendf(nil, `{"kind":%q,"apiVersion":%q,`, gvk.Kind, gvk.GroupVersion().String())
}

// dropTypeMeta leaves kind and apiVersion out of an object whose bytes do not
// open with them (somebody else wrote them).
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
func (d *document) as(f format) listEncoder {
	switch {
	case f.media == mediaYAML:
		return &yamlList{document: d}
	case f.pretty:
		return &indentedList{document: d}
	}
	return &jsonList{d}
}

// jsonList writes a document as it stands.
type jsonList struct{ *document }

func (e *jsonList) measured() measuring { return e.document.measured }

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

// indentedList writes a document indented by two spaces.
type indentedList struct {
	*document
	buf bytes.Buffer
}

func (e *indentedList) measured() measuring { return never }

// The members of the array stand two levels deep.
const memberIndent = "    "

func (e *indentedList) begin(out output, _ int64) error {
	e.buf.Reset()
	if err := json.Indent(&e.buf, append(bytes.Clone(e.head), "]}"...), "", "  "); err != nil {
		return fmt.Errorf("indent JSON: %w", err)
	}
	// What comes behind the bracket depends on whether there is a member.
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

// join returns a member in one piece, between two texts.
func (d *document) join(o *resource.Object, before, after string) ([]byte, error) {
	opening, rest, err := d.member(o)
	if err != nil || before+opening+after == "" {
		return rest, err
	}
	data := make([]byte, 0, len(before)+len(opening)+len(rest)+len(after))
	data = append(append(data, before...), opening...)
	return append(append(data, rest...), after...), nil
}

// yamlList writes a document as YAML, where the members of an object stand in
// the order of their names: what comes behind the array is kept for the end.
type yamlList struct {
	*document
	tail []byte
}

func (e *yamlList) measured() measuring { return never }

func (e *yamlList) begin(out output, _ int64) error {
	data, err := render.YAML(append(bytes.Clone(e.head), "]}"...))
	if err != nil {
		return err
	}
	// At the beginning of a line stand only the document's own fields; the
	// array is the one that is still empty and comes last in JSON.
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
