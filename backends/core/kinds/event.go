package kinds

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"portico/resource"
	"portico/resource/rest"
)

// Events are one set of stored objects with two faces: v1 Event, as they are
// stored, and events.k8s.io/v1 Event, converted at the edge. Both rows have the
// v1 type as hub form, so that they share everything but the strictness of
// validation and the names of the selectable fields.

// coreEvents is the row of v1 Event.
func coreEvents(cfg Config) *rest.Kind {
	k := events(cfg)
	k.Info = resource.Info{
		Versions: []string{"v1"}, Resource: "events", Kind: "Event", ShortNames: []string{"ev"}, Namespaced: true,
	}
	// Old recorders put anything into names that fits into a URL.
	k.Strategy.ValidateName = func(name string, _ bool) []string { return content.IsPathSegmentName(name) }
	k.Strategy.Validate = check(validateEvent)
	k.Strategy.ValidateUpdate = checkNew(validateEvent)
	k.FieldLabels = append(referenceFields("involvedObject"), "reason", "reportingComponent", "source", "type")
	return k
}

// groupEvents is the row of events.k8s.io/v1 Event.
func groupEvents(cfg Config, scheme *runtime.Scheme) *rest.Kind {
	k := events(cfg)
	k.Info = resource.Info{
		Group: eventsv1.GroupName, Versions: []string{"v1"}, Resource: "events", Kind: "Event", ShortNames: []string{"ev"}, Namespaced: true,
	}
	k.Strategy.Validate = check(validateNewEvent)
	k.Strategy.ValidateUpdate = checkUpdate(validateNewEventUpdate)
	k.FieldLabels = append(referenceFields("regarding"), "reason", "reportingController", "type")
	k.Codec = rest.TypedConverted(scheme, corev1.SchemeGroupVersion.WithKind("Event"), convertEvent)
	return k
}

// events is what both rows share.
func events(cfg Config) *rest.Kind {
	ttl := cfg.EventTTL
	return &rest.Kind{
		Strategy:            rest.Strategy{IgnorePropagation: true},
		Columns:             eventColumns(),
		Cells:               cells(eventCells),
		Fields:              fieldsOf(eventFields),
		TTL:                 func(runtime.Object) time.Duration { return ttl },
		CreateOnUpdate:      true,
		UnconditionalUpdate: true,
	}
}

func referenceFields(name string) []string {
	return []string{
		name + ".apiVersion", name + ".fieldPath", name + ".kind", name + ".name",
		name + ".namespace", name + ".resourceVersion", name + ".uid",
	}
}

// eventFields has the fields under the names of both rows, because the values
// are kept with the stored object, which both rows read.
func eventFields(e *corev1.Event) map[string]string {
	source := e.Source.Component
	if source == "" {
		source = e.ReportingController
	}
	values := map[string]string{
		"reason":              e.Reason,
		"reportingComponent":  e.ReportingController,
		"reportingController": e.ReportingController,
		"source":              source,
		"type":                e.Type,
	}
	for _, prefix := range []string{"involvedObject", "regarding"} {
		values[prefix+".apiVersion"] = e.InvolvedObject.APIVersion
		values[prefix+".fieldPath"] = e.InvolvedObject.FieldPath
		values[prefix+".kind"] = e.InvolvedObject.Kind
		values[prefix+".name"] = e.InvolvedObject.Name
		values[prefix+".namespace"] = e.InvolvedObject.Namespace
		values[prefix+".resourceVersion"] = e.InvolvedObject.ResourceVersion
		values[prefix+".uid"] = string(e.InvolvedObject.UID)
	}
	return values
}

func eventColumns() []metav1.TableColumnDefinition {
	name := nameColumn()
	name.Priority = 1
	return []metav1.TableColumnDefinition{
		column("Last Seen", "string", "How long ago it happened last."),
		column("Type", "string", "Normal or Warning."),
		column("Reason", "string", "Why it happened, in one word."),
		column("Object", "string", "What it is about."),
		wide("Subobject", "string", "The part of the object it is about."),
		wide("Source", "string", "Who reported it."),
		column("Message", "string", "What happened, for people to read."),
		wide("First Seen", "string", "How long ago it happened first."),
		wide("Count", "string", "How often it has happened."),
		name,
	}
}

// eventCells reads both generations of events: those with first and last
// timestamps and a count, and those with an event time and a series.
func eventCells(e *corev1.Event) []any {
	first := age(e.FirstTimestamp)
	if e.FirstTimestamp.IsZero() {
		first = microAge(e.EventTime)
	}
	last, count := age(e.LastTimestamp), e.Count
	if e.LastTimestamp.IsZero() {
		last = first
	}
	switch {
	case e.Series != nil:
		last, count = microAge(e.Series.LastObservedTime), e.Series.Count
	case count == 0:
		count = 1
	}
	object := strings.ToLower(e.InvolvedObject.Kind)
	if e.InvolvedObject.Name != "" {
		object = fmt.Sprintf("%s/%s", object, e.InvolvedObject.Name)
	}
	return []any{
		last, e.Type, e.Reason, object, e.InvolvedObject.FieldPath, eventSource(e),
		strings.TrimSpace(e.Message), first, int64(count), e.Name,
	}
}

func eventSource(e *corev1.Event) string {
	component, instance := e.Source.Component, e.Source.Host
	if component == "" {
		component = e.ReportingController
	}
	if instance == "" {
		instance = e.ReportingInstance
	}
	if instance == "" {
		return component
	}
	return component + ", " + instance
}
