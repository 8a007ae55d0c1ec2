package audit

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	auditapi "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
)

// Every event is, byte by byte, what upstream's encoder makes of it.
func TestAppendEvent(t *testing.T) {
	upstream := audit.Codecs.LegacyCodec(eventVersion)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range 5000 {
		e := randomEvent(r)
		if i == 0 {
			e = &auditapi.Event{}
		}
		want, err := runtime.Encode(upstream, e)
		if err != nil {
			t.Fatal(err)
		}
		got, err := appendEvent(nil, e)
		if err != nil || string(got) != string(want) {
			t.Fatalf("got  %s, %v\nwant %s", got, err, want)
		}
	}
}

func TestAppendEventOfWhatIsNoJSON(t *testing.T) {
	for _, object := range []*runtime.Unknown{{Raw: []byte("{")}, {Raw: []byte("x"), ContentType: runtime.ContentTypeProtobuf}} {
		if line, err := appendEvent(nil, &auditapi.Event{RequestObject: object}); err == nil {
			t.Errorf("got %s", line)
		}
		if line, err := appendEvent(nil, &auditapi.Event{ResponseObject: object}); err == nil {
			t.Errorf("got %s", line)
		}
	}
}

func randomEvent(r *rand.Rand) *auditapi.Event {
	e := &auditapi.Event{
		Level: auditapi.Level(text(r)), AuditID: types.UID(text(r)), Stage: auditapi.Stage(text(r)), RequestURI: text(r), Verb: text(r),
		User: *anyone(r), SourceIPs: texts(r), UserAgent: text(r),
	}
	if maybe(r) {
		e.ImpersonatedUser = anyone(r)
		e.AuthenticationMetadata = &auditapi.AuthenticationMetadata{ImpersonationConstraint: text(r)}
	}
	if maybe(r) {
		e.ObjectRef = &auditapi.ObjectReference{
			Resource: text(r), Namespace: text(r), Name: text(r), UID: types.UID(text(r)), APIGroup: text(r), APIVersion: text(r), ResourceVersion: text(r), Subresource: text(r),
		}
	}
	if maybe(r) {
		e.ResponseStatus = &metav1.Status{Code: int32(r.IntN(2) * 200)}
	}
	if e.ResponseStatus != nil && maybe(r) {
		e.ResponseStatus.Status, e.ResponseStatus.Message, e.ResponseStatus.Reason = text(r), text(r), metav1.StatusReason(text(r))
		e.ResponseStatus.Details = &metav1.StatusDetails{Name: text(r), Causes: []metav1.StatusCause{{Message: text(r)}}}
	}
	if maybe(r) {
		e.RequestObject = &runtime.Unknown{Raw: []byte(`{ "a": ["<b>", 1.50, null] }`), ContentType: runtime.ContentTypeJSON}
	}
	if maybe(r) {
		e.ResponseObject = &runtime.Unknown{Raw: []byte(`{"x":{}}`)}
	}
	if maybe(r) {
		e.ResponseObject = &runtime.Unknown{}
	}
	if maybe(r) {
		e.RequestReceivedTimestamp = metav1.NewMicroTime(time.Unix(r.Int64N(1e10), r.Int64N(1e9)))
		e.StageTimestamp = metav1.NewMicroTime(time.Unix(r.Int64N(1e10), 1000))
	}
	if maybe(r) {
		e.Annotations = map[string]string{}
	}
	for range r.IntN(4) {
		if e.Annotations != nil {
			e.Annotations[text(r)] = text(r)
		}
	}
	return e
}

func anyone(r *rand.Rand) *authenticationv1.UserInfo {
	u := &authenticationv1.UserInfo{Username: text(r), UID: text(r), Groups: texts(r)}
	if maybe(r) {
		u.Extra = map[string]authenticationv1.ExtraValue{}
		for range r.IntN(3) {
			u.Extra[text(r)] = texts(r)
		}
	}
	return u
}

func maybe(r *rand.Rand) bool { return r.IntN(2) == 0 }

func texts(r *rand.Rand) (list []string) {
	if maybe(r) {
		list = []string{}
	}
	for range r.IntN(3) {
		list = append(list, text(r))
	}
	return list
}

func text(r *rand.Rand) string {
	all := []string{"", "", "jane", "system:masters", "a/b?c=d&e=f", "<x>", `"q"`, `b\s`, "\u2028", "tab\t", "\x7f", "é", "\xff", "\x00", "/apis", fmt.Sprint(r.Uint32())}
	return all[r.IntN(len(all))]
}
