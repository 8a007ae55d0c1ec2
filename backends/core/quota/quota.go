// Package quota measures how objects of built-in kinds use resource quotas, by the rules of
// kube-apiserver with its default feature gates: its evaluators of pods, services and claims of volumes, one of claims of
// devices that needs no informers, and those of kinds with an old name of their count. Other kinds are counted as
// count/RESOURCE.GROUP by the evaluators of k8s.io/apiserver.
//
// Runs in: core.
package quota

import (
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	quota "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/apiserver/pkg/quota/v1/generic"
	evaluators "k8s.io/kubernetes/pkg/quota/v1/evaluator/core"
	"k8s.io/utils/clock"
)

// Config is what evaluators measure with.
type Config struct {
	// List returns the objects of a resource, to add up their usage; nil for admission, which
	// measures single objects.
	List quota.ListerForResourceFunc
	// Objects are the objects that the usage of a ResourceClaim depends on. Required.
	Objects Objects
	// Clock is nil for the clock of the machine.
	Clock clock.Clock
}

// Objects are read for ResourceClaims with devices, and for quotas of extended resources.
type Objects interface {
	DeviceClasses() ([]*resourcev1.DeviceClass, error)
	Pod(namespace, name string) (*corev1.Pod, error)
	ResourceClaims(namespace string) ([]*resourcev1.ResourceClaim, error)
}

// Evaluators returns the evaluators of the built-in kinds that are more than counted by their
// resource.
func Evaluators(cfg Config) []quota.Evaluator {
	if cfg.Clock == nil {
		cfg.Clock = clock.RealClock{}
	}
	list := func(resource schema.GroupVersionResource) generic.ListFuncByNamespace {
		return generic.ListResourceUsingListerFunc(cfg.List, resource)
	}
	core := corev1.SchemeGroupVersion.WithResource
	out := []quota.Evaluator{
		evaluators.NewPodEvaluator(cfg.List, cfg.Clock),
		evaluators.NewServiceEvaluator(cfg.List),
		evaluators.NewPersistentVolumeClaimEvaluator(cfg.List),
		&claimEvaluator{list: list(resourcev1.SchemeGroupVersion.WithResource("resourceclaims")), objects: cfg.Objects, clock: cfg.Clock},
	}
	for _, name := range []corev1.ResourceName{
		corev1.ResourceConfigMaps, corev1.ResourceQuotas, corev1.ResourceReplicationControllers, corev1.ResourceSecrets,
	} {
		resource := core(string(name))
		out = append(out, generic.NewObjectCountEvaluator(resource.GroupResource(), list(resource), name))
	}
	return out
}

// Ignored returns the resources that no quota counts.
func Ignored() map[schema.GroupResource]struct{} {
	out := map[schema.GroupResource]struct{}{}
	for _, name := range []string{
		"bindings", "componentstatuses", "events", "events.events.k8s.io", "tokenreviews.authentication.k8s.io",
		"selfsubjectreviews.authentication.k8s.io", "subjectaccessreviews.authorization.k8s.io",
		"selfsubjectaccessreviews.authorization.k8s.io", "localsubjectaccessreviews.authorization.k8s.io",
		"selfsubjectrulesreviews.authorization.k8s.io",
	} {
		out[schema.ParseGroupResource(name)] = struct{}{}
	}
	return out
}
