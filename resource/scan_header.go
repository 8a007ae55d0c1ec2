package resource

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unique"

	"portico/resource/jsonscan"
)

// errDuplicate is the error for a duplicate member of the header: decoders differ in which of
// the two they use.
var errDuplicate = errors.New("duplicate key")

// headerKeys is a set of keys of one object, one bit each.
type headerKeys uint16

// headerBit returns the bit of a key; 0 for keys that are not in the header.
func headerBit(key []byte) headerKeys {
	switch string(key) {
	case "apiVersion":
		return 1 << 0
	case "kind":
		return 1 << 1
	case "metadata":
		return 1 << 2
	case "name":
		return 1 << 3
	case "namespace":
		return 1 << 4
	case "uid":
		return 1 << 5
	case "generation":
		return 1 << 6
	case "resourceVersion":
		return 1 << 7
	case "labels":
		return 1 << 8
	case "finalizers":
		return 1 << 9
	case "ownerReferences":
		return 1 << 10
	case "deletionTimestamp":
		return 1 << 11
	case "controller":
		return 1 << 12
	case "blockOwnerDeletion":
		return 1 << 13
	}
	return 0
}

// headerScanner reads a header from JSON text.
type headerScanner struct {
	jsonscan.Scanner
	// path is the storage path of the object; "" if it is not known.
	path string
	// texts holds the strings of the object in one allocation: with one for each, many objects
	// take twice the memory and more work of the garbage collector.
	texts strings.Builder
}

// textsSpace is how many bytes are allocated at once for the strings of an object: a uid and a label or two.
const textsSpace = 64

// keep returns a copy of raw.
func (s *headerScanner) keep(raw []byte) string {
	if len(raw) == 0 {
		return ""
	}
	if s.texts.Cap()-s.texts.Len() < len(raw) {
		s.texts = strings.Builder{}
		s.texts.Grow(max(textsSpace, len(raw)))
	}
	start := s.texts.Len()
	s.texts.Write(raw)
	return s.texts.String()[start:]
}

// text consumes a string and returns its value.
func (s *headerScanner) text() string { return s.keep(s.Text()) }

// pathText is text for a string that the storage path has.
func (s *headerScanner) pathText() string {
	raw := s.Text()
	if at := strings.LastIndex(s.path, string(raw)); at >= 0 {
		return s.path[at : at+len(raw)]
	}
	return s.keep(raw)
}

// commonText is text for a string that many objects have.
func (s *headerScanner) commonText() string { return unique.Make(string(s.Text())).Value() }

// once adds a key of the header to a set; a duplicate is an error.
func (s *headerScanner) once(set *headerKeys, key []byte) bool {
	bit := headerBit(key)
	if *set&bit != 0 {
		return s.Fail(fmt.Errorf("%s: %w", key, errDuplicate))
	}
	*set |= bit
	return true
}

// scanJSON sets header and layout from JSON.
func (o *Object) scanJSON(path string) error {
	s := &headerScanner{path: path}
	s.Reset(o.Data)
	var keys headerKeys
	for member := range s.Members {
		key := member.Text()
		if !s.once(&keys, key) {
			break
		}
		switch string(key) {
		case "apiVersion":
			o.APIVersion = s.commonText()
		case "kind":
			o.Kind = s.commonText()
		case "metadata":
			o.layout.meta = int32(s.Pos + 1)
			o.scanMetadata(s)
			o.layout.metaEnd = int32(s.Pos - 1)
		default:
			s.Skip()
		}
	}
	s.End()
	return s.Err()
}

// scanMetadata reads the metadata object at the scanner.
func (o *Object) scanMetadata(s *headerScanner) {
	var keys headerKeys
	for member := range s.Members {
		key := member.Text()
		switch string(key) {
		case "resourceVersion":
			if s.once(&keys, key) {
				o.Revision = s.revision()
				o.layout.rev, o.layout.revEnd = int32(member.Start), int32(s.Pos)
			}
		case "labels", "finalizers", "ownerReferences", "deletionTimestamp", "name", "namespace", "uid", "generation":
			if s.once(&keys, key) && !s.Null() {
				o.scanMetadataField(s, string(key))
			}
		default:
			s.Skip()
		}
	}
}

func (o *Object) scanMetadataField(s *headerScanner, key string) {
	var err error
	switch key {
	case "name":
		o.Name = s.pathText()
	case "namespace":
		o.Namespace = s.pathText()
	case "uid":
		o.UID = s.text()
	case "generation":
		start := s.Pos
		if s.Skip() {
			o.Generation, err = strconv.ParseInt(string(s.Data[start:s.Pos]), 10, 64)
		}
	case "labels":
		var labels Labels
		for label := range s.Members {
			name := s.keep(label.Text())
			labels = append(labels, Label{name, s.text()})
		}
		o.Labels = labels.sorted()
	case "finalizers":
		for range s.Elements {
			o.Finalizers = append(o.Finalizers, s.text())
		}
	case "ownerReferences":
		for range s.Elements {
			o.scanOwner(s)
		}
	case "deletionTimestamp":
		if text := s.Text(); s.Err() == nil {
			var at time.Time
			at, err = time.Parse(time.RFC3339, string(text))
			o.SetDeletionTime(at)
		}
	}
	if err != nil {
		s.Fail(fmt.Errorf("metadata.%s: %w", key, err))
	}
}

func (o *Object) scanOwner(s *headerScanner) {
	var w Owner
	var keys headerKeys
	for member := range s.Members {
		key := member.Text()
		if !s.once(&keys, key) {
			break
		}
		switch string(key) {
		case "apiVersion":
			w.APIVersion = s.text()
		case "kind":
			w.Kind = s.text()
		case "name":
			w.Name = s.text()
		case "uid":
			w.UID = s.text()
		case "controller":
			w.Controller = s.boolean()
		case "blockOwnerDeletion":
			w.BlockDeletion = s.boolean()
		default:
			s.Skip()
		}
	}
	o.Owners = append(o.Owners, w)
}

// boolean consumes true, false or null, which is false.
func (s *headerScanner) boolean() bool {
	if s.Literal("true") {
		return true
	}
	if !s.Literal("false") && !s.Null() {
		s.Fail(fmt.Errorf("expected a boolean at byte %d", s.Pos))
	}
	return false
}

// revision consumes a resourceVersion: a string of digits, empty or null.
func (s *headerScanner) revision() int64 {
	if s.Null() {
		return 0
	}
	text := s.Text()
	if len(text) == 0 {
		return 0
	}
	rev, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil || rev < 0 {
		s.Fail(fmt.Errorf("metadata.resourceVersion: not a revision: %q", text))
		return 0
	}
	return rev
}
