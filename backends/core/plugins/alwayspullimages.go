package plugins

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico/backends/core/kinds/podspec"
	"portico/resource/rest"
)

// newAlwaysPullImages makes nodes pull images for every pod, so that a pod runs no private image
// that another pod pulled.
func newAlwaysPullImages(*Config) (rest.Admission, error) { return alwaysPullImages{}, nil }

type alwaysPullImages struct{}

// Mutate implements rest.Admission.
func (alwaysPullImages) Mutate(_ context.Context, a *rest.Attributes) error {
	pod := podWithNewImage(a)
	if pod == nil {
		return nil
	}
	for c := range podspec.Containers(&pod.Spec) {
		c.ImagePullPolicy = corev1.PullAlways
	}
	for i := range pod.Spec.Volumes {
		if image := pod.Spec.Volumes[i].Image; image != nil {
			image.PullPolicy = corev1.PullAlways
		}
	}
	return nil
}

// Validate implements rest.Admission.
func (alwaysPullImages) Validate(_ context.Context, a *rest.Attributes) error {
	pod := podWithNewImage(a)
	if pod == nil {
		return nil
	}
	var errs []error
	check := func(path *field.Path, policy corev1.PullPolicy) {
		if policy != corev1.PullAlways {
			errs = append(errs, forbidden(a, field.NotSupported(path, policy, []corev1.PullPolicy{corev1.PullAlways})))
		}
	}
	spec := field.NewPath("spec")
	for c := range podspec.Containers(&pod.Spec) {
		check(c.Path(spec).Child("imagePullPolicy"), c.ImagePullPolicy)
	}
	for i := range pod.Spec.Volumes {
		if image := pod.Spec.Volumes[i].Image; image != nil {
			check(spec.Child("volumes").Index(i).Child("image", "pullPolicy"), image.PullPolicy)
		}
	}
	if len(errs) == 1 {
		return errs[0]
	}
	return utilerrors.NewAggregate(errs)
}

// podWithNewImage returns the new pod of a write, unless it is an update with the images of the
// old pod.
func podWithNewImage(a *rest.Attributes) *corev1.Pod {
	pod := podOf(a)
	old, update := a.Old.(*corev1.Pod)
	if pod == nil || !update {
		return pod
	}
	known := sets.New[string]()
	for c := range podspec.Containers(&old.Spec) {
		known.Insert(c.Image)
	}
	for c := range podspec.Containers(&pod.Spec) {
		if !known.Has(c.Image) {
			return pod
		}
	}
	return nil
}
