package kinds

import (
	"fmt"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Limits of texts in an event, in bytes.
const (
	maxEventName = 128
	maxEventNote = 1024
)

// validateEvent is all that is asked of an event written as v1. An event time
// marks one that was made for the newer API.
func validateEvent(e *corev1.Event) field.ErrorList {
	var errs field.ErrorList
	mismatch := func(bad bool) {
		if bad {
			errs = append(errs, field.Invalid(field.NewPath("involvedObject", "namespace"), e.InvolvedObject.Namespace, "does not match event.namespace"))
		}
	}
	about := e.InvolvedObject.Namespace
	if e.EventTime.IsZero() {
		// Events about cluster-scoped objects live in the default namespace.
		mismatch(about == "" && e.Namespace != "" && e.Namespace != metav1.NamespaceDefault)
		mismatch(about != "" && e.Namespace != about)
	} else {
		mismatch(about == "" && e.Namespace != metav1.NamespaceDefault && e.Namespace != metav1.NamespaceSystem)
		errs = append(errs, validateReport(e)...)
	}
	return append(errs, invalid(field.NewPath("namespace"), e.Namespace, validation.IsDNS1123Subdomain(e.Namespace))...)
}

func validateReport(e *corev1.Event) field.ErrorList {
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
	require("reportingController", e.ReportingController)
	errs = append(errs, validateQualifiedName(e.ReportingController, field.NewPath("reportingController"))...)
	require("reportingInstance", e.ReportingInstance)
	limit("reportingInstance", e.ReportingInstance, maxEventName)
	require("action", e.Action)
	limit("action", e.Action, maxEventName)
	require("reason", e.Reason)
	limit("reason", e.Reason, maxEventName)
	limit("message", e.Message, maxEventNote)
	return errs
}

// validateNewEvent is what is asked of an event created as events.k8s.io/v1:
// none of the deprecated fields. Paths are those of the stored form.
func validateNewEvent(e *corev1.Event) field.ErrorList {
	errs := append(validateEvent(e), validateSeries(e)...)
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

// validateNewEventUpdate lets only the series (and metadata) change.
func validateNewEventUpdate(e, old *corev1.Event) field.ErrorList {
	errs := validateEvent(e)
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
	// Clients send microseconds; what is stored may be more precise.
	fixed("eventTime", e.EventTime.UnixMicro(), old.EventTime.UnixMicro())
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
