package controllers

import (
	"context"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ttlAfterFinished deletes Jobs, with their dependents, spec.ttlSecondsAfterFinished after
// they have finished.
func ttlAfterFinished(ctx context.Context, env *Env) error {
	jobs, queue := env.Informers.Batch().V1().Jobs(), env.NewQueue("ttl_jobs_to_delete")
	Handle(env, jobs.Informer(), func(_, job *batchv1.Job) {
		if _, ok := expiry(job); ok {
			queue.Add(Key(job))
		}
	})
	// due reports whether a Job has to be deleted; one that is to be deleted later is queued.
	due := func(job *batchv1.Job) bool {
		at, ok := expiry(job)
		wait := at.Sub(env.Clock.Now())
		if ok && wait > 0 {
			queue.AddAfter(Key(job), wait)
		}
		return ok && wait <= 0
	}
	return env.Work(ctx, Loop{Queue: queue, Workers: 5, Sync: func(ctx context.Context, namespace, name string) error {
		job, err := jobs.Lister().Jobs(namespace).Get(name)
		if err != nil || !due(job) {
			return ignoreNotFound(err)
		}
		// The informer may be late, and the TTL changed.
		job, err = env.Client.BatchV1().Jobs(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil || !due(job) {
			return ignoreNotFound(err)
		}
		foreground := metav1.DeletePropagationForeground
		return ignoreNotFound(env.Client.BatchV1().Jobs(namespace).Delete(ctx, name, metav1.DeleteOptions{
			PropagationPolicy: &foreground, Preconditions: &metav1.Preconditions{UID: &job.UID},
		}))
	}})
}

// expiry returns when a Job has to be deleted; ok is false if it does not have to be. job may
// be nil.
func expiry(job *batchv1.Job) (at time.Time, ok bool) {
	if job == nil || job.DeletionTimestamp != nil || job.Spec.TTLSecondsAfterFinished == nil {
		return time.Time{}, false
	}
	for _, c := range job.Status.Conditions {
		if (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) && c.Status == corev1.ConditionTrue {
			return c.LastTransitionTime.Add(time.Duration(*job.Spec.TTLSecondsAfterFinished) * time.Second), !c.LastTransitionTime.IsZero()
		}
	}
	return time.Time{}, false
}
