package backend

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// AddToScheme registers the kind and its list.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion(), &Backend{}, &BackendList{})
	metav1.AddToGroupVersion(s, GroupVersion())
	return nil
}

// DeepCopyObject implements runtime.Object.
func (b *Backend) DeepCopyObject() runtime.Object { return b.DeepCopy() }

// DeepCopy returns a copy that shares nothing with b; nil of nil.
func (b *Backend) DeepCopy() *Backend {
	if b == nil {
		return nil
	}
	out := &Backend{}
	b.DeepCopyInto(out)
	return out
}

// DeepCopyInto makes out a copy that shares nothing with b.
func (b *Backend) DeepCopyInto(out *Backend) {
	*out = Backend{TypeMeta: b.TypeMeta, Spec: b.Spec.deepCopy(), Status: b.Status.DeepCopy()}
	b.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
}

// DeepCopyObject implements runtime.Object.
func (l *BackendList) DeepCopyObject() runtime.Object {
	if l == nil {
		return nil
	}
	out := &BackendList{TypeMeta: l.TypeMeta}
	l.ListMeta.DeepCopyInto(&out.ListMeta)
	if l.Items != nil {
		out.Items = make([]Backend, len(l.Items))
		for i := range l.Items {
			l.Items[i].DeepCopyInto(&out.Items[i])
		}
	}
	return out
}

// another returns a pointer to a copy of what p points to; nil of nil.
func another[T any](p *T) *T {
	if p == nil {
		return nil
	}
	v := *p
	return &v
}

func (s *Spec) deepCopy() Spec {
	out := *s
	out.Endpoints = slices.Clone(s.Endpoints)
	for i := range out.Endpoints {
		out.Endpoints[i].Weight = another(s.Endpoints[i].Weight)
	}
	if out.Service = another(s.Service); out.Service != nil {
		out.Service.Port = another(s.Service.Port)
	}
	if out.TLS = another(s.TLS); out.TLS != nil {
		out.TLS.CABundle = slices.Clone(s.TLS.CABundle)
	}
	if out.AutoRegister = another(s.AutoRegister); out.AutoRegister != nil {
		in, o := s.AutoRegister, out.AutoRegister
		o.Groups = slices.Clone(in.Groups)
		o.GroupPriorityMinimum, o.VersionPriority = another(in.GroupPriorityMinimum), another(in.VersionPriority)
	}
	out.REST = another(s.REST)
	s.deepCopyPolicy(&out)
	return out
}

// deepCopyPolicy is the part of deepCopy that is about how requests are sent.
func (s *Spec) deepCopyPolicy(out *Spec) {
	if out.HealthCheck = another(s.HealthCheck); out.HealthCheck != nil {
		in, o := s.HealthCheck, out.HealthCheck
		o.Interval, o.Timeout = another(in.Interval), another(in.Timeout)
		o.Fall, o.Rise = another(in.Fall), another(in.Rise)
	}
	if out.OutlierDetection = another(s.OutlierDetection); out.OutlierDetection != nil {
		in, o := s.OutlierDetection, out.OutlierDetection
		o.ConsecutiveErrors, o.ConsecutiveLocalErrors = another(in.ConsecutiveErrors), another(in.ConsecutiveLocalErrors)
		o.BaseEjectionTime, o.MaxEjectionTime = another(in.BaseEjectionTime), another(in.MaxEjectionTime)
		o.MaxEjectionPercent = another(in.MaxEjectionPercent)
	}
	if out.SlowStart = another(s.SlowStart); out.SlowStart != nil {
		in, o := s.SlowStart, out.SlowStart
		o.Window, o.MinWeightPercent, o.AggressionPercent = another(in.Window), another(in.MinWeightPercent), another(in.AggressionPercent)
	}
	out.PanicThresholdPercent = another(s.PanicThresholdPercent)
	if out.Timeouts = another(s.Timeouts); out.Timeouts != nil {
		in, o := s.Timeouts, out.Timeouts
		o.Connect, o.ResponseHeader, o.Idle = another(in.Connect), another(in.ResponseHeader), another(in.Idle)
		o.MaxConnectionAge = another(in.MaxConnectionAge)
	}
	if out.Retries = another(s.Retries); out.Retries != nil {
		in, o := s.Retries, out.Retries
		o.BudgetPercent, o.MinPerSecond, o.Attempts = another(in.BudgetPercent), another(in.MinPerSecond), another(in.Attempts)
	}
	if out.Limits = another(s.Limits); out.Limits != nil {
		out.Limits.Concurrent, out.Limits.Queue = another(s.Limits.Concurrent), another(s.Limits.Queue)
	}
}

// DeepCopy returns a copy that shares nothing with s.
func (s *Status) DeepCopy() Status {
	out := Status{Endpoints: slices.Clone(s.Endpoints), GroupVersions: slices.Clone(s.GroupVersions), Conditions: slices.Clone(s.Conditions)}
	for i := range out.Endpoints {
		s.Endpoints[i].LastTransitionTime.DeepCopyInto(&out.Endpoints[i].LastTransitionTime)
	}
	for i := range out.Conditions {
		s.Conditions[i].DeepCopyInto(&out.Conditions[i])
	}
	return out
}
