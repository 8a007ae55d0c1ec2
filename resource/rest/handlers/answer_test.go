package handlers

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// answer is a response with its body.
type answer struct {
	*http.Response
	t    testing.TB
	code int
	body []byte
}

// want checks the status code and, unless empty, the Status message.
func (a answer) want(code int, message string) answer {
	a.t.Helper()
	if a.code != code {
		a.t.Fatalf("code %d, want %d: %s", a.code, code, a.body)
	}
	if message == "" {
		return a
	}
	if got := a.status().Message; got != message {
		a.t.Fatalf("message %q, want %q", got, message)
	}
	return a
}

func read[T any](a answer, into T) T {
	a.t.Helper()
	if err := json.Unmarshal(a.body, into); err != nil {
		a.t.Fatalf("%v: %s", err, a.body)
	}
	return into
}

func (a answer) status() *metav1.Status             { return read(a, &metav1.Status{}) }
func (a answer) configMap() *corev1.ConfigMap       { return read(a, &corev1.ConfigMap{}) }
func (a answer) service() *corev1.Service           { return read(a, &corev1.Service{}) }
func (a answer) namespace() *corev1.Namespace       { return read(a, &corev1.Namespace{}) }
func (a answer) scale() *autoscalingv1.Scale        { return read(a, &autoscalingv1.Scale{}) }
func (a answer) widget() map[string]any             { return *read(a, &map[string]any{}) }
func (a answer) revision() string                   { return a.meta().ResourceVersion }
func (a answer) meta() metav1.PartialObjectMetadata { return *read(a, &metav1.PartialObjectMetadata{}) }

// owners returns managedFields of the object, one entry a line, without times.
func (a answer) owners() string {
	a.t.Helper()
	var lines []string
	for _, e := range a.meta().ManagedFields {
		operation := string(e.Operation)
		if e.Subresource != "" {
			operation += "/" + e.Subresource
		}
		fields := "invalid"
		set := &fieldpath.Set{}
		if e.FieldsV1 != nil && set.FromJSON(bytes.NewReader(e.FieldsV1.GetRawBytes())) == nil {
			fields = ""
			set.Leaves().Iterate(func(p fieldpath.Path) { fields += " " + p.String() })
		}
		lines = append(lines, e.Manager+" "+operation+" "+e.APIVersion+fields)
	}
	return strings.Join(lines, "\n")
}

func (a answer) wantOwners(lines ...string) answer {
	a.t.Helper()
	if got, want := a.owners(), strings.Join(lines, "\n"); got != want {
		a.t.Errorf("owners:\n%s\nwant:\n%s", got, want)
	}
	return a
}
