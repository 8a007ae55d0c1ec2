package swagger

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	openapi_v2 "github.com/google/gnostic-models/openapiv2"
	"google.golang.org/protobuf/proto"
	models "k8s.io/kube-openapi/pkg/util/proto"
)

// pieceSize is about how much JSON is turned into protobuf at a time, in bytes:
// the parser takes a hundred times that.
const pieceSize = 64 << 10

// tried reports why the readers of v2 would reject a document.
func tried(data []byte) error {
	doc, err := openapi_v2.ParseDocument(data)
	if err != nil {
		return fmt.Errorf("read OpenAPI v2 document: %w", err)
	}
	if _, err := models.NewOpenAPIData(doc); err != nil {
		return fmt.Errorf("read models of OpenAPI v2 document: %w", err)
	}
	return nil
}

// entry is one member of the paths, definitions or parameters.
type entry struct {
	name string
	data json.RawMessage
}

// toProtobuf reads the whole document as JSON and writes it as protobuf, piece
// by piece. What the parser rejects is left out, and told to dropped; of a
// definition its name stays.
func toProtobuf(from io.Reader, to io.Writer, dropped func(section, name string, err error)) error {
	d := json.NewDecoder(from)
	if err := delim(d, '{'); err != nil {
		return err
	}
	if err := writePiece(to, "", nil, dropped); err != nil { // version and info
		return err
	}
	for d.More() {
		section, err := key(d)
		if err != nil {
			return err
		}
		switch section {
		case "paths", "definitions", "parameters":
			err = eachPiece(d, func(piece []entry) error { return writePiece(to, section, piece, dropped) })
		default:
			var skipped json.RawMessage
			err = d.Decode(&skipped)
		}
		if err != nil {
			return fmt.Errorf("encode %s of OpenAPI v2 as protobuf: %w", section, err)
		}
	}
	return nil
}

func delim(d *json.Decoder, want json.Delim) error {
	switch t, err := d.Token(); {
	case err != nil:
		return err
	case t != want:
		return fmt.Errorf("found %v in place of %v", t, want)
	}
	return nil
}

func key(d *json.Decoder) (string, error) {
	t, err := d.Token()
	if err != nil {
		return "", err
	}
	name, ok := t.(string)
	if !ok {
		return "", fmt.Errorf("found %v in place of a name", t)
	}
	return name, nil
}

// eachPiece reads an object and hands it out in pieces.
func eachPiece(d *json.Decoder, use func([]entry) error) error {
	if err := delim(d, '{'); err != nil {
		return err
	}
	var piece []entry
	size := 0
	for d.More() {
		name, err := key(d)
		if err != nil {
			return err
		}
		var data json.RawMessage
		if err := d.Decode(&data); err != nil {
			return err
		}
		piece = append(piece, entry{name, data})
		if size += len(data); size < pieceSize {
			continue
		}
		if err := use(piece); err != nil {
			return err
		}
		piece, size = nil, 0
	}
	if len(piece) > 0 {
		if err := use(piece); err != nil {
			return err
		}
	}
	return delim(d, '}')
}

// writePiece writes a document that has only these entries. The reader joins
// what it finds of each field.
func writePiece(to io.Writer, section string, piece []entry, dropped func(section, name string, err error)) error {
	doc, err := openapi_v2.ParseDocument(pieceJSON(section, piece))
	if err != nil {
		return writeHalves(to, section, piece, dropped, err)
	}
	if section != "" { // said once
		doc.Swagger, doc.Info = "", nil
		if section != "paths" {
			doc.Paths = nil
		}
	}
	data, err := proto.Marshal(doc)
	if err != nil {
		return err
	}
	_, err = to.Write(data)
	return err
}

// writeHalves looks for what spoils a piece.
func writeHalves(to io.Writer, section string, piece []entry, dropped func(section, name string, err error), cause error) error {
	switch len(piece) {
	case 0:
		return cause
	case 1:
		dropped(section, piece[0].name, cause)
		if section != "definitions" || bytes.Equal(piece[0].data, free) {
			return nil
		}
		return writePiece(to, section, []entry{{piece[0].name, free}}, dropped)
	}
	half := len(piece) / 2
	return errors.Join(
		writePiece(to, section, piece[:half], dropped),
		writePiece(to, section, piece[half:], dropped))
}

// free is a definition of anything.
var free = json.RawMessage(`{}`)

func pieceJSON(section string, piece []entry) []byte {
	var b bytes.Buffer
	b.WriteString(`{"swagger":"2.0","info":{"title":"Kubernetes","version":"unversioned"}`)
	if section != "paths" {
		b.WriteString(`,"paths":{}`)
	}
	if section != "" {
		b.WriteString(`,"` + section + `":{`)
		for i, e := range piece {
			if i > 0 {
				b.WriteByte(',')
			}
			writeEntry(&b, e)
		}
		b.WriteByte('}')
	}
	b.WriteByte('}')
	return b.Bytes()
}

func writeEntry(b *bytes.Buffer, e entry) {
	name, _ := json.Marshal(e.name) // strings always encode
	b.Write(name)
	b.WriteByte(':')
	b.Write(e.data)
}
