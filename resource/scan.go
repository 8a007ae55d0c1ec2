package resource

import (
	"bytes"
	"fmt"
	"strconv"
)

// layout has the offsets into Data of the parts that depend on the revision. They have 32 bits because there may be
// millions of objects in memory; an object has some megabytes at most.
type layout struct {
	// meta and metaEnd enclose metadata: in JSON the text between the braces, in protobuf the
	// message. metaEnd 0: there is none.
	meta, metaEnd int32
	// rev and revEnd enclose resourceVersion (JSON: key and value; protobuf: tag and value).
	// revEnd 0: there is none.
	rev, revEnd int32
	// raw and rawEnd enclose the message in the protobuf envelope; metaTag is the offset of
	// the tag of its metadata field.
	raw, rawEnd, metaTag int32
}

// protobufMagic is the prefix of the Kubernetes protobuf envelope
// (k8s.io/apimachinery runtime/serializer/protobuf).
var protobufMagic = []byte("k8s\x00")

// Parse scans the bytes of one object: protobuf if they begin with its magic, otherwise JSON.
// It sets the header and validates the syntax of JSON, but not the types of fields that are
// not in the header. The Object keeps data, which must not be changed. Errors are not
// StatusErrors.
func Parse(data []byte) (*Object, error) { return ParseAt("", data) }

// ParseAt is Parse of an object with a storage path. What the header has in common with the path, such as name and
// namespace, shares its memory.
func ParseAt(path string, data []byte) (*Object, error) {
	if bytes.HasPrefix(data, protobufMagic) {
		o := &Object{Encoding: Protobuf, Data: data}
		if err := o.scanProtobuf(); err != nil {
			return nil, fmt.Errorf("scan protobuf object: %w", err)
		}
		return o, nil
	}
	o := &Object{Encoding: JSON, Data: data}
	if err := o.scanJSON(path); err != nil {
		return nil, fmt.Errorf("scan JSON object: %w", err)
	}
	return o, nil
}

// WithRevision returns the object with metadata.resourceVersion in its bytes and Revision in
// its header set to rev; with 0 both are removed. It returns the object itself if it has that
// revision.
func (o *Object) WithRevision(rev int64) *Object {
	if o.Revision == rev && (o.layout.revEnd != 0) == (rev != 0) {
		return o
	}
	var data []byte
	var l layout
	if o.Encoding == Protobuf {
		data, l = o.spliceProtobuf(rev)
	} else {
		data, l = o.spliceJSON(rev)
	}
	next := &Object{Header: o.Header, Encoding: o.Encoding, Data: data, layout: l}
	next.Revision = rev
	if m := o.fields.Load(); m != nil {
		next.fields.Store(m)
	}
	if c := o.canonical.Load(); c != nil && c.canonical && o.layout.metaEnd != 0 {
		// No schema applies to metadata.resourceVersion.
		next.canonical.Store(c)
	}
	return next
}

// Stored returns the bytes as they are stored in etcd, without metadata.resourceVersion.
func (o *Object) Stored() []byte {
	return o.WithRevision(0).Data
}

// Message returns the message in the protobuf envelope; nil for JSON.
func (o *Object) Message() []byte {
	if o.Encoding != Protobuf {
		return nil
	}
	return o.Data[o.layout.raw:o.layout.rawEnd]
}

// spliceJSON returns Data with the resourceVersion member replaced, added or (rev 0) removed.
func (o *Object) spliceJSON(rev int64) ([]byte, layout) {
	l := o.layout
	var member []byte
	if rev != 0 {
		member = append(member, `"resourceVersion":"`...)
		member = strconv.AppendInt(member, rev, 10)
		member = append(member, '"')
	}
	switch {
	case l.metaEnd == 0:
		if rev == 0 {
			return o.Data, l
		}
		return o.insertMetadata(member)
	case l.revEnd != 0 && rev != 0: // replace
		return o.replaceMember(l.rev, l.revEnd, member, len(member))
	case l.revEnd != 0: // remove it with one comma
		start, end := cutMember(o.Data, l)
		return o.replaceMember(start, end, nil, 0)
	case rev != 0: // add it as the first member
		n := len(member)
		if !blank(o.Data[l.meta:l.metaEnd]) {
			member = append(member, ',')
		}
		return o.replaceMember(l.meta, l.meta, member, n)
	}
	return o.Data, l
}

// replaceMember replaces Data[start:end], a part of metadata, by with; its first n bytes are
// the resourceVersion member.
func (o *Object) replaceMember(start, end int32, with []byte, n int) ([]byte, layout) {
	data := make([]byte, 0, len(o.Data)-int(end-start)+len(with))
	data = append(data, o.Data[:start]...)
	data = append(data, with...)
	data = append(data, o.Data[end:]...)
	l := o.layout
	l.metaEnd += int32(len(with)) - (end - start)
	l.rev, l.revEnd = 0, 0
	if n > 0 {
		l.rev, l.revEnd = start, start+int32(n)
	}
	return data, l
}

// insertMetadata adds metadata to an object without it.
func (o *Object) insertMetadata(member []byte) ([]byte, layout) {
	open := bytes.IndexByte(o.Data, '{') + 1
	const head = `"metadata":{`
	data := make([]byte, 0, len(o.Data)+len(head)+len(member)+2)
	data = append(data, o.Data[:open]...)
	data = append(data, head...)
	data = append(data, member...)
	data = append(data, '}')
	if rest := o.Data[open:]; !blank(rest[:bytes.LastIndexByte(rest, '}')]) {
		data = append(data, ',')
	}
	data = append(data, o.Data[open:]...)
	l := layout{meta: int32(open + len(head))}
	l.metaEnd = l.meta + int32(len(member))
	l.rev, l.revEnd = l.meta, l.metaEnd
	return data, l
}

// cutMember returns the range of the resourceVersion member with one adjacent comma.
func cutMember(data []byte, l layout) (start, end int32) {
	start, end = l.rev, l.revEnd
	for i := end; i < l.metaEnd; i++ {
		if data[i] == ',' {
			return start, i + 1
		}
		if !isSpace(data[i]) {
			break
		}
	}
	for i := start - 1; i >= l.meta; i-- {
		if data[i] == ',' {
			return i, end
		}
		if !isSpace(data[i]) {
			break
		}
	}
	return start, end
}

func blank(b []byte) bool {
	for _, c := range b {
		if !isSpace(c) {
			return false
		}
	}
	return true
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }
