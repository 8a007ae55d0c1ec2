package resource

import (
	"bytes"
	"fmt"
	"strconv"
)

// layout holds where the parts of Data stand that are rewritten when the
// revision changes. Offsets are into Data.
type layout struct {
	// meta is the body of metadata: JSON, what stands between its braces;
	// protobuf, the message. metaEnd 0 means there is no metadata.
	meta, metaEnd int
	// rev is the whole resourceVersion member (JSON: key and value; protobuf:
	// tag and value). revEnd 0 means there is none.
	rev, revEnd int
	// raw and rawEnd are the message inside the protobuf envelope; metaTag is
	// where the tag of its metadata field stands.
	raw, rawEnd, metaTag int
}

// protobufMagic opens the Kubernetes protobuf envelope
// (k8s.io/apimachinery runtime/serializer/protobuf).
var protobufMagic = []byte("k8s\x00")

// Parse scans the bytes of one object: JSON, or protobuf if they open with its
// magic. It fills the header and validates the syntax of JSON, but not the
// types of fields it does not read. The Object keeps data; the caller must not
// change it. Errors say what is wrong and where; they are not StatusErrors.
func Parse(data []byte) (*Object, error) {
	if bytes.HasPrefix(data, protobufMagic) {
		o := &Object{Encoding: Protobuf, Data: data}
		if err := o.scanProtobuf(); err != nil {
			return nil, fmt.Errorf("scan protobuf object: %w", err)
		}
		return o, nil
	}
	o := &Object{Encoding: JSON, Data: data}
	if err := o.scanJSON(); err != nil {
		return nil, fmt.Errorf("scan JSON object: %w", err)
	}
	return o, nil
}

// WithRevision returns the object as of a revision: metadata.resourceVersion
// in its bytes and Revision in its header. With 0 both are without. If that is
// what the object already says, it returns the object itself.
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

// Stored returns the bytes as they are written to etcd: without
// metadata.resourceVersion.
func (o *Object) Stored() []byte {
	return o.WithRevision(0).Data
}

// Message returns the protobuf message inside the envelope of a
// Protobuf-encoded object (the Go type's own message); nil for JSON.
func (o *Object) Message() []byte {
	if o.Encoding != Protobuf {
		return nil
	}
	return o.Data[o.layout.raw:o.layout.rawEnd]
}

// spliceJSON returns Data with the resourceVersion member replaced, added or
// (rev 0) taken out.
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
	case l.revEnd != 0: // take out, with one of the commas beside it
		start, end := cutMember(o.Data, l)
		return o.replaceMember(start, end, nil, 0)
	case rev != 0: // add, in front
		n := len(member)
		if !blank(o.Data[l.meta:l.metaEnd]) {
			member = append(member, ',')
		}
		return o.replaceMember(l.meta, l.meta, member, n)
	}
	return o.Data, l
}

// replaceMember puts with in the place of Data[start:end], which lies inside
// metadata; its first n bytes are the resourceVersion member.
func (o *Object) replaceMember(start, end int, with []byte, n int) ([]byte, layout) {
	data := make([]byte, 0, len(o.Data)-(end-start)+len(with))
	data = append(data, o.Data[:start]...)
	data = append(data, with...)
	data = append(data, o.Data[end:]...)
	l := o.layout
	l.metaEnd += len(with) - (end - start)
	l.rev, l.revEnd = 0, 0
	if n > 0 {
		l.rev, l.revEnd = start, start+n
	}
	return data, l
}

// insertMetadata adds a metadata member to an object that has none.
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
	l := layout{meta: open + len(head)}
	l.metaEnd = l.meta + len(member)
	l.rev, l.revEnd = l.meta, l.metaEnd
	return data, l
}

// cutMember widens the resourceVersion member by the comma that goes with it.
func cutMember(data []byte, l layout) (start, end int) {
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
