package resource

import (
	"errors"
	"fmt"
	"strconv"
	"time"
)

// errDuplicate refuses a member that is there twice: decoders differ in which
// of the two they believe, and the header must say what all of them say.
var errDuplicate = errors.New("duplicate key")

// seen notes the members of one object that were met, one bit each.
type seen uint16

// once is errDuplicate for a key of the header that was met before.
func (s *seen) once(key []byte) error {
	bit := headerBit(key)
	if *s&bit != 0 {
		return fmt.Errorf("%s: %w", key, errDuplicate)
	}
	*s |= bit
	return nil
}

// headerBit is 0 for keys that are not in the header.
func headerBit(key []byte) seen {
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

// scanJSON fills the header and layout from JSON text.
func (o *Object) scanJSON() error {
	s := &jsonScanner{data: o.Data}
	var met seen
	err := s.members(func(key []byte, _ int) (err error) {
		if err := met.once(key); err != nil {
			return err
		}
		switch string(key) {
		case "apiVersion":
			o.APIVersion, err = s.text()
		case "kind":
			o.Kind, err = s.text()
		case "metadata":
			o.layout.meta = s.pos + 1
			if err = o.scanMetadata(s); err == nil {
				o.layout.metaEnd = s.pos - 1
			}
		default:
			err = s.skip()
		}
		return err
	})
	if err != nil {
		return err
	}
	if s.space(); s.pos != len(s.data) {
		return s.fail("trailing data")
	}
	return nil
}

// scanMetadata reads the metadata object at the scanner.
func (o *Object) scanMetadata(s *jsonScanner) error {
	var met seen
	return s.members(func(key []byte, start int) (err error) {
		switch string(key) {
		case "resourceVersion":
			if err := met.once(key); err != nil {
				return err
			}
			if o.Revision, err = s.revision(); err == nil {
				o.layout.rev, o.layout.revEnd = start, s.pos
			}
			return err
		case "labels", "finalizers", "ownerReferences", "deletionTimestamp", "name", "namespace", "uid", "generation":
			if err := met.once(key); err != nil || s.null() {
				return err
			}
			return o.scanMetadataField(s, string(key))
		}
		return s.skip()
	})
}

func (o *Object) scanMetadataField(s *jsonScanner, key string) (err error) {
	switch key {
	case "name":
		o.Name, err = s.text()
	case "namespace":
		o.Namespace, err = s.text()
	case "uid":
		o.UID, err = s.text()
	case "generation":
		start := s.pos
		if err = s.skip(); err == nil {
			o.Generation, err = strconv.ParseInt(string(s.data[start:s.pos]), 10, 64)
		}
	case "labels":
		var met Labels
		err = s.members(func(key []byte, _ int) error {
			name := s.keep(key)
			value, err := s.text()
			met = append(met, Label{name, value})
			return err
		})
		o.Labels = met.settled()
	case "finalizers":
		err = s.elements(func() error {
			f, err := s.text()
			o.Finalizers = append(o.Finalizers, f)
			return err
		})
	case "ownerReferences":
		err = s.elements(func() error { return o.scanOwner(s) })
	case "deletionTimestamp":
		var text string
		if text, err = s.text(); err == nil {
			o.DeletionTime, err = time.Parse(time.RFC3339, text)
		}
	}
	if err != nil {
		return fmt.Errorf("metadata.%s: %w", key, err)
	}
	return nil
}

func (o *Object) scanOwner(s *jsonScanner) error {
	var w Owner
	var met seen
	err := s.members(func(key []byte, _ int) (err error) {
		if err := met.once(key); err != nil {
			return err
		}
		switch string(key) {
		case "apiVersion":
			w.APIVersion, err = s.text()
		case "kind":
			w.Kind, err = s.text()
		case "name":
			w.Name, err = s.text()
		case "uid":
			w.UID, err = s.text()
		case "controller":
			w.Controller, err = s.boolean()
		case "blockOwnerDeletion":
			w.BlockDeletion, err = s.boolean()
		default:
			err = s.skip()
		}
		return err
	})
	o.Owners = append(o.Owners, w)
	return err
}

// boolean consumes true, false or null, which is false.
func (s *jsonScanner) boolean() (bool, error) {
	switch c := s.peek(); c {
	case 't', 'f', 'n':
		return c == 't', s.scalar()
	}
	return false, s.fail("expected a boolean")
}

// revision consumes a resourceVersion: a string of digits, empty or null.
func (s *jsonScanner) revision() (int64, error) {
	if s.null() {
		return 0, nil
	}
	text, err := s.text()
	if err != nil || text == "" {
		return 0, err
	}
	rev, err := strconv.ParseInt(text, 10, 64)
	if err != nil || rev < 0 {
		return 0, fmt.Errorf("metadata.resourceVersion: not a revision: %q", text)
	}
	return rev, nil
}
