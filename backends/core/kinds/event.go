package kinds

import (
	"fmt"
	"reflect"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico/backends/core/kinds/rules"
	"portico/resource"
	"portico/resource/rest"
)

// Events are one set of stored objects, served as v1 Event, the stored form, and as
// events.k8s.io/v1 Event, converted on reading and writing. Both rows have the v1 type as hub
// form, and differ in validation and in the names of the selectable fields.

// Limits of texts in an event, in bytes.
const (
	maxEventName = 128
	maxEventNote = 1024
)

// coreEvents is the row of v1 Event.
func coreEvents(cfg Config, scheme *runtime.Scheme) *rest.Kind {
	k := events(cfg, scheme, eventsv1.SchemeGroupVersion)
	k.Info = resource.Info{
		Versions: []string{"v1"}, Resource: "events", Kind: "Event", ShortNames: []string{"ev"}, Namespaced: true,
	}
	// Old recorders use names that are valid in a URL but are no DNS subdomains.
	k.Strategy.ValidateName = func(string, bool) []string { return nil }
	k.Strategy.LooseFinalizers = true
	validate := func(e *corev1.Event) field.ErrorList { return validateEvent(e, "reportingComponent") }
	k.Strategy.Validate = check(validate)
	k.Strategy.ValidateUpdate = checkNew(validate)
	k.FieldLabels = append(referenceFields("involvedObject"), "reason", "reportingComponent", "source", "type")
	return k
}

// groupEvents is the row of events.k8s.io/v1 Event.
func groupEvents(cfg Config, scheme *runtime.Scheme) *rest.Kind {
	k := events(cfg, scheme, corev1.SchemeGroupVersion)
	k.Info = resource.Info{
		Group: eventsv1.GroupName, Versions: []string{"v1"}, Resource: "events", Kind: "Event", ShortNames: []string{"ev"}, Namespaced: true,
	}
	k.Strategy.Validate = check(validateNewEvent)
	k.Strategy.ValidateUpdate = checkUpdate(validateNewEventUpdate)
	k.FieldLabels = append(referenceFields("regarding"), "reason", "reportingController", "type")
	return k
}

// events returns the part of the rows that both share. other is the group/version of the other row.
func events(cfg Config, scheme *runtime.Scheme, other schema.GroupVersion) *rest.Kind {
	return &rest.Kind{
		Codec:               rest.TypedConverted(scheme, corev1.SchemeGroupVersion.WithKind("Event"), convertEvent),
		Equivalents:         func(string) []schema.GroupVersion { return []schema.GroupVersion{other} },
		Strategy:            rest.Strategy{IgnorePropagation: true},
		Columns:             eventColumns(),
		Cells:               cells(eventCells),
		Fields:              fieldsOf(eventFields),
		TTL:                 func(runtime.Object) time.Duration { return cfg.EventTTL },
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

// eventFields returns the fields under the names of both rows: the values are cached with
// the stored object, which both rows read.
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
		column("Last Seen", "string", "Time since the last occurrence."),
		column("Type", "string", "Normal or Warning."),
		column("Reason", "string", "The reason, in one word."),
		column("Object", "string", "The object that the event is about."),
		wide("Subobject", "string", "The field of the object that the event is about."),
		wide("Source", "string", "The component that reported the event."),
		column("Message", "string", "A description of the event."),
		wide("First Seen", "string", "Time since the first occurrence."),
		wide("Count", "string", "The number of occurrences."),
		name,
	}
}

// eventCells handles both forms of events: those with first and last timestamps and a count,
// and those with an event time and a series.
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

// convertEvent converts between v1 Event and events.k8s.io/v1 Event without loss. It does not
// change in, but the result shares memory with it.
func convertEvent(in runtime.Object, to schema.GroupVersionKind) (runtime.Object, error) {
	switch e := in.(type) {
	case *corev1.Event:
		switch to {
		case corev1.SchemeGroupVersion.WithKind("Event"):
			return e, nil
		case eventsv1.SchemeGroupVersion.WithKind("Event"):
			return toGroupEvent(e), nil
		}
	case *eventsv1.Event:
		switch to {
		case eventsv1.SchemeGroupVersion.WithKind("Event"):
			return e, nil
		case corev1.SchemeGroupVersion.WithKind("Event"):
			return toCoreEvent(e), nil
		}
	}
	return nil, fmt.Errorf("convert event: %T cannot become %s", in, to)
}

func toGroupEvent(e *corev1.Event) *eventsv1.Event {
	out := &eventsv1.Event{
		ObjectMeta:               e.ObjectMeta,
		EventTime:                e.EventTime,
		ReportingController:      e.ReportingController,
		ReportingInstance:        e.ReportingInstance,
		Action:                   e.Action,
		Reason:                   e.Reason,
		Regarding:                e.InvolvedObject,
		Related:                  e.Related,
		Note:                     e.Message,
		Type:                     e.Type,
		DeprecatedSource:         e.Source,
		DeprecatedFirstTimestamp: e.FirstTimestamp,
		DeprecatedLastTimestamp:  e.LastTimestamp,
		DeprecatedCount:          e.Count,
	}
	if e.Series != nil {
		out.Series = &eventsv1.EventSeries{Count: e.Series.Count, LastObservedTime: e.Series.LastObservedTime}
	}
	out.SetGroupVersionKind(eventsv1.SchemeGroupVersion.WithKind("Event"))
	return out
}

