package kinds

import (
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
)

// validateJobStatusUpdate validates the status of a job. Most rules apply only to a field that
// changes, because a change of the spec may break them.
func validateJobStatusUpdate(job, old *batchv1.Job) field.ErrorList {
	now, was := jobStateOf(job), jobStateOf(old)
	errs := validateJobCounts(&job.Status)
	errs = append(errs, validateUncounted(job.Status.UncountedTerminatedPods)...)
	errs = append(errs, validateJobConditions(job, now, was)...)
	errs = append(errs, validateJobTimes(job, old, now, was)...)
	errs = append(errs, validateFinishedJob(job, old, now, was)...)
	return append(errs, validateJobIndexes(job, old)...)
}

// jobState has the conditions of a job that are true.
type jobState struct{ complete, failed, failureTarget, successCriteria, finished bool }

func jobStateOf(job *batchv1.Job) jobState {
	is := func(t batchv1.JobConditionType) bool { return hasJobCondition(job, t, corev1.ConditionTrue) }
	s := jobState{complete: is(batchv1.JobComplete), failed: is(batchv1.JobFailed), failureTarget: is(batchv1.JobFailureTarget), successCriteria: is(batchv1.JobSuccessCriteriaMet)}
	s.finished = s.complete || s.failed
	return s
}

func validateJobCounts(status *batchv1.JobStatus) field.ErrorList {
	var errs field.ErrorList
	for name, n := range map[string]int32{
		"active": status.Active, "succeeded": status.Succeeded, "failed": status.Failed,
		"ready": ptr.Deref(status.Ready, 0), "terminating": ptr.Deref(status.Terminating, 0),
	} {
		errs = append(errs, apivalidation.ValidateNonnegativeField(int64(n), field.NewPath("status", name))...)
	}
	return errs
}

func validateUncounted(pods *batchv1.UncountedTerminatedPods) field.ErrorList {
	if pods == nil {
		return nil
	}
	var errs field.ErrorList
	seen := map[types.UID]bool{}
	each := func(name string, uids []types.UID) {
		for i, uid := range uids {
			at := field.NewPath("status", "uncountedTerminatedPods", name).Index(i)
			switch {
			case uid == "":
				errs = append(errs, field.Invalid(at, uid, "must not be empty"))
			case seen[uid]:
				errs = append(errs, field.Duplicate(at, uid))
			}
			seen[uid] = true
		}
	}
	each("succeeded", pods.Succeeded)
	each("failed", pods.Failed)
	return errs
}

func validateJobConditions(job *batchv1.Job, now, was jobState) field.ErrorList {
	var errs field.ErrorList
	path := field.NewPath("status", "conditions")
	refuse := func(bad bool, message string) {
		if bad {
			errs = append(errs, field.Invalid(path, field.OmitValueType{}, message))
		}
	}
	complete, failed := now.complete != was.complete, now.failed != was.failed
	refuse((complete || failed) && now.complete && now.failed, "cannot set Complete=True and Failed=true conditions")
	refuse((complete || now.failureTarget != was.failureTarget) && now.complete && now.failureTarget, "cannot set Complete=True and FailureTarget=true conditions")
	refuse((complete || now.successCriteria != was.successCriteria) && now.complete && !now.successCriteria,
		"cannot set Complete=True condition without the SuccessCriteriaMet=true condition")
	refuse(now.successCriteria && now.failed, "cannot set SuccessCriteriaMet=True and Failed=true conditions")
	refuse(now.successCriteria && now.failureTarget, "cannot set SuccessCriteriaMet=True and FailureTarget=true conditions")
	refuse(job.Spec.SuccessPolicy != nil && now.complete && !now.successCriteria, "cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True")
	refuse(was.failed && !now.failed, "cannot disable the terminal Failed=True condition")
	refuse(was.complete && !now.complete, "cannot disable the terminal Complete=True condition")
	refuse(was.failureTarget && !now.failureTarget, "cannot disable the terminal FailureTarget=True condition")
	refuse(was.successCriteria && !now.successCriteria, "cannot disable the SuccessCriteriaMet=True condition")
	refuse(was.complete && !was.successCriteria && now.successCriteria, "cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions")
	return errs
}

func validateJobTimes(job, old *batchv1.Job, now, was jobState) field.ErrorList {
	var errs field.ErrorList
	path := field.NewPath("status")
	start, end := job.Status.StartTime, job.Status.CompletionTime
	started, ended := !start.Equal(old.Status.StartTime), !end.Equal(old.Status.CompletionTime)
	at := path.Child("completionTime")
	if ended || now.complete != was.complete {
		if end != nil && !now.complete {
			errs = append(errs, field.Invalid(at, end, "cannot set completionTime when there is no Complete=True condition"))
		}
		if end == nil && now.complete {
			errs = append(errs, field.Required(at, "completionTime is required for Complete jobs"))
		}
	}
	if (started || ended) && start != nil && end.Before(start) && end != nil {
		errs = append(errs, field.Invalid(at, end, "must be equal to or after `startTime`"))
	}
	if end != nil && old.Status.CompletionTime != nil && ended {
		errs = append(errs, field.Invalid(at, end, "field is immutable"))
	}
	at = path.Child("startTime")
	suspended := ptr.Deref(job.Spec.Suspend, false)
	if (started || now.finished != was.finished) && start == nil && now.finished && !(suspended && ptr.Equal(job.Spec.Completions, new(int32))) {
		errs = append(errs, field.Required(at, "startTime is required for finished job"))
	}
	resumed := hasJobCondition(old, batchv1.JobSuspended, corev1.ConditionTrue) && hasJobCondition(job, batchv1.JobSuspended, corev1.ConditionFalse)
	if started && !resumed && old.Status.StartTime != nil && !suspended {
		errs = append(errs, field.Invalid(at, start, "field is immutable for unsuspended job once set"))
	}
	return errs
}

