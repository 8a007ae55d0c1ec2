package resource

import (
	"errors"
	"fmt"
	"strconv"
	"time"
	"unique"

	"google.golang.org/protobuf/encoding/protowire"
)

// Field numbers of k8s.io/apimachinery runtime/generated.proto (Unknown,
// TypeMeta) and meta/v1 generated.proto (ObjectMeta, OwnerReference, Time).
// Every top-level kind has its ObjectMeta in field 1.
const (
	unknownTypeMeta = 1
	unknownRaw      = 2

	typeMetaAPIVersion = 1
	typeMetaKind       = 2

	objectMetadata = 1

	metaName         = 1
	metaNamespace    = 3
	metaUID          = 5
	metaRevision     = 6
	metaGeneration   = 7
	metaDeletionTime = 9
	metaLabels       = 11
	metaOwners       = 13
	metaFinalizers   = 14
)

// protobufField is one field of a message; positions are absolute in Data.
type protobufField struct {
	number     protowire.Number
	wire       protowire.Type
	start      int // of the tag
	value, end int // of the value, without its length
	varint     uint64
}

// protobufFields walks the fields of the message data[from:to].
func protobufFields(data []byte, from, to int, each func(f protobufField) error) error {
	for pos := from; pos < to; {
		f := protobufField{start: pos}
		var n int
		f.number, f.wire, n = protowire.ConsumeTag(data[pos:to])
		if n < 0 {
			return fmt.Errorf("bad tag at byte %d: %w", pos, protowire.ParseError(n))
		}
		pos += n
		f.value = pos
		switch f.wire {
		case protowire.VarintType:
			f.varint, n = protowire.ConsumeVarint(data[pos:to])
		case protowire.BytesType:
			var b []byte
			b, n = protowire.ConsumeBytes(data[pos:to])
			f.value = pos + n - len(b)
		default:
			n = protowire.ConsumeFieldValue(f.number, f.wire, data[pos:to])
		}
		if n < 0 {
			return fmt.Errorf("bad field %d at byte %d: %w", f.number, pos, protowire.ParseError(n))
		}
		pos += n
		f.end = pos
		if err := each(f); err != nil {
			return err
		}
	}
	return nil
}

// is returns an error for a known field of another wire type, which decoders treat
// differently.
func (f protobufField) is(wire protowire.Type) error {
	if f.wire != wire {
		return fmt.Errorf("field %d at byte %d has wire type %d, want %d", f.number, f.start, f.wire, wire)
	}
	return nil
}

