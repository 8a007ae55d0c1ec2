package aggregate

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Lists are taken apart item by item, so that an item that is too large costs nothing,
// and the beginning of a list that is too large is read.

var errNoObject = errors.New("it is no JSON object")

// splitAnswer is an answer that is taken apart: its members that say what it is, and the
// items of one array.
type splitAnswer struct {
	metav1.TypeMeta
	groupVersion string
	// listed: the array is there.
	listed bool
	rest   []byte // of the array, with its end
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
	at := space(text, 0)
	if string(bytes.TrimSpace(text[at:min(len(text), at+maxMember)])) == "null" {
		return nil // a document without members
	}
	if at == len(text) || text[at] != '{' {
		return errNoObject
	}
	for at = space(text, at+1); at < len(text) && text[at] != '}'; at = space(text, at) {
		end := skip(text, at)
		if text[at] != '"' || end < 0 {
			return errNoObject
		}
		name := string(text[at+1 : min(end-1, at+1+maxMember)])
		if at = space(text, end); at == len(text) || text[at] != ':' {
			return errNoObject
		}
		at = space(text, at+1)
		end = skip(text, at)
		if name == array && at < len(text) && text[at] == '[' {
			d.listed = true
			if end < 0 { // cut off: nothing comes behind it
				d.rest = text[at+1:]
				return nil
			}
			d.rest = text[at+1 : end]
		}
		if end < 0 {
			return errNoObject
		}
		if err := d.member(name, text[at:end]); err != nil {
			return err
		}
		if at = space(text, end); at < len(text) && text[at] == ',' {
			at++
		} else if at < len(text) && text[at] != '}' {
			return errNoObject
		}
	}
	if at == len(text) || space(text, at+1) != len(text) {
		return errNoObject
	}
	return nil
}

// member takes in what a member says of the document.
func (d *splitAnswer) member(name string, value []byte) error {
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

// next returns the next item of the array; nil: there is none, or it is cut off.
func (d *splitAnswer) next() []byte {
	at := space(d.rest, 0)
	if at < len(d.rest) && d.rest[at] == ',' {
		at = space(d.rest, at+1)
	}
	end := skip(d.rest, at)
	if end <= at {
		return nil
	}
	item := d.rest[at:end]
	d.rest = d.rest[end:]
	return item
}

// space returns where the first byte is from at on that is no white space.
func space(text []byte, at int) int {
	for at < len(text) && (text[at] == ' ' || text[at] == '\n' || text[at] == '\r' || text[at] == '\t') {
		at++
	}
	return at
}

// delimiters end a number or a word.
const delimiters = ",:]}[{\" \n\r\t"

// skip returns where the JSON value ends that begins at at; -1 where it does not end.
// Whether it is one is for who decodes it.
func skip(text []byte, at int) int {
	depth := 0
	for at < len(text) {
		switch text[at] {
		case '"':
			if at = skipString(text, at); at < 0 {
				return -1
			}
		case '{', '[':
			depth++
			at++
		case '}', ']':
			if depth--; depth < 0 {
				return -1
			}
			at++
		case ',', ':', ' ', '\n', '\r', '\t':
			at++
		default: // a number or a word
			for at < len(text) && strings.IndexByte(delimiters, text[at]) < 0 {
				at++
			}
			if at == len(text) {
				return -1
			}
		}
		if depth == 0 {
			return at
		}
	}
	return -1
}

// skipString returns where the string ends that begins at at; -1 where it does not.
func skipString(text []byte, at int) int {
	for at++; at < len(text); at++ {
		next := bytes.IndexAny(text[at:], `"\`)
		if next < 0 {
			return -1
		}
		if at += next; text[at] == '"' {
			return at + 1
		}
		at++ // what is escaped
	}
	return -1
}
