package pods

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	policyv1beta1 "k8s.io/api/policy/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico/resource"
	"portico/resource/rest"
)

const (
	// evictionAttempts and evictionWait bound the attempts to delete a pod that changes
	// meanwhile.
	evictionAttempts = 20
	evictionWait     = 500 * time.Millisecond
)

// eviction is one request to evict a pod. It is used by one goroutine.
type eviction struct {
	*Actions
	key resource.Key
	// opts are those of the body with the dry run of the request.
	opts *metav1.DeleteOptions
}

// Evict deletes a pod unless a disruption budget forbids it. body is an Eviction. Errors:
// TooManyRequests with the cause DisruptionBudget if the budget forbids it now; Invalid;
// NotFound; Conflict; an internal error for a pod with several budgets.
func (a *Actions) Evict(ctx context.Context, key resource.Key, body runtime.Object, dryRun bool) (runtime.Object, error) {
	e := &eviction{Actions: a, key: key}
	var err error
	if e.opts, err = evictionOptions(key.Name, body, dryRun); err != nil {
		return nil, err
	}
	pod, err := e.evictUnguarded(ctx)
	if err == nil && pod != nil {
		err = e.evictGuarded(ctx, pod)
	}
	if err != nil {
		return nil, err
	}
	return &metav1.Status{Status: metav1.StatusSuccess}, nil
}

// evictionOptions returns the options of the deletion.
func evictionOptions(name string, body runtime.Object, dryRun bool) (*metav1.DeleteOptions, error) {
	var opts *metav1.DeleteOptions
	switch b := body.(type) {
	case *policyv1.Eviction:
		opts = b.DeleteOptions
	case *policyv1beta1.Eviction:
		opts = b.DeleteOptions
	default:
		return nil, apierrors.NewBadRequest(fmt.Sprintf("not a Eviction object: %T", body))
	}
	if opts == nil {
		opts = &metav1.DeleteOptions{}
	}
	var errs field.ErrorList
	if unsafe := opts.IgnoreStoreReadErrorWithClusterBreakingPotential; unsafe != nil && *unsafe {
		errs = append(errs, field.Invalid(field.NewPath("deleteOptions", "ignoreStoreReadErrorWithClusterBreakingPotential"), true,
			"can not be set for pod eviction, try after removing the option"))
		return nil, apierrors.NewInvalid(policyv1.SchemeGroupVersion.WithKind("Eviction").GroupKind(), name, errs)
	}
	if asked := []string{metav1.DryRunAll}; dryRun {
		if len(opts.DryRun) > 0 && !reflect.DeepEqual(opts.DryRun, asked) {
			return nil, apierrors.NewBadRequest(fmt.Sprintf("Non-matching dry-run options in request and content: %v and %v", asked, opts.DryRun))
		}
		opts.DryRun = asked
	}
	if errs := metav1validation.ValidateDeleteOptions(opts); len(errs) > 0 {
		return nil, apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "DeleteOptions"}, "", errs)
	}
	return opts, nil
}

// evictUnguarded deletes a pod that no budget counts. It returns another pod.
func (e *eviction) evictUnguarded(ctx context.Context) (*corev1.Pod, error) {
	for attempt := 1; ; attempt++ {
		pod, err := rest.GetObject[*corev1.Pod](ctx, e.pods(), e.key, resource.At{})
		if err != nil {
			return nil, err
		}
		ended := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed || pod.DeletionTimestamp != nil
		if !ended && pod.Status.Phase != corev1.PodPending {
			return pod, nil
		}
		opts := e.opts
		if !ended && e.unconditional() {
			opts = atRevision(opts, pod.ResourceVersion) // it may become ready
		}
		err = e.remove(ctx, opts)
		if !apierrors.IsConflict(err) || !e.unconditional() || attempt == evictionAttempts {
			return nil, err
		}
		select {
		case <-time.After(evictionWait):
		case <-ctx.Done():
			return nil, err
		}
	}
}

