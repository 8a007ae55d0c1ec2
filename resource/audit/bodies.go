package audit

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
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

// Refer adds the name of an object that is created or updated to the event of the request,
// if it is audited at level Metadata. At higher levels bodies are recorded. Safe for
// concurrent use.
func Refer(ctx context.Context, object metav1.Object) {
	if q, ok := ctx.Value(requestKey{}).(*Request); ok && q.config.Level == auditapi.LevelMetadata {
		q.refer(auditapi.ObjectReference{
			Namespace: object.GetNamespace(), Name: object.GetName(), UID: object.GetUID(), ResourceVersion: object.GetResourceVersion(),
		})
	}
}

// refer fills the empty fields of the request's object.
func (q *Request) refer(object auditapi.ObjectReference) {
	if known := q.object.Load(); known != nil {
		merged := *known
		fill(&merged, &object)
		object = merged
	}
	q.object.Store(&object)
}

// fill fills the empty fields of a reference.
func fill(ref, from *auditapi.ObjectReference) {
	ref.Namespace, ref.Name = cmp.Or(ref.Namespace, from.Namespace), cmp.Or(ref.Name, from.Name)
	ref.UID, ref.ResourceVersion = cmp.Or(ref.UID, from.UID), cmp.Or(ref.ResourceVersion, from.ResourceVersion)
}

// eventSink adds the object of the request to its events.
type eventSink struct {
	audit.Sink
	object *atomic.Pointer[auditapi.ObjectReference]
}

// ProcessEvents implements audit.Sink.
func (s eventSink) ProcessEvents(events ...*auditapi.Event) bool {
	object := s.object.Load()
	for _, e := range events {
		if e.ObjectRef != nil && object != nil {
			fill(e.ObjectRef, object)
		}
	}
	return s.Sink.ProcessEvents(events...)
}

// convert converts a recorded body with read for the event; nil, with an annotation, if
// that is not possible.
func (q *Request) convert(name string, data []byte, lost bool, h http.Header, read func([]byte, http.Header) ([]byte, error)) []byte {
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
	sent := q.convert("requestObject", data, lost, q.header, sentToJSON)
	if sent == nil {
		return
	}
	if q.action.Verb == "create" || q.action.Verb == "update" {
		q.name(sent)
	}
	q.event.LogRequestPatch(sent)
}

// name fills the event's ObjectRef from an object.
func (q *Request) name(object []byte) {
	o, err := resource.Parse(object)
	if err != nil || o.Name == "" {
		return
	}
	ref := auditapi.ObjectReference{Namespace: o.Namespace, Name: o.Name, UID: types.UID(o.UID)}
	if o.Revision != 0 {
		ref.ResourceVersion = strconv.FormatInt(o.Revision, 10)
	}
	q.refer(ref)
}

// nameCreated adds the name of a created object to the event, or an annotation if the
// response cannot be read.
func (q *Request) nameCreated(data []byte, lost bool) {
	object, err := data, error(nil)
	switch mediaType := mediaTypeOf(q.responseHeader.Get("Content-Type")); {
	case q.responseHeader["Content-Encoding"] != nil, mediaType == runtime.ContentTypeProtobuf, mediaType == runtime.ContentTypeCBOR:
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
		object = q.convert("responseObject", data, lost, q.responseHeader, responseToJSON)
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
