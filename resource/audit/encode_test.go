package audit

import (
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	auditapi "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
)

// A line is, byte for byte, what upstream's encoder makes of the event.
func TestEncodeEvent(t *testing.T) {
	t.Parallel()
	now := metav1.NewMicroTime(time.Now())
	for _, e := range []*auditapi.Event{{}, {
		Level: "Request", AuditID: "id", Stage: "ResponseComplete", RequestURI: "/api?a=<b>&c", Verb: "create", UserAgent: "agent/1 é",
		User:             authenticationv1.UserInfo{Username: "jane", Groups: []string{"dev"}, Extra: map[string]authenticationv1.ExtraValue{"b": {"1"}, "a": nil}},
		ImpersonatedUser: &authenticationv1.UserInfo{Username: "joe"}, SourceIPs: []string{"::1"},
		AuthenticationMetadata: &auditapi.AuthenticationMetadata{ImpersonationConstraint: "c"},
		ObjectRef:              &auditapi.ObjectReference{Resource: "pods", Name: "x", APIVersion: "v1"},
		ResponseStatus:         &metav1.Status{Code: 201}, RequestObject: &runtime.Unknown{Raw: []byte(`{"a":1}`), ContentType: runtime.ContentTypeJSON},
		RequestReceivedTimestamp: now, StageTimestamp: now, Annotations: map[string]string{"b": "1", "a": "2"},
	}} {
		want, err := runtime.Encode(audit.Codecs.LegacyCodec(eventVersion), e)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := encodeEvent(e); err != nil || string(got) != string(want) {
			t.Errorf("got  %s, %v\nwant %s", got, err, want)
		}
	}
	if line, err := encodeEvent(&auditapi.Event{RequestObject: &runtime.Unknown{Raw: []byte("{")}}); err == nil {
		t.Errorf("an object that is not JSON: %s", line)
	}
}
