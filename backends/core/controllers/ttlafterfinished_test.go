package controllers

import (
	"testing"
	"time"

	"portico/internal/testing/await"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
)

// A Job is deleted when its TTL has passed since it finished: with its dependents, and not
// earlier.
func TestTTLAfterFinished(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	now := clocktesting.NewFakeClock(time.Now().Truncate(time.Second))
	jobs := s.BatchV1().Jobs("default")
	finished := func(name string, ttl *int32, condition batchv1.JobConditionType) {
		job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: batchv1.JobSpec{
			TTLSecondsAfterFinished: ttl,
			Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
				RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "c", Image: "i"}},
			}},
		}}
		create(t, jobs, job, func(job *batchv1.Job) {
			at := metav1.NewTime(now.Now())
			job.Status.StartTime = &at
			if condition == "" {
				return
			}
			before := batchv1.JobSuccessCriteriaMet
			if condition == batchv1.JobFailed {
				before = batchv1.JobFailureTarget
			} else {
				job.Status.CompletionTime = &at
				job.Status.Succeeded = 1
			}
			for _, c := range []batchv1.JobConditionType{before, condition} {
				job.Status.Conditions = append(job.Status.Conditions, batchv1.JobCondition{Type: c, Status: corev1.ConditionTrue, LastTransitionTime: at})
			}
		})
	}
	finished("complete", new(int32(10)), batchv1.JobComplete)
	finished("failed", new(int32(20)), batchv1.JobFailed)
	finished("at-once", new(int32(0)), batchv1.JobComplete)
	finished("running", new(int32(0)), "")
	finished("kept", nil, batchv1.JobComplete)
	s.run("ttl-after-finished-controller", Options{}, now)

	deleting := func(name string) bool {
		job := must[*batchv1.Job](t)(jobs.Get(t.Context(), name, metav1.GetOptions{}))
		return job.DeletionTimestamp != nil && job.Finalizers[0] == metav1.FinalizerDeleteDependents
	}
	await.Until(t, "the Job without time is deleted", func() bool { return deleting("at-once") })
	await.Until(t, "two Jobs wait", func() bool { return now.Waiters() >= 2 })
	now.Step(10 * time.Second)
	await.Until(t, "the first is deleted", func() bool { return deleting("complete") })
	if deleting("failed") {
		t.Error("a Job is deleted before its time")
	}
	now.Step(10 * time.Second)
	await.Until(t, "the second is deleted", func() bool { return deleting("failed") })
	if deleting("running") || deleting("kept") {
		t.Error("a Job is deleted that is not to be")
	}
}
