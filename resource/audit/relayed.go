package audit

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"

	auditapi "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
)

// HeaderAnnotations is the header by which the gateway asks the core and the CRD server for the
// annotations that admission adds to the audit event of a request, and by which they answer with a
// JSON object. Clients and other servers never get it.
const HeaderAnnotations = "X-Portico-Audit-Annotations"

// maxRelayed bounds the header of a response, in bytes.
const maxRelayed = 64 << 10

// Annotating returns a Request whose event is recorded by another server: it has annotations only,
// for Relay.
func Annotating() *Request {
	ctx := audit.WithAuditContext(context.Background())
	q := &Request{ctx: ctx, event: audit.AuditContextFrom(ctx), annotates: true}
	_ = q.event.Init(audit.RequestAuditConfig{Level: auditapi.LevelMetadata}, nil) // fails for an initialized event only
	return q
}

// Relay puts the annotations in the header of a response to the gateway, but for those that the
// gateway adds itself.
func (q *Request) Relay(h http.Header) {
	delete(h, HeaderAnnotations)
	annotations := q.event.GetEventAnnotations()
	for key := range annotations {
		if strings.HasPrefix(key, "authorization.k8s.io/") {
			delete(annotations, key)
		}
	}
	if len(annotations) == 0 {
		return
	}
	data, err := json.Marshal(annotations)
	if err != nil || len(data) > maxRelayed {
		data = []byte(`{"` + annotationTruncated + `":"true"}`)
	}
	h[HeaderAnnotations] = []string{string(data)}
}

// Ask asks for annotations in the header of a request to a server of the gateway, if the request of
// the context is audited.
func Ask(ctx context.Context, h http.Header) {
	if q, ok := ctx.Value(requestKey{}).(*Request); ok && q != nil {
		h[HeaderAnnotations] = []string{"1"}
	}
}

// Adopt adds the annotations in the header of the response to the event of the request of the
// context, if it is audited.
func Adopt(ctx context.Context, h http.Header) {
	q, ok := ctx.Value(requestKey{}).(*Request)
	if !ok || len(h[HeaderAnnotations]) != 1 {
		return
	}
	var annotations map[string]string
	if json.Unmarshal([]byte(h[HeaderAnnotations][0]), &annotations) == nil {
		audit.AddAuditAnnotationsMap(q.ctx, annotations)
	}
}
