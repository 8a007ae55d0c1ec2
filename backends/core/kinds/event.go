package kinds

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kubernetes/pkg/registry/core/event"

	"portico/resource/rest"
)

// eventRows are the resources of events: two groups serve the same stored objects.
func eventRows(cfg Config) []row {
	share := func(other schema.GroupVersion) func(k *rest.Kind) {
		return func(k *rest.Kind) {
			k.Equivalents = func(string) []schema.GroupVersion { return []schema.GroupVersion{other} }
			k.TTL = func(runtime.Object) time.Duration { return cfg.EventTTL }
		}
	}
	return []row{
		{
			Info: namespaced("", "events", "Event", "ev"), strategy: event.Strategy, fields: fieldsOf(eventFields),
			fieldLabels: append(referenceFields("involvedObject"), "reason", "reportingComponent", "source", "type"),
			customize:   share(eventsv1.SchemeGroupVersion),
		},
		{
			Info: namespaced(eventsv1.GroupName, "events", "Event", "ev"), strategy: event.Strategy, fields: fieldsOf(eventFields),
			storage:     corev1.SchemeGroupVersion.WithKind("Event"),
			fieldLabels: append(referenceFields("regarding"), "reason", "reportingController", "type"),
			customize:   share(corev1.SchemeGroupVersion),
		},
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
