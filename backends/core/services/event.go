package services

import (
	"context"
	"fmt"
	"hash/fnv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico/resource"
	"portico/resource/rest"
)

// component is the source of the Events.
const component = "service-allocator-repair"

// event logs a warning and stores it as an Event, once in the life of the Event.
func (s *Services) event(ctx context.Context, about *corev1.ObjectReference, reason, message string) {
	s.log.Warn("services are repaired", "reason", reason, "message", message, "object", about.Namespace+"/"+about.Name)
	h := fnv.New64a()
	fmt.Fprint(h, about.UID, reason, message)
	namespace := about.Namespace
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	now := rest.Now()
	e := &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("%s.%016x", about.Name, h.Sum64())},
		InvolvedObject: *about, Reason: reason, Message: message, Type: corev1.EventTypeWarning, Count: 1,
		FirstTimestamp: now, LastTimestamp: now,
		Source: corev1.EventSource{Component: component}, ReportingController: component,
	}
	r := s.cfg.Resource("", "events")
	rest.FillSystemMetadata(e, false)
	o, err := r.Codec.EncodeStored(e)
	if err == nil {
		_, err = r.Store.Create(ctx, resource.Key{Namespace: namespace, Name: e.Name}, o, s.cfg.EventTTL)
	}
	if err != nil && !apierrors.IsAlreadyExists(err) {
		s.log.Warn("an event is not stored", "reason", reason, "err", err)
	}
}

func referenceTo(svc *corev1.Service) *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: "v1", Kind: "Service", Namespace: svc.Namespace, Name: svc.Name, UID: svc.UID, ResourceVersion: svc.ResourceVersion}
}
