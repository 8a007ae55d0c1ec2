package kinds

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico/resource"
)

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

// Events are converted to the two versions that are served, and nothing else is.
func TestEventConversion(t *testing.T) {
	core := corev1.SchemeGroupVersion.WithKind("Event")
	if _, err := convertEvent(fullEvent(), schema.GroupVersionKind{Group: "events.k8s.io", Version: "v2", Kind: "Event"}); err == nil {
		t.Error("converts to an unknown version")
	}
	if _, err := convertEvent(&corev1.Pod{}, core); err == nil {
		t.Error("converts a pod")
	}
}

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

func TestEventRules(t *testing.T) {
	core, group := kind(t, "events"), kind(t, "events.events.k8s.io")
	old := decode[*corev1.Event](t, core, `{"metadata":{"name":"E_1","namespace":"n"},"involvedObject":{"namespace":"m"}}`)
	const mismatch = `involvedObject.namespace: Invalid value: "m": does not match event.namespace`
	expect(t, core.Strategy.Validate(t.Context(), old), mismatch)
	if got := core.Strategy.ValidateName("E_1", false); got != nil {
		t.Errorf("legacy name refused: %v", got)
	}

	bare := decode[*corev1.Event](t, group, `{"metadata":{"name":"e","namespace":"n"},"regarding":{"namespace":"n"},`+
		`"deprecatedCount":1,"deprecatedSource":{"host":"h"},"type":"Odd","series":{"count":1,"lastObservedTime":null}}`)
	expect(t, group.Strategy.Validate(t.Context(), bare),
		`series.count: Invalid value: "": should be at least 2`,
		`series.lastObservedTime: Required value`,
		`eventTime: Required value`,
		`type: Invalid value: "": has invalid value: Odd`,
		`count: Invalid value: "": needs to be unset`,
		`source: Invalid value: "": needs to be unset`)

	timed := fullEvent()
	timed.ReportingController, timed.ReportingInstance, timed.Action, timed.Message = "", strings.Repeat("x", 129), "", strings.Repeat("x", 1025)
	const name = "name part must be non-empty"
	const qualified = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character " +
		"(e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
	expect(t, core.Strategy.Validate(t.Context(), timed),
		`reportingComponent: Required value`,
		`reportingComponent: Invalid value: "": `+name,
		`reportingComponent: Invalid value: "": `+qualified,
		`reportingInstance: Invalid value: "": can have at most 128 characters`,
		`action: Required value`,
		`message: Invalid value: "": can have at most 1024 characters`)
}

func TestEventUpdate(t *testing.T) {
	group := kind(t, "events.events.k8s.io")
	old, e := fullEvent(), fullEvent()
	e.Series.Count++
	e.Labels = map[string]string{"new": "label"}
	expect(t, group.Strategy.ValidateUpdate(t.Context(), e, old))
	e.Reason, e.EventTime, e.Series = "Other", metav1.NewMicroTime(e.EventTime.Add(time.Second)), &corev1.EventSeries{Count: 1}
	errs := group.Strategy.ValidateUpdate(t.Context(), e, old)
	var paths []string
	for _, err := range errs {
		paths = append(paths, err.Field)
	}
	if got := strings.Join(paths, " "); got != "series.count series.lastObservedTime reason eventTime" {
		t.Errorf("errors of %s: %v", got, errs)
	}
	if errs := kind(t, "events").Strategy.ValidateUpdate(t.Context(), e, old); len(errs) != 0 {
		t.Errorf("v1 lets everything change: %v", errs)
	}
}

func TestEventRow(t *testing.T) {
	k := kind(t, "events")
	ago := func(d time.Duration) metav1.Time { return metav1.NewTime(time.Now().Add(-d)) }
	e := fullEvent()
	e.Series, e.FirstTimestamp, e.LastTimestamp, e.Message = nil, ago(50*time.Hour), ago(30*time.Hour), " M\n"
	row, err := k.Cells(e)
	if got, want := fmt.Sprint(row...), fmt.Sprint("30h", "Normal", "R", "pod/p", "spec", "c, h", "M", "2d2h", int64(5), "e"); err != nil || got != want {
		t.Errorf("got %s, want %s, %v", got, want, err)
	}
	e.FirstTimestamp, e.LastTimestamp, e.Count, e.Source = metav1.Time{}, metav1.Time{}, 0, corev1.EventSource{}
	e.EventTime = metav1.NewMicroTime(ago(50 * time.Hour).Time)
	row, _ = k.Cells(e)
	if got, want := fmt.Sprint(row...), fmt.Sprint("2d2h", "Normal", "R", "pod/p", "spec", "example.com/c, i", "M", "2d2h", int64(1), "e"); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	e.Series = &corev1.EventSeries{Count: 9, LastObservedTime: metav1.NewMicroTime(ago(30 * time.Hour).Time)}
	if row, _ = k.Cells(e); row[0] != "30h" || row[8] != int64(9) {
		t.Errorf("with a series: last %v, count %v", row[0], row[8])
	}
}