// validateFinishedJob validates the numbers of pods against the conditions, each other and
// those before.
func validateFinishedJob(job, old *batchv1.Job, now, was jobState) field.ErrorList {
	var errs field.ErrorList
	status, before := &job.Status, &old.Status
	refuse := func(bad bool, name string, value any, message string) {
		if bad {
			errs = append(errs, field.Invalid(field.NewPath("status", name), value, message))
		}
	}
	finished := func(changed bool) bool { return now.finished && (changed || !was.finished) }
	active, pods := status.Active != before.Active, status.UncountedTerminatedPods
	refuse(finished(active) && status.Active > 0, "active", status.Active, "active>0 is invalid for finished job")
	refuse(finished(!equality.Semantic.DeepEqual(pods, before.UncountedTerminatedPods)) && pods != nil && len(pods.Failed)+len(pods.Succeeded) > 0,
		"uncountedTerminatedPods", pods, "must be empty for finished job")
	refuse(finished(!ptr.Equal(status.Terminating, before.Terminating)) && ptr.Deref(status.Terminating, 0) > 0,
		"terminating", status.Terminating, "terminating>0 is invalid for finished job")
	ready := ptr.Deref(status.Ready, 0)
	refuse((active || !ptr.Equal(status.Ready, before.Ready)) && status.Ready != nil && ready > status.Active, "ready", ready, "cannot set more ready pods than active")
	refuse(status.Failed < before.Failed, "failed", status.Failed, "cannot decrease the failed counter")
	// An indexed job with as many pods as completions can be made smaller.
	shrinks := isIndexed(&job.Spec) && ptr.Equal(job.Spec.Completions, job.Spec.Parallelism)
	refuse(status.Succeeded < before.Succeeded && !shrinks, "succeeded", status.Succeeded, "cannot decrease the succeeded counter")
	if failedIndexes := !ptr.Equal(status.FailedIndexes, before.FailedIndexes); failedIndexes || now.failed != was.failed {
		refuse(now.failed && !now.failureTarget, "conditions", field.OmitValueType{}, "cannot set Failed=True condition without the FailureTarget=true condition")
	}
	return errs
}

func validateJobIndexes(job, old *batchv1.Job) field.ErrorList {
	var errs field.ErrorList
	status, spec := &job.Status, &job.Spec
	done, failed := field.NewPath("status", "completedIndexes"), field.NewPath("status", "failedIndexes")
	limit := ptr.Deref(spec.Completions, 0)
	doneChanged, failedChanged := status.CompletedIndexes != old.Status.CompletedIndexes, !ptr.Equal(status.FailedIndexes, old.Status.FailedIndexes)
	if !doneChanged && !failedChanged {
		return nil
	}
	completed, err := parseIndexes(status.CompletedIndexes, limit)
	if doneChanged {
		if spec.Completions != nil && err != nil {
			errs = append(errs, field.Invalid(done, status.CompletedIndexes, "error parsing completedIndexes: "+err.Error()))
		}
		if status.CompletedIndexes != "" && !isIndexed(spec) {
			errs = append(errs, field.Invalid(done, status.CompletedIndexes, "cannot set non-empty completedIndexes when non-indexed completion mode"))
		}
	}
	if status.FailedIndexes == nil {
		return errs
	}
	text := *status.FailedIndexes
	lost, err := parseIndexes(text, limit)
	if failedChanged {
		if spec.BackoffLimitPerIndex == nil {
			errs = append(errs, field.Invalid(failed, text, "cannot set non-null failedIndexes when backoffLimitPerIndex is null"))
		} else if spec.Completions != nil && err != nil {
			errs = append(errs, field.Invalid(failed, text, "error parsing failedIndexes: "+err.Error()))
		}
	}
	if at, ok := overlap(completed, lost); ok && spec.Completions != nil {
		errs = append(errs, field.Invalid(failed, text, fmt.Sprintf("failedIndexes and completedIndexes overlap at index: %d", at)))
	}
	return errs
}

// overlap returns the first index that is in both of two sorted lists.
func overlap(a, b []indexes) (int32, bool) {
	for len(a) > 0 && len(b) > 0 {
		if a[0].first <= b[0].last && b[0].first <= a[0].last {
			return max(a[0].first, b[0].first), true
		}
		if a[0].first <= b[0].first {
			a = a[1:]
		} else {
			b = b[1:]
		}
	}
	return 0, false
}