func toCoreEvent(e *eventsv1.Event) *corev1.Event {
	out := &corev1.Event{
		ObjectMeta:          e.ObjectMeta,
		InvolvedObject:      e.Regarding,
		Reason:              e.Reason,
		Message:             e.Note,
		Source:              e.DeprecatedSource,
		FirstTimestamp:      e.DeprecatedFirstTimestamp,
		LastTimestamp:       e.DeprecatedLastTimestamp,
		Count:               e.DeprecatedCount,
		Type:                e.Type,
		EventTime:           e.EventTime,
		Action:              e.Action,
		Related:             e.Related,
		ReportingController: e.ReportingController,
		ReportingInstance:   e.ReportingInstance,
	}
	if e.Series != nil {
		out.Series = &corev1.EventSeries{Count: e.Series.Count, LastObservedTime: e.Series.LastObservedTime}
	}
	out.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Event"))
	return out
}

// validateEvent validates an event. One with an event time is of the newer form. controller is
// the name of the field reportingController.
func validateEvent(e *corev1.Event, controller string) field.ErrorList {
	var errs field.ErrorList
	mismatch := func(bad bool) {
		if bad {
			errs = append(errs, field.Invalid(field.NewPath("involvedObject", "namespace"), e.InvolvedObject.Namespace, "does not match event.namespace"))
		}
	}
	about := e.InvolvedObject.Namespace
	if e.EventTime.IsZero() {
		// Events about cluster-scoped objects are in the default namespace.
		mismatch(about == "" && e.Namespace != "" && e.Namespace != metav1.NamespaceDefault)
		mismatch(about != "" && e.Namespace != about)
	} else {
		mismatch(about == "" && e.Namespace != metav1.NamespaceDefault && e.Namespace != metav1.NamespaceSystem)
		errs = append(errs, validateReport(e, controller)...)
	}
	return append(errs, rules.Invalid(field.NewPath("namespace"), e.Namespace, validation.IsDNS1123Subdomain(e.Namespace))...)
}

func validateReport(e *corev1.Event, controller string) field.ErrorList {
	var errs field.ErrorList
	require := func(name, value string) {
		if value == "" {
			errs = append(errs, field.Required(field.NewPath(name), ""))
		}
	}
	limit := func(name, value string, most int) {
		if len(value) > most {
			errs = append(errs, field.Invalid(field.NewPath(name), "", fmt.Sprintf("can have at most %v characters", most)))
		}
	}
	require(controller, e.ReportingController)
	errs = append(errs, rules.QualifiedName(e.ReportingController, field.NewPath(controller))...)
	require("reportingInstance", e.ReportingInstance)
	limit("reportingInstance", e.ReportingInstance, maxEventName)
	require("action", e.Action)
	limit("action", e.Action, maxEventName)
	require("reason", e.Reason)
	limit("reason", e.Reason, maxEventName)
	limit("message", e.Message, maxEventNote)
	return errs
}

// validateNewEvent validates an event created as events.k8s.io/v1, which must not have the
// deprecated fields. Paths are those of the stored form.
func validateNewEvent(e *corev1.Event) field.ErrorList {
	errs := append(validateEvent(e, "reportingController"), validateSeries(e)...)
	if e.EventTime.IsZero() {
		errs = append(errs, field.Required(field.NewPath("eventTime"), ""))
	}
	if e.Type != corev1.EventTypeNormal && e.Type != corev1.EventTypeWarning {
		errs = append(errs, field.Invalid(field.NewPath("type"), "", fmt.Sprintf("has invalid value: %v", e.Type)))
	}
	forbid := func(name string, set bool) {
		if set {
			errs = append(errs, field.Invalid(field.NewPath(name), "", "needs to be unset"))
		}
	}
	forbid("firstTimestamp", !e.FirstTimestamp.IsZero())
	forbid("lastTimestamp", !e.LastTimestamp.IsZero())
	forbid("count", e.Count != 0)
	forbid("source", e.Source != corev1.EventSource{})
	return errs
}

// validateNewEventUpdate permits changes of the series and of metadata only.
func validateNewEventUpdate(e, old *corev1.Event) field.ErrorList {
	errs := validateEvent(e, "reportingController")
	if !reflect.DeepEqual(e.Series, old.Series) {
		errs = append(errs, validateSeries(e)...)
	}
	fixed := func(name string, now, was any) {
		errs = append(errs, apivalidation.ValidateImmutableField(now, was, field.NewPath(name))...)
	}
	fixed("involvedObject", e.InvolvedObject, old.InvolvedObject)
	fixed("reason", e.Reason, old.Reason)
	fixed("message", e.Message, old.Message)
	fixed("source", e.Source, old.Source)
	fixed("firstTimestamp", e.FirstTimestamp, old.FirstTimestamp)
	fixed("lastTimestamp", e.LastTimestamp, old.LastTimestamp)
	fixed("count", e.Count, old.Count)
	fixed("type", e.Type, old.Type)
	if e.EventTime.UnixMicro() != old.EventTime.UnixMicro() { // The stored time may be more precise than microseconds, which clients send.
		fixed("eventTime", e.EventTime, old.EventTime)
	}
	fixed("action", e.Action, old.Action)
	fixed("related", e.Related, old.Related)
	fixed("reportingController", e.ReportingController, old.ReportingController)
	fixed("reportingInstance", e.ReportingInstance, old.ReportingInstance)
	return errs
}

func validateSeries(e *corev1.Event) field.ErrorList {
	if e.Series == nil {
		return nil
	}
	var errs field.ErrorList
	if e.Series.Count < 2 {
		errs = append(errs, field.Invalid(field.NewPath("series.count"), "", "should be at least 2"))
	}
	if e.Series.LastObservedTime.IsZero() {
		errs = append(errs, field.Required(field.NewPath("series.lastObservedTime"), ""))
	}
	return errs
}
