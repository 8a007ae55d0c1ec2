package kinds

import (
	"maps"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"portico/resource"
)

// An event that is written through one row can be read and written through the other.
func TestEventsOfBothGroups(t *testing.T) {
	core, group := kind(t, "events"), kind(t, "events.events.k8s.io")
	want := fullEvent()
	stored, err := core.Codec.EncodeStored(want)
	if err != nil {
		t.Fatal(err)
	}
	if stored.APIVersion != "v1" || stored.Kind != "Event" || stored.Encoding != resource.Protobuf {
		t.Errorf("stored as %s %s, encoding %d", stored.APIVersion, stored.Kind, stored.Encoding)
	}
	hub, err := group.Codec.DecodeStored(stored)
	if err != nil {
		t.Fatal(err)
	}
	data, err := group.Codec.Encode(hub, group.GVK("v1"), jsonType)
	if err != nil || !strings.Contains(string(data), `"note":"M"`) || !strings.Contains(string(data), `"apiVersion":"events.k8s.io/v1"`) {
		t.Fatalf("read as events.k8s.io/v1: %v %s", err, data)
	}
	back, _, err := group.Codec.Decode(data, jsonType, group.GVK("v1"), true)
	if err != nil || !equality.Semantic.DeepEqual(back, want) {
		t.Errorf("written back: %v\ngot  %+v\nwant %+v", err, back, want)
	}
	again, err := group.Codec.EncodeStored(back)
	if err != nil || again.APIVersion != "v1" {
		t.Errorf("stored through events.k8s.io as %s, %v", again.APIVersion, err)
	}
}

// Both rows use the field values that are cached with an object.
func TestEventFields(t *testing.T) {
	core, group := kind(t, "events"), kind(t, "events.events.k8s.io")
	e := fullEvent()
	values := core.Fields(e)
	if !maps.Equal(values, group.Fields(e)) {
		t.Error("the rows differ in the values of fields")
	}
	for label, want := range map[string]string{"involvedObject.uid": "u", "regarding.name": "p", "reportingComponent": "example.com/c", "source": "c", "type": "Normal"} {
		if values[label] != want {
			t.Errorf("%s is %q, want %q", label, values[label], want)
		}
	}
	e.Source = corev1.EventSource{}
	if got := core.Fields(e)["source"]; got != "example.com/c" {
		t.Errorf("source without component is %q", got)
	}
}

// fullEvent returns an event with every field set.
func fullEvent() *corev1.Event {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	ref := corev1.ObjectReference{Kind: "Pod", Namespace: "n", Name: "p", UID: "u", APIVersion: "v1", ResourceVersion: "7", FieldPath: "spec"}
	return &corev1.Event{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Event"},
		ObjectMeta: metav1.ObjectMeta{Name: "e", Namespace: "n", Labels: map[string]string{"a": "b"}, Generation: 3},
		EventTime:  metav1.NewMicroTime(at), InvolvedObject: ref, Related: &corev1.ObjectReference{Kind: "Node", Name: "m"},
		Reason: "R", Message: "M", Source: corev1.EventSource{Component: "c", Host: "h"}, Type: "Normal", Action: "A",
		FirstTimestamp: metav1.NewTime(at.Add(time.Hour)), LastTimestamp: metav1.NewTime(at.Add(2 * time.Hour)), Count: 5,
		Series:              &corev1.EventSeries{Count: 6, LastObservedTime: metav1.NewMicroTime(at.Add(3 * time.Hour))},
		ReportingController: "example.com/c", ReportingInstance: "i",
	}
}
