package plugins

import (
	"cmp"
	"context"
	"errors"
	"sync"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/pod-security-admission/admission"
	"k8s.io/pod-security-admission/admission/api/load"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/metrics"
	"k8s.io/pod-security-admission/policy"

	"portico/resource"
	"portico/resource/audit"
	"portico/resource/rest"
)

// podSecurityRecorder counts evaluations. The registry is that of the process.
var podSecurityRecorder = sync.OnceValue(func() metrics.Recorder {
	r := metrics.NewPrometheusRecorder(api.GetAPIVersion())
	r.MustRegister(legacyregistry.MustRegister)
	return r
})

// newPodSecurity checks pods, and objects with templates of pods, by the pod security standards
// in the labels of their namespace.
func newPodSecurity(cfg *Config) (rest.Admission, error) {
	config, err := load.LoadFromData(cfg.files["PodSecurity"])
	if err != nil {
		return nil, err
	}
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		return nil, err
	}
	p := &podSecurity{warn: cfg.Warn, delegate: &admission.Admission{
		Configuration: config, Evaluator: evaluator, Metrics: podSecurityRecorder(), PodSpecExtractor: admission.DefaultPodSpecExtractor{},
		NamespaceGetter: namespaceGetter{cfg.Resource("", "namespaces")}, PodLister: podLister{cfg.Resource("", "pods")},
	}}
	if err := errors.Join(p.delegate.CompleteConfiguration(), p.delegate.ValidateConfiguration()); err != nil {
		return nil, err
	}
	return validates(p.validate), nil
}

type podSecurity struct {
	delegate *admission.Admission
	warn     rest.Warn
}

func (p *podSecurity) validate(ctx context.Context, a *rest.Attributes) error {
	if a.Operation != rest.Create && a.Operation != rest.Update {
		return nil
	}
	version, user := a.Kind.Versions[0], ""
	if a.Action != nil {
		version = a.Action.Version
		if a.Action.User != nil {
			user = a.Action.User.Name
		}
	}
	result := p.delegate.Validate(ctx, &api.AttributesRecord{
		Name: a.Key.Name, Namespace: cmp.Or(a.Key.Namespace, a.Key.Name), Kind: a.Kind.GVK(version), Resource: a.Kind.GVR(version),
		Subresource: subresourceOf(a), Operation: admissionv1.Operation(a.Operation), Object: a.Object, OldObject: a.Old, Username: user,
	})
	for _, text := range result.Warnings {
		p.warn(ctx, text)
	}
	for key, value := range result.AuditAnnotations {
		audit.Annotate(ctx, api.AuditAnnotationPrefix+key, value)
	}
	if result.Allowed {
		return nil
	}
	//lint:ignore ST1005 The message is kube-apiserver's.
	err, ok := forbidden(a, errors.New("Not allowed by PodSecurity")).(*apierrors.StatusError)
	if r := result.Result; ok && r != nil {
		s := &err.ErrStatus
		s.Message, s.Reason, s.Code = cmp.Or(r.Message, s.Message), cmp.Or(r.Reason, s.Reason), cmp.Or(r.Code, s.Code)
		if r.Details != nil {
			s.Details = r.Details
		}
	}
	return err
}

// namespaceGetter reads namespaces for package admission.
type namespaceGetter struct{ namespaces *rest.Resource }

// GetNamespace implements admission.NamespaceGetter.
func (n namespaceGetter) GetNamespace(ctx context.Context, name string) (*corev1.Namespace, error) {
	return readLive[*corev1.Namespace](ctx, n.namespaces, resource.Key{Name: name})
}

// podLister reads pods for package admission.
type podLister struct{ pods *rest.Resource }

// ListPods implements admission.PodLister.
func (p podLister) ListPods(ctx context.Context, namespace string) ([]*corev1.Pod, error) {
	return list[*corev1.Pod](ctx, p.pods, namespace)
}