// scanProtobuf sets header and layout from the envelope.
func (o *Object) scanProtobuf() error {
	err := protobufFields(o.Data, len(protobufMagic), len(o.Data), func(f protobufField) error {
		switch f.number {
		case unknownTypeMeta:
			if err := f.is(protowire.BytesType); err != nil {
				return err
			}
			return o.scanTypeMeta(f.value, f.end)
		case unknownRaw:
			if o.layout.raw != 0 {
				return errors.New("envelope has two bodies")
			}
			o.layout.raw, o.layout.rawEnd = int32(f.value), int32(f.end)
			return f.is(protowire.BytesType)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if o.layout.raw == 0 {
		return errors.New("envelope has no body")
	}
	l := &o.layout
	return protobufFields(o.Data, int(l.raw), int(l.rawEnd), func(f protobufField) error {
		if f.number != objectMetadata {
			return nil
		}
		if l.metaTag != 0 {
			return errors.New("object has two metadata fields")
		}
		if err := f.is(protowire.BytesType); err != nil {
			return err
		}
		l.metaTag, l.meta, l.metaEnd = int32(f.start), int32(f.value), int32(f.end)
		err := protobufFields(o.Data, f.value, f.end, o.scanMetaField)
		o.Labels = o.Labels.sorted()
		return err
	})
}

func (o *Object) scanTypeMeta(from, to int) error {
	return protobufFields(o.Data, from, to, func(f protobufField) (err error) {
		switch f.number {
		case typeMetaAPIVersion:
			o.APIVersion, err = o.commonText(f)
		case typeMetaKind:
			o.Kind, err = o.commonText(f)
		}
		return err
	})
}

// text returns the value of a string field.
func (o *Object) text(f protobufField) (string, error) {
	return string(o.Data[f.value:f.end]), f.is(protowire.BytesType)
}

// commonText is text for a string that many objects have.
func (o *Object) commonText(f protobufField) (string, error) {
	text, err := o.text(f)
	return unique.Make(text).Value(), err
}

func (o *Object) scanMetaField(f protobufField) (err error) {
	switch f.number {
	case metaName:
		o.Name, err = o.text(f)
	case metaNamespace:
		o.Namespace, err = o.text(f)
	case metaUID:
		o.UID, err = o.text(f)
	case metaGeneration:
		o.Generation, err = int64(f.varint), f.is(protowire.VarintType)
	case metaRevision:
		return o.scanRevision(f)
	case metaDeletionTime:
		return o.scanDeletionTime(f)
	case metaLabels:
		return o.scanLabel(f)
	case metaOwners:
		return o.scanProtobufOwner(f)
	case metaFinalizers:
		var finalizer string
		finalizer, err = o.text(f)
		o.Finalizers = append(o.Finalizers, finalizer)
	}
	return err
}

func (o *Object) scanRevision(f protobufField) error {
	if o.layout.revEnd != 0 {
		return errors.New("metadata has two resource versions")
	}
	o.layout.rev, o.layout.revEnd = int32(f.start), int32(f.end)
	text, err := o.text(f)
	if err != nil || text == "" {
		return err
	}
	if o.Revision, err = strconv.ParseInt(text, 10, 64); err != nil || o.Revision < 0 {
		return fmt.Errorf("metadata.resourceVersion: not a revision: %q", text)
	}
	return nil
}

// scanDeletionTime scans a time. An empty message is the zero time.
func (o *Object) scanDeletionTime(f protobufField) error {
	if err := f.is(protowire.BytesType); err != nil {
		return err
	}
	o.SetDeletionTime(time.Time{})
	if f.value == f.end {
		return nil
	}
	var sec int64
	err := protobufFields(o.Data, f.value, f.end, func(f protobufField) error {
		if f.number != 1 {
			return nil
		}
		sec = int64(f.varint)
		return f.is(protowire.VarintType)
	})
	o.SetDeletionTime(time.Unix(sec, 0))
	return err
}

func (o *Object) scanLabel(f protobufField) error {
	if err := f.is(protowire.BytesType); err != nil {
		return err
	}
	var key, value string
	err := protobufFields(o.Data, f.value, f.end, func(f protobufField) (err error) {
		switch f.number {
		case 1:
			key, err = o.text(f)
		case 2:
			value, err = o.text(f)
		}
		return err
	})
	o.Labels = append(o.Labels, Label{key, value})
	return err
}

func (o *Object) scanProtobufOwner(f protobufField) error {
	if err := f.is(protowire.BytesType); err != nil {
		return err
	}
	var w Owner
	err := protobufFields(o.Data, f.value, f.end, func(f protobufField) (err error) {
		switch f.number {
		case 1:
			w.Kind, err = o.text(f)
		case 3:
			w.Name, err = o.text(f)
		case 4:
			w.UID, err = o.text(f)
		case 5:
			w.APIVersion, err = o.text(f)
		case 6:
			w.Controller, err = f.varint != 0, f.is(protowire.VarintType)
		case 7:
			w.BlockDeletion, err = f.varint != 0, f.is(protowire.VarintType)
		}
		return err
	})
	o.Owners = append(o.Owners, w)
	return err
}

// spliceProtobuf returns Data with the resourceVersion field replaced, added or (rev 0)
// removed, and with the lengths that include it.
func (o *Object) spliceProtobuf(rev int64) ([]byte, layout) {
	l := o.layout
	var member []byte
	if rev != 0 {
		member = protowire.AppendTag(member, metaRevision, protowire.BytesType)
		member = protowire.AppendString(member, strconv.FormatInt(rev, 10))
	}
	if l.revEnd == 0 && rev == 0 {
		return o.Data, l
	}
	before, after := o.Data[l.meta:l.metaEnd], []byte(nil)
	tag, metaEnd := l.metaTag, l.metaEnd
	if l.revEnd != 0 {
		before, after = o.Data[l.meta:l.rev], o.Data[l.revEnd:l.metaEnd]
	}
	if l.metaTag == 0 { // no metadata: it becomes the first field of the message
		before, tag, metaEnd = nil, l.raw, l.raw
	}
	metaLen := len(before) + len(member) + len(after)
	head := protowire.AppendVarint(protowire.AppendTag(nil, objectMetadata, protowire.BytesType), uint64(metaLen))
	rawLen := int(tag-l.raw) + len(head) + metaLen + int(l.rawEnd-metaEnd)

	envelope := o.envelopeBefore()
	data := make([]byte, 0, len(envelope)+rawLen+12+len(o.Data)-int(l.rawEnd))
	data = append(data, envelope...)
	data = protowire.AppendTag(data, unknownRaw, protowire.BytesType)
	data = protowire.AppendVarint(data, uint64(rawLen))
	next := layout{raw: int32(len(data))}
	data = append(data, o.Data[l.raw:tag]...)
	next.metaTag = int32(len(data))
	data = append(data, head...)
	next.meta = int32(len(data))
	data = append(data, before...)
	if len(member) > 0 {
		next.rev, next.revEnd = int32(len(data)), int32(len(data)+len(member))
		data = append(data, member...)
	}
	data = append(data, after...)
	next.metaEnd = int32(len(data))
	data = append(data, o.Data[metaEnd:l.rawEnd]...)
	next.rawEnd = int32(len(data))
	return append(data, o.Data[l.rawEnd:]...), next
}

// envelopeBefore returns the envelope up to the tag of its body.
func (o *Object) envelopeBefore() []byte {
	end := len(protobufMagic)
	// scanProtobuf has checked the envelope, so that this cannot fail.
	_ = protobufFields(o.Data, len(protobufMagic), int(o.layout.rawEnd), func(f protobufField) error {
		if f.number == unknownRaw {
			end = f.start
		}
		return nil
	})
	return o.Data[:end]
}
