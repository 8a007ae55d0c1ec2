package handlers

import (
	"bytes"

	"portico/resource/rest/render"
)

// responseBody is the body of a response about one object: bytes that are shared by its
// readers, and a line feed behind them if they do not end with one.
type responseBody struct {
	data     []byte
	lineFeed bool
}

func (b responseBody) size() int {
	if b.lineFeed {
		return len(b.data) + 1
	}
	return len(b.data)
}

// appendTo appends the whole body to dst.
func (b responseBody) appendTo(dst []byte) []byte {
	dst = append(dst, b.data...)
	if b.lineFeed {
		dst = append(dst, '\n')
	}
	return dst
}

// finish converts JSON to the format: YAML, indented, or ended by a line feed. Protobuf
// stays as it is, and JSON that would be too long is not indented (render.MaxGrowth).
func finish(data []byte, f format) (responseBody, error) {
	switch {
	case f.media == mediaProtobuf:
		return responseBody{data: data}, nil
	case f.media == mediaYAML:
		data, err := render.YAML(data)
		if err != nil {
			return responseBody{}, err
		}
		return responseBody{data: data}, nil
	case f.pretty:
		var buf bytes.Buffer
		buf.Grow(len(data) * 2)
		if err := render.AppendIndented(&buf, data, ""); err != nil {
			return responseBody{}, err
		}
		data = buf.Bytes()
	}
	return responseBody{data: data, lineFeed: !bytes.HasSuffix(data, []byte("\n"))}, nil
}
