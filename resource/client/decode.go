package client

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico/resource"
)

// boundedReader fails once it has read more than maxObject since the last renew. A decoder
// that reads ahead makes the bound of one value somewhat wider.
type boundedReader struct {
	from io.Reader
	left int
}

func (r *boundedReader) renew() { r.left = maxObject }

func (r *boundedReader) Read(p []byte) (int, error) {
	if r.left <= 0 {
		return 0, errTooLarge
	}
	n, err := r.from.Read(p[:min(len(p), r.left)])
	r.left -= n
	return n, err
}

// parse parses an object of the reader's resource. Items of lists may lack apiVersion and
// kind.
func (s *reader) parse(data []byte) (*resource.Object, error) {
	o, err := resource.Parse(data)
	if err != nil || o.APIVersion != "" && o.Kind != "" {
		return o, err
	}
	whole := []byte{'{'}
	if o.APIVersion == "" {
		whole = fmt.Appendf(whole, `"apiVersion":%q,`, s.info.GVR(s.info.Versions[0]).GroupVersion())
	}
	if o.Kind == "" {
		whole = fmt.Appendf(whole, `"kind":%q,`, s.info.Kind)
	}
	rest := bytes.TrimLeft(data[bytes.IndexByte(data, '{')+1:], " \t\r\n")
	if rest[0] == '}' {
		whole = whole[:len(whole)-1] // no comma before the end
	}
	return resource.Parse(append(whole, rest...))
}

// readList reads a list item by item, so that a long one takes memory for its objects only.
func (s *reader) readList(body io.Reader) (*resource.List, error) {
	bounded := &boundedReader{from: body}
	bounded.renew()
	dec := json.NewDecoder(bounded)
	if err := expect(dec, json.Delim('{')); err != nil {
		return nil, err
	}
	out := &resource.List{}
	for dec.More() {
		bounded.renew()
		key, err := dec.Token()
		if err != nil {
			return nil, err
		}
		switch key {
		case "metadata":
			var meta metav1.ListMeta
			if err := dec.Decode(&meta); err != nil {
				return nil, err
			}
			out.Continue, out.Remaining = meta.Continue, meta.RemainingItemCount
			if out.Revision, err = revision(meta.ResourceVersion); err != nil {
				return nil, err
			}
		case "items":
			if out.Items, err = s.readItems(dec, bounded); err != nil {
				return nil, err
			}
		default:
			var skipped json.RawMessage
			if err := dec.Decode(&skipped); err != nil {
				return nil, err
			}
		}
	}
	return out, expect(dec, json.Delim('}'))
}

func (s *reader) readItems(dec *json.Decoder, bounded *boundedReader) ([]*resource.Object, error) {
	start, err := dec.Token()
	if err != nil || start == nil { // null
		return nil, err
	}
	if start != json.Delim('[') {
		return nil, fmt.Errorf("items is not an array but %v", start)
	}
	var items []*resource.Object
	for dec.More() {
		bounded.renew()
		var raw json.RawMessage
		if err := dec.Decode(&raw); err != nil {
			return nil, err
		}
		o, err := s.parse(raw)
		if err != nil {
			return nil, err
		}
		items = append(items, o)
	}
	return items, expect(dec, json.Delim(']'))
}

func expect(dec *json.Decoder, want json.Delim) error {
	got, err := dec.Token()
	if err == nil && got != want {
		err = fmt.Errorf("%v instead of %v", got, want)
	}
	return err
}

// revision parses a resourceVersion, which some APIs do not have.
func revision(text string) (int64, error) {
	if text == "" {
		return 0, nil
	}
	rev, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("resourceVersion is not a revision: %w", err)
	}
	return rev, nil
}
