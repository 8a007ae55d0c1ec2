package sources

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Lists are decoded item by item: an item that is too large is skipped, and of a list that
// is too large the beginning is read.

var (
	errNoObject = errors.New("it is no JSON object")
	errNoArray  = errors.New("its list is no JSON array")
)

// splitAnswer is an answer of which one array is decoded item by item.
type splitAnswer struct {
	metav1.TypeMeta
	groupVersion string
	// listed: the array is there.
	listed bool
	items  *json.Decoder // within the array; nil: there is none
}

// maxMember bounds the members of a document that say what it is, in bytes.
const maxMember = 1 << 10

// split takes an answer apart. The answer may be cut off within the array.
func (a *answer) split(array string) (*splitAnswer, error) {
	d := &splitAnswer{}
	err := d.split(a.body, array)
	switch {
	case err != nil && a.cut:
		return nil, &tooLargeError{a.url, int64(len(a.body))}
	case err != nil:
		return nil, fmt.Errorf("decode answer of %s: %w", a.url, err)
	}
	return d, nil
}

func (d *splitAnswer) split(text []byte, array string) error {
	dec := json.NewDecoder(bytes.NewReader(text))
	switch t, err := dec.Token(); {
	case err != nil:
		return errNoObject
	case t == nil:
		return nil // null is a document without members
	case t != json.Delim('{'):
		return errNoObject
	}
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return err
		}
		if name == array {
			ended, err := d.array(dec, text)
			if err != nil || ended {
				return err
			}
			continue
		}
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return err
		}
		if err := d.member(name, value); err != nil {
			return err
		}
	}
	if _, err := dec.Token(); err != nil {
		return errNoObject
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errNoObject
	}
	return nil
}

// array passes over the array, which dec has come to, for next to decode it. ended
// reports that the text ends within it.
func (d *splitAnswer) array(dec *json.Decoder, text []byte) (ended bool, err error) {
	_, after, _ := bytes.Cut(text[dec.InputOffset():], []byte(":"))
	switch t, err := dec.Token(); {
	case err != nil:
		return false, err
	case t == json.Delim('{'):
		return false, errNoArray
	case t != json.Delim('['):
		return false, nil
	}
	d.listed, d.items = true, json.NewDecoder(bytes.NewReader(after))
	if _, err := d.items.Token(); err != nil {
		return false, err
	}
	var skipped json.RawMessage
	for err == nil && dec.More() {
		err = dec.Decode(&skipped)
	}
	if err == nil {
		_, err = dec.Token()
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return true, nil
	}
	return false, err
}

// member takes in what a member says of the document.
func (d *splitAnswer) member(name json.Token, value []byte) error {
	var to *string
	switch name {
	case "kind":
		to = &d.Kind
	case "apiVersion":
		to = &d.APIVersion
	case "groupVersion":
		to = &d.groupVersion
	default:
		return nil
	}
	if len(value) > maxMember {
		return fmt.Errorf("its %s is longer than %d bytes", name, maxMember)
	}
	if err := json.Unmarshal(value, to); err != nil {
		return fmt.Errorf("its %s: %w", name, err)
	}
	return nil
}

// next returns the next item of the array, which stands until the call after it; nil:
// there is none, or it is cut off.
func (d *splitAnswer) next() []byte {
	if d.items == nil || !d.items.More() {
		return nil
	}
	var item json.RawMessage
	if d.items.Decode(&item) != nil {
		return nil
	}
	return item
}
