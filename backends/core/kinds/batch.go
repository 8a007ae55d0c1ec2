package kinds

import (
	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/kubernetes/pkg/registry/batch/cronjob"
	"k8s.io/kubernetes/pkg/registry/batch/job"
)

// batchRows are the resources of batch.
func batchRows() []row {
	return []row{
		{
			Info:     inAll(namespaced(batchv1.GroupName, "cronjobs", "CronJob", "cj")),
			strategy: cronjob.Strategy, status: cronjob.StatusStrategy,
		},
		{
			Info:     inAll(namespaced(batchv1.GroupName, "jobs", "Job")),
			strategy: job.Strategy, status: job.StatusStrategy,
			fields: fieldsFrom(job.GetAttrs), fieldLabels: []string{"status.successful"},
		},
	}
}
