package audit

import (
	"context"
	"io"
	"net/http"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	auditapi "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"

	"portico/resource"
	"portico/resource/bodylimit"
)

// annotationUnread names the objects that are missing from an event because their format
// cannot be read.
const annotationUnread = "audit.portico.dev/unread"

// Annotate adds an annotation to the event of the request whose context it is, if it is
// audited; the first of a key counts. Safe for concurrent use.
func Annotate(ctx context.Context, key, value string) { audit.AddAuditAnnotation(ctx, key, value) }

// object converts a recorded body with read for the event; nil, with an annotation, if
// that is not possible.
func (q *Request) object(name string, data []byte, lost bool, h http.Header, read func([]byte, http.Header) ([]byte, error)) []byte {
	if lost {
		q.Annotate(annotationTruncated, "true")
		return nil
	}
	if len(data) == 0 {
		return nil
	}
	object, err := read(data, h)
	switch {
	case bodylimit.TooLarge(err):
		q.Annotate(annotationTruncated, "true")
		return nil
	case err != nil:
		q.Annotate(annotationUnread, name)
		return nil
	}
	if q.config.OmitManagedFields {
		object = withoutManagedFields(object)
	}
	return object
}

// noteRequest adds the body of the request to the event, and the fields of ObjectRef that
// the path does not have.
func (q *Request) noteRequest() {
	if q.body == nil {
		return
	}
	data, lost := q.body.end()
	object := q.object("requestObject", data, lost, q.header, sentToJSON)
	if object == nil {
		return
	}
	q.sent = object
	if q.action.Verb == "create" || q.action.Verb == "update" {
		q.name(object)
	}
}

// nameCreated adds the name of a created object to the event, or an annotation if the
// response cannot be read.
func (q *Request) nameCreated(data []byte, lost bool) {
	object, err := data, error(nil)
	if q.answerHeader["Content-Encoding"] != nil || mediaTypeOf(q.answerHeader.Get("Content-Type")) == runtime.ContentTypeProtobuf {
		object, err = responseToJSON(data, q.answerHeader)
	}
	if lost || err != nil {
		q.Annotate(annotationUnread, "objectRef")
		return
	}
	q.name(object)
}

// name fills the event's ObjectRef from an object.
func (q *Request) name(object []byte) {
	o, err := resource.Parse(object)
	if err != nil || o.Name == "" {
		return
	}
	if q.ref == nil {
		q.ref = &auditapi.ObjectReference{}
	}
	refine(q.ref, &auditapi.ObjectReference{Namespace: o.Namespace, Name: o.Name, UID: types.UID(o.UID), ResourceVersion: revision(o)})
}

// revision returns the resourceVersion of an object.
func revision(o *resource.Object) string {
	if o.Revision == 0 {
		return ""
	}
	return strconv.FormatInt(o.Revision, 10)
}

// noteResponse adds the body of the response to the event: a Status at any level, other
// objects if the policy asks for them.
func (q *Request) noteResponse() {
	if q.answer == nil {
		return
	}
	data, lost := q.answer.end()
	var object []byte
	switch q.wanted {
	case wantObject:
		object = q.object("responseObject", data, lost, q.answerHeader, responseToJSON)
	case wantStatus:
		object, _ = responseToJSON(data, q.answerHeader) // plain text is not a Status
	case wantName:
		q.nameCreated(data, lost)
	case wantIssued:
		// A response that cannot be read adds no token id.
		issued, _ := responseToJSON(data, q.answerHeader)
		q.noteIssued(issued)
	}
	if object == nil {
		return
	}
	if q.creates() {
		q.name(object)
	}
	if q.issues() {
		q.noteIssued(object)
	}
	if s := statusOf(object); s != nil {
		q.status = &metav1.Status{Status: s.Status, Message: s.Message, Reason: s.Reason, Details: s.Details, Code: s.Code}
	}
	if q.wanted == wantObject {
		q.answered = object
	}
}

// Refer adds the name of an object that is created or updated to the event of the request,
// if it is audited.
func Refer(ctx context.Context, action *resource.Action, object metav1.Object) {
	if ac := audit.AuditContextFrom(ctx); !ac.Enabled() || ac.GetEventLevel() != auditapi.LevelMetadata {
		return
	}
	gv := schema.GroupVersion{Group: action.Group, Version: action.Version}
	shown := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Namespace: object.GetNamespace(), Name: object.GetName(), UID: object.GetUID(), ResourceVersion: object.GetResourceVersion(),
	}}
	audit.LogRequestObject(ctx, shown, gv, gv.WithResource(action.Resource), action.Subresource, unencoded{})
}

// unencoded is a serializer that writes nothing: upstream requires one to record an
// object's name.
type unencoded struct{}

var _ runtime.NegotiatedSerializer = unencoded{}

// SupportedMediaTypes implements runtime.NegotiatedSerializer.
func (unencoded) SupportedMediaTypes() []runtime.SerializerInfo {
	return []runtime.SerializerInfo{{MediaType: runtime.ContentTypeJSON}}
}

// EncoderForVersion implements runtime.NegotiatedSerializer.
func (u unencoded) EncoderForVersion(runtime.Encoder, runtime.GroupVersioner) runtime.Encoder {
	return u
}

// DecoderToVersion implements runtime.NegotiatedSerializer; it is not called.
func (unencoded) DecoderToVersion(d runtime.Decoder, _ runtime.GroupVersioner) runtime.Decoder {
	return d
}

// Encode implements runtime.Encoder.
func (unencoded) Encode(runtime.Object, io.Writer) error { return nil }

// Identifier implements runtime.Encoder.
func (unencoded) Identifier() runtime.Identifier { return "unencoded" }
