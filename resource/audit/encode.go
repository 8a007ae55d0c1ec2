package audit

import (
	"encoding/json"
	"slices"
	"strconv"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	auditapi "k8s.io/apiserver/pkg/apis/audit"
)

// appendEvent appends an event as a line of JSON, byte by byte as upstream's
// encoder has it. There is an event for every request, and the encoder, which
// finds its way by reflection, takes as long as the rest of audit together.
func appendEvent(b []byte, e *auditapi.Event) ([]byte, error) {
	b = append(b, `{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":`...)
	b = appendString(b, string(e.Level))
	b = appendString(append(b, `,"auditID":`...), string(e.AuditID))
	b = appendString(append(b, `,"stage":`...), string(e.Stage))
	b = appendString(append(b, `,"requestURI":`...), e.RequestURI)
	b = appendString(append(b, `,"verb":`...), e.Verb)
	b = appendUser(append(b, `,"user":`...), &e.User)
	if e.ImpersonatedUser != nil {
		b = appendUser(append(b, `,"impersonatedUser":`...), e.ImpersonatedUser)
	}
	if m := e.AuthenticationMetadata; m != nil {
		b = appendMembers(append(b, `,"authenticationMetadata":`...), member{"impersonationConstraint", m.ImpersonationConstraint})
	}
	b = appendList(b, `,"sourceIPs":`, e.SourceIPs)
	if e.UserAgent != "" {
		b = appendString(append(b, `,"userAgent":`...), e.UserAgent)
	}
	if r := e.ObjectRef; r != nil {
		b = appendMembers(append(b, `,"objectRef":`...),
			member{"resource", r.Resource}, member{"namespace", r.Namespace}, member{"name", r.Name}, member{"uid", string(r.UID)},
			member{"apiGroup", r.APIGroup}, member{"apiVersion", r.APIVersion}, member{"resourceVersion", r.ResourceVersion}, member{"subresource", r.Subresource})
	}
	var err error
	if b, err = appendStatus(b, e.ResponseStatus); err != nil {
		return nil, err
	}
	if b, err = appendObject(b, `,"requestObject":`, e.RequestObject); err != nil {
		return nil, err
	}
	if b, err = appendObject(b, `,"responseObject":`, e.ResponseObject); err != nil {
		return nil, err
	}
	b = appendTime(append(b, `,"requestReceivedTimestamp":`...), e.RequestReceivedTimestamp)
	b = appendTime(append(b, `,"stageTimestamp":`...), e.StageTimestamp)
	if len(e.Annotations) > 0 {
		b = append(b, `,"annotations":`...)
		open, room := byte('{'), [8]string{}
		for _, k := range sortedKeys(room[:0], e.Annotations) {
			b = appendString(append(b, open), k)
			b = appendString(append(b, ':'), e.Annotations[k])
			open = ','
		}
		b = append(b, '}')
	}
	return append(b, '}', '\n'), nil
}

// member is one of an object's; an empty one is left out.
type member struct{ name, value string }

func appendMembers(b []byte, members ...member) []byte {
	b = append(b, '{')
	first := true
	for _, m := range members {
		if m.value == "" {
			continue
		}
		if !first {
			b = append(b, ',')
		}
		first = false
		b = append(append(append(b, '"'), m.name...), '"', ':')
		b = appendString(b, m.value)
	}
	return append(b, '}')
}

func appendUser(b []byte, u *authenticationv1.UserInfo) []byte {
	b = appendMembers(b, member{"username", u.Username}, member{"uid", u.UID})
	if len(u.Groups) == 0 && len(u.Extra) == 0 {
		return b
	}
	comma := `,`
	if b = b[:len(b)-1]; b[len(b)-1] == '{' {
		comma = ``
	}
	if len(u.Groups) > 0 {
		b = appendList(b, comma+`"groups":`, u.Groups)
		comma = `,`
	}
	if len(u.Extra) > 0 {
		b = append(append(b, comma...), `"extra":`...)
		open, room := byte('{'), [8]string{}
		for _, k := range sortedKeys(room[:0], u.Extra) {
			b = append(appendString(append(b, open), k), ':')
			switch values := u.Extra[k]; {
			case values == nil:
				b = append(b, `null`...)
			case len(values) == 0:
				b = append(b, `[]`...)
			default:
				b = appendList(b, ``, values)
			}
			open = ','
		}
		b = append(b, '}')
	}
	return append(b, '}')
}

// appendList appends strings under a name, if there are any.
func appendList(b []byte, name string, list []string) []byte {
	if len(list) == 0 {
		return b
	}
	b = append(b, name...)
	open := byte('[')
	for _, s := range list {
		b = appendString(append(b, open), s)
		open = ','
	}
	return append(b, ']')
}

// sortedKeys returns the keys of a map in the room for them, if they fit.
func sortedKeys[V any](room []string, m map[string]V) []string {
	for k := range m {
		room = append(room, k)
	}
	slices.Sort(room)
	return room
}

// appendStatus appends the status of the response: by hand the one of most, a
// code and nothing else.
func appendStatus(b []byte, s *metav1.Status) ([]byte, error) {
	if s == nil {
		return b, nil
	}
	b = append(b, `,"responseStatus":`...)
	if rest := *s; rest.Code != 0 {
		rest.Code = 0
		if rest == (metav1.Status{}) {
			b = append(b, `{"metadata":{},"code":`...)
			return append(strconv.AppendInt(b, int64(s.Code), 10), '}'), nil
		}
	}
	encoded, err := json.Marshal(s)
	return append(b, encoded...), err
}

// appendObject appends an object as it is: without space, and so that HTML can
// hold it.
func appendObject(b []byte, name string, object *runtime.Unknown) ([]byte, error) {
	if object == nil {
		return b, nil
	}
	encoded, err := json.Marshal(object)
	return append(append(b, name...), encoded...), err
}

func appendTime(b []byte, t metav1.MicroTime) []byte {
	if t.IsZero() {
		return append(b, `null`...)
	}
	return append(t.UTC().AppendFormat(append(b, '"'), metav1.RFC3339Micro), '"')
}

// appendString appends a string as encoding/json does, which is asked where there
// is more in it than ASCII.
func appendString(b []byte, s string) []byte {
	const hex = "0123456789abcdef"
	begun := len(b)
	b = append(b, '"')
	rest := 0 // where what is not appended yet begins
	for i := range len(s) {
		c := s[i]
		switch {
		case '>' < c && c < '\\', '\\' < c && c < 0x7f, '&' < c && c < '<':
			continue // most of them
		case c >= 0x7f, c < ' ':
			encoded, _ := json.Marshal(s) // a string never fails
			return append(b[:begun], encoded...)
		case c == '"', c == '\\':
			b = append(append(b, s[rest:i]...), '\\', c)
		case c == '<', c == '>', c == '&':
			b = append(append(b, s[rest:i]...), '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		default:
			continue
		}
		rest = i + 1
	}
	return append(append(b, s[rest:]...), '"')
}
