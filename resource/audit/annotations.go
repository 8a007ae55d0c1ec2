package audit

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"

	auditapi "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
)

// HeaderAnnotations is a header between the gateway and the core or the CRD server. In a request its
// value is the level of the gateway's event, and asks for the audit annotations that the server adds.
// In the response its value is a JSON object of them in base64: they may have any character. The
// gateway removes it from requests of clients and from all responses, and the server from what it
// sends on.
const HeaderAnnotations = "X-Portico-Audit-Annotations"

const (
	// maxAnnotations is the maximum length of the keys and values in the header of a response, in
	// bytes, but for annotationTruncated (see shorten).
	maxAnnotations    = 64 << 10
	annotationOmitted = "(omitted: too long)"
	// patchAnnotation begins the keys of annotations that have patches of webhooks. kube-apiserver adds
	// them at level Request.
	patchAnnotation = "patch.webhook.admission.k8s.io/"
)

// Annotate adds an annotation to the event of the request of the context, if it is audited; the first
// value of a key is kept. Safe for concurrent use.
func Annotate(ctx context.Context, key, value string) { audit.AddAuditAnnotation(ctx, key, value) }

// NewAnnotations returns a Request that collects annotations for PutAnnotations and records no event. The
// gateway records the event, at the level.
func NewAnnotations(level string) *Request {
	ctx := audit.WithAuditContext(context.Background())
	q := &Request{ctx: ctx, event: audit.AuditContextFrom(ctx), annotationsOnly: true}
	_ = q.event.Init(audit.RequestAuditConfig{Level: levelOf(level)}, nil) // fails for an initialized event only
	return q
}

// levelOf returns the level in a HeaderAnnotations; an unknown one is Metadata.
func levelOf(text string) auditapi.Level {
	switch level := auditapi.Level(text); level {
	case auditapi.LevelRequest, auditapi.LevelRequestResponse:
		return level
	}
	return auditapi.LevelMetadata
}

// PutAnnotations sets HeaderAnnotations in the header of a response to a gateway that asked with a
// level. It leaves out what the gateway adds itself, and what it may not record at its level.
func (q *Request) PutAnnotations(h http.Header, level string) {
	delete(h, HeaderAnnotations)
	annotations, size := q.event.GetEventAnnotations(), 0
	for key, value := range annotations {
		patch := strings.HasPrefix(key, patchAnnotation) && levelOf(level) == auditapi.LevelMetadata
		if patch || strings.HasPrefix(key, "authorization.k8s.io/") {
			delete(annotations, key)
			continue
		}
		size += len(key) + len(value)
	}
	shorten(annotations, size)
	if data, err := json.Marshal(annotations); err == nil && len(annotations) > 0 {
		h[HeaderAnnotations] = []string{base64.StdEncoding.EncodeToString(data)}
	}
}

// shorten brings annotations of size bytes to maxAnnotations: it replaces the longest values, and if that
// is not enough removes annotations, with annotationTruncated in their place.
func shorten(annotations map[string]string, size int) {
	if size <= maxAnnotations {
		return
	}
	keys := slices.SortedFunc(maps.Keys(annotations), func(a, b string) int { return len(annotations[b]) - len(annotations[a]) })
	for _, key := range keys {
		if saved := len(annotations[key]) - len(annotationOmitted); size > maxAnnotations && saved > 0 {
			annotations[key] = annotationOmitted
			size -= saved
		}
	}
	for _, key := range keys {
		if size <= maxAnnotations {
			return
		}
		size -= len(key) + len(annotations[key])
		delete(annotations, key)
		annotations[annotationTruncated] = "true"
	}
}

// RequestAnnotations sets HeaderAnnotations in the header of a request to the core or the CRD server, if
// the request of ctx is audited.
func RequestAnnotations(ctx context.Context, h http.Header) {
	if q, ok := ctx.Value(requestKey{}).(*Request); ok {
		h[HeaderAnnotations] = []string{string(q.config.Level)}
	}
}

// AddAnnotations adds the annotations in the header of a response to the event of the request of ctx. It
// does nothing if the request is not audited or the header is malformed. Safe for concurrent use.
func AddAnnotations(ctx context.Context, h http.Header) {
	q, ok := ctx.Value(requestKey{}).(*Request)
	if !ok || len(h[HeaderAnnotations]) != 1 {
		return
	}
	var annotations map[string]string
	data, err := base64.StdEncoding.DecodeString(h[HeaderAnnotations][0])
	if err == nil && json.Unmarshal(data, &annotations) == nil {
		audit.AddAuditAnnotationsMap(q.ctx, annotations)
	}
}
