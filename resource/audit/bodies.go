package audit

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	auditapi "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"

	"portico/resource"
	"portico/resource/bodylimit"
)

// annotationUnread names the objects that are missing from an event because their format
// cannot be read.
const annotationUnread = "audit.portico.dev/unread"

// Annotate adds an annotation to the event of the request of the context, if it is audited; the first value of a key is kept. Safe for concurrent use.
func Annotate(ctx context.Context, key, value string) { audit.AddAuditAnnotation(ctx, key, value) }

// Refer adds the name of an object that is created or updated to the event of the request,
// if it is audited at level Metadata. At higher levels bodies are recorded.
func Refer(ctx context.Context, action *resource.Action, object metav1.Object) {
	if ac := audit.AuditContextFrom(ctx); !ac.Enabled() || ac.GetEventLevel() != auditapi.LevelMetadata {
		return
	}
	refer(ctx, action, metav1.ObjectMeta{
		Namespace: object.GetNamespace(), Name: object.GetName(), UID: object.GetUID(), ResourceVersion: object.GetResourceVersion(),
	})
}

// refer fills the empty fields of the event's ObjectRef.
func refer(ctx context.Context, action *resource.Action, object metav1.ObjectMeta) {
	gv := schema.GroupVersion{Group: action.Group, Version: action.Version}
	audit.LogRequestObject(ctx, &metav1.PartialObjectMetadata{ObjectMeta: object}, gv, gv.WithResource(action.Resource), action.Subresource, noSerializer{})
}

// object converts a recorded body with read for the event; nil, with an annotation, if
// that is not possible.
func (q *Request) object(name string, data []byte, lost bool, h http.Header, read func([]byte, http.Header) ([]byte, error)) []byte {
	if len(data) == 0 && !lost {
		return nil
	}
	var object []byte
	var err error
	if !lost {
		object, err = read(data, h)
	}
	switch {
	case lost || bodylimit.TooLarge(err):
		q.Annotate(annotationTruncated, "true")
		return nil
	case err != nil:
		q.Annotate(annotationUnread, name)
		return nil
	case q.config.OmitManagedFields:
		return withoutManagedFields(object)
	}
	return object
}

// addRequestObject adds the body of the request to the event, and the fields of ObjectRef
// that the path does not have.
func (q *Request) addRequestObject() {
	if q.body == nil {
		return
	}
	data, lost := q.body.end()
	if q.sent = q.object("requestObject", data, lost, q.header, sentToJSON); q.sent == nil {
		return
	}
	if q.action.Verb == "create" || q.action.Verb == "update" {
		q.name(q.sent)
	}
	q.event.LogRequestPatch(q.sent)
}

// name fills the event's ObjectRef from an object.
func (q *Request) name(object []byte) {
	o, err := resource.Parse(object)
	if err != nil || o.Name == "" {
		return
	}
	meta := metav1.ObjectMeta{Namespace: o.Namespace, Name: o.Name, UID: types.UID(o.UID)}
	if o.Revision != 0 {
		meta.ResourceVersion = strconv.FormatInt(o.Revision, 10)
	}
	refer(q.ctx, q.action, meta)
	if q.sent != nil {
		q.event.LogRequestPatch(q.sent) // refer replaced it
	}
}

// nameCreated adds the name of a created object to the event, or an annotation if the
// response cannot be read.
func (q *Request) nameCreated(data []byte, lost bool) {
	object, err := data, error(nil)
	if q.responseHeader["Content-Encoding"] != nil || mediaTypeOf(q.responseHeader.Get("Content-Type")) == runtime.ContentTypeProtobuf {
		object, err = responseToJSON(data, q.responseHeader)
	}
	if lost || err != nil {
		q.Annotate(annotationUnread, "objectRef")
		return
	}
	q.name(object)
}

// addResponse adds the body of the response to the event: a Status at any level, other
// objects if the policy asks for them.
func (q *Request) addResponse() {
	if q.response == nil {
		return
	}
	data, lost := q.response.end()
	var object []byte
	switch q.wanted {
	case wantObject:
		object = q.object("responseObject", data, lost, q.responseHeader, responseToJSON)
	case wantStatus:
		object, _ = responseToJSON(data, q.responseHeader) // plain text is not a Status
	case wantName:
		q.nameCreated(data, lost)
	case wantIssued:
		// A response that cannot be read adds no token id.
		issued, _ := responseToJSON(data, q.responseHeader)
		q.addTokenID(issued)
	}
	if object == nil {
		return
	}
	if q.creates() {
		q.name(object)
	}
	if q.issues() {
		q.addTokenID(object)
	}
	q.event.LogResponseObject(statusOf(object), &runtime.Unknown{Raw: object, ContentType: runtime.ContentTypeJSON})
}

// issues reports whether the request is a TokenRequest of a service account.
func (q *Request) issues() bool {
	a := q.action
	return a.IsResource && a.Verb == "create" && a.Group == "" && a.Resource == "serviceaccounts" && a.Subresource == "token"
}

// addTokenID annotates the id of the token in a TokenRequest, in the form of the user extra
// authentication.kubernetes.io/credential-id. The id is not a secret.
func (q *Request) addTokenID(response []byte) {
	var request struct {
		Status struct{ Token string }
	}
	if json.Unmarshal(response, &request) != nil {
		return
	}
	parts := strings.Split(request.Status.Token, ".")
	if len(parts) != 3 {
		return
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return
	}
	var claims struct {
		ID string `json:"jti"`
	}
	if json.Unmarshal(payload, &claims) == nil && claims.ID != "" {
		q.Annotate(serviceaccount.IssuedCredentialIDAuditAnnotationKey, "JTI="+claims.ID)
	}
}

// noSerializer is a serializer that writes nothing: upstream requires one to record an
// object's name.
type noSerializer struct{}

var _ runtime.NegotiatedSerializer = noSerializer{}

// SupportedMediaTypes implements runtime.NegotiatedSerializer.
func (noSerializer) SupportedMediaTypes() []runtime.SerializerInfo {
	return []runtime.SerializerInfo{{MediaType: runtime.ContentTypeJSON}}
}

// EncoderForVersion implements runtime.NegotiatedSerializer.
func (n noSerializer) EncoderForVersion(runtime.Encoder, runtime.GroupVersioner) runtime.Encoder {
	return n
}

// DecoderToVersion implements runtime.NegotiatedSerializer; it is not called.
func (noSerializer) DecoderToVersion(d runtime.Decoder, _ runtime.GroupVersioner) runtime.Decoder {
	return d
}

// Encode implements runtime.Encoder.
func (noSerializer) Encode(runtime.Object, io.Writer) error { return nil }

// Identifier implements runtime.Encoder.
func (noSerializer) Identifier() runtime.Identifier { return "none" }

// eventSink removes the empty request object that noSerializer leaves.
type eventSink struct{ audit.Sink }

// ProcessEvents implements audit.Sink.
func (s eventSink) ProcessEvents(events ...*auditapi.Event) bool {
	for _, e := range events {
		if e.RequestObject != nil && len(e.RequestObject.Raw) == 0 {
			e.RequestObject = nil
		}
	}
	return s.Sink.ProcessEvents(events...)
}