// evictGuarded deletes a running pod if its budget permits.
func (e *eviction) evictGuarded(ctx context.Context, pod *corev1.Pod) error {
	budgets, err := e.budgetsOf(ctx, pod)
	if err != nil {
		return err
	}
	opts, budget := e.opts, ""
	switch {
	case len(budgets) > 1:
		return &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusInternalServerError,
			Message: "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
		}}
	case len(budgets) == 1 && sparesHealthy(pod, budgets[0]):
		// It must not have become ready meanwhile.
		opts, budget = atRevision(opts, pod.ResourceVersion), budgets[0].Name
	case len(budgets) == 1:
		if err := e.spend(ctx, budgets[0].Name); err != nil {
			return err
		}
	}
	err = e.remove(ctx, opts)
	if budget != "" && apierrors.IsConflict(err) && e.unconditional() {
		return tooManyRequests(budget)
	}
	return err
}

// unconditional reports whether the client has not set a resourceVersion.
func (e *eviction) unconditional() bool {
	return e.opts.Preconditions == nil || e.opts.Preconditions.ResourceVersion == nil
}

// atRevision returns the options with a resourceVersion as precondition.
func atRevision(opts *metav1.DeleteOptions, revision string) *metav1.DeleteOptions {
	opts = opts.DeepCopy()
	if opts.Preconditions == nil {
		opts.Preconditions = &metav1.Preconditions{}
	}
	opts.Preconditions.ResourceVersion = &revision
	return opts
}

// remove adds the condition DisruptionTarget to the pod and deletes it.
func (e *eviction) remove(ctx context.Context, opts *metav1.DeleteOptions) error {
	if len(opts.DryRun) == 0 {
		pod, err := modify(ctx, e.pods(), e.key, false, func(p *corev1.Pod) error {
			if err := checkPreconditions(p, opts.Preconditions); err != nil {
				return err
			}
			setCondition(&p.Status, corev1.PodCondition{
				Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue,
				Reason: "EvictionByEvictionAPI", Message: "Eviction API: evicting",
			})
			return nil
		})
		if err != nil {
			return err
		}
		if opts.Preconditions != nil && opts.Preconditions.ResourceVersion != nil {
			opts = atRevision(opts, pod.ResourceVersion)
		}
	}
	return e.Delete(ctx, e.pods(), e.key, opts)
}

func checkPreconditions(p *corev1.Pod, want *metav1.Preconditions) error {
	if want == nil {
		return nil
	}
	pod := schema.GroupResource{Resource: "Pod"}
	if uid := want.UID; uid != nil && *uid != "" && *uid != p.UID {
		return apierrors.NewConflict(pod, p.Name, fmt.Errorf("the UID in the precondition (%s) does not match the UID in record (%s). "+
			"The object might have been deleted and then recreated", *uid, p.UID))
	}
	if rv := want.ResourceVersion; rv != nil && *rv != "" && *rv != p.ResourceVersion {
		return apierrors.NewConflict(pod, p.Name, fmt.Errorf("the ResourceVersion in the precondition (%s) does not match the ResourceVersion in record (%s). "+
			"The object might have been modified", *rv, p.ResourceVersion))
	}
	return nil
}

// tooManyRequests is the 429 for a budget with a status that is out of date.
func tooManyRequests(budget string) error {
	err := apierrors.NewTooManyRequests(violates, 10)
	err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes,
		because("The disruption budget %s is still being processed by the server.", budget))
	return err
}

// forbidden is the 403 for a budget with an impossible status.
func forbidden(budget, why, cause string) error {
	err := apierrors.NewForbidden(schema.GroupResource{Group: policyv1.GroupName, Resource: "poddisruptionbudget"}, budget, errors.New(why))
	err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes,
		because("The disruption budget %s does not allow evicting pods currently: %s", budget, cause))
	return err
}

// violates is the message of an eviction that a budget forbids.
const violates = "Cannot evict pod as it would violate the pod's disruption budget."

func because(format string, args ...any) metav1.StatusCause {
	return metav1.StatusCause{Type: policyv1.DisruptionBudgetCause, Message: fmt.Sprintf(format, args...)}
}
