package kinds

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"portico/backends/core/kinds/podspec"
	"portico/backends/core/kinds/rules"
	"portico/resource"
	"portico/resource/rest"
)

const (
	// batchPrefix is the domain of the labels that jobs give their pods.
	batchPrefix = "batch.kubernetes.io/"
	// defaultBackoffLimit is the number of retries of a job.
	defaultBackoffLimit = 6
)

// jobs is the row of batch/v1 Job. job_validation.go has the rules of its spec, which those of
// CronJob use, and job_status.go those of its status.
func jobs() *rest.Kind {
	return &rest.Kind{
		Info: resource.Info{
			Group: batchv1.GroupName, Versions: []string{"v1"}, Resource: "jobs", Kind: "Job", Categories: []string{"all"}, Namespaced: true,
		},
		Strategy: rest.Strategy{
			Default:         onDefault(defaultJob),
			TrackGeneration: true,
			PrepareCreate:   onCreate(prepareJob),
			PrepareUpdate: onUpdate(func(job, old *batchv1.Job) {
				old.Status.DeepCopyInto(&job.Status)
				prepareJobSpec(&job.Spec, &old.Spec)
			}),
			Validate:       check(validateJob),
			ValidateUpdate: checkUpdate(validateJobUpdate),
			Warnings: func(_ context.Context, obj, old rest.Object) []string {
				job := obj.(*batchv1.Job)
				if old == nil {
					return append(podNameWarning(job.Name), jobWarnings(&job.Spec, field.NewPath("spec"))...)
				}
				if equality.Semantic.DeepEqual(job.Spec, old.(*batchv1.Job).Spec) {
					return nil
				}
				return jobWarnings(&job.Spec, field.NewPath("spec"))
			},
			DefaultPropagation: metav1.DeletePropagationOrphan,
		},
		Subresources: []rest.Subresource{{Name: "status", Strategy: &rest.Strategy{
			PrepareUpdate:  onUpdate(func(job, old *batchv1.Job) { old.Spec.DeepCopyInto(&job.Spec) }),
			ValidateUpdate: checkUpdate(validateJobStatusUpdate),
		}}},
		Columns: append([]metav1.TableColumnDefinition{
			nameColumn(),
			column("Status", "string", "Whether the job runs, waits or has ended, and how."),
			column("Completions", "string", "The pods that succeeded, of those that have to."),
			column("Duration", "string", "The time from the start to the completion."),
			ageColumn(),
		}, podColumns()...),
		Cells:       cells(jobCells),
		FieldLabels: []string{"status.successful"},
		Fields: fieldsOf(func(job *batchv1.Job) map[string]string {
			return map[string]string{"status.successful": strconv.Itoa(int(job.Status.Succeeded))}
		}),
		UnconditionalUpdate: true,
	}
}

func defaultJob(job *batchv1.Job) {
	defaultJobTemplate(&job.Spec)
	spec := &job.Spec
	if spec.Parallelism == nil && spec.Completions == nil {
		spec.Completions = new(int32(1))
	}
	rules.Default(&spec.Parallelism, 1)
	limit := int32(defaultBackoffLimit)
	if spec.BackoffLimitPerIndex != nil {
		limit = math.MaxInt32
	}
	rules.Default(&spec.BackoffLimit, limit)
	if len(job.Labels) == 0 && spec.Template.Labels != nil {
		// The map is shared until the generated labels are in it.
		job.Labels = spec.Template.Labels
	}
	rules.Default(&spec.CompletionMode, batchv1.NonIndexedCompletion)
	rules.Default(&spec.Suspend, false)
	replacement := batchv1.TerminatingOrFailed
	if spec.PodFailurePolicy != nil {
		replacement = batchv1.Failed
	}
	rules.Default(&spec.PodReplacementPolicy, replacement)
	rules.Default(&spec.ManualSelector, false)
}

// defaultJobTemplate sets the defaults that the spec of a job has in a CronJob as well.
func defaultJobTemplate(spec *batchv1.JobSpec) {
	podspec.SetDefaults(&spec.Template.Spec)
	if spec.PodFailurePolicy == nil {
		return
	}
	for _, rule := range spec.PodFailurePolicy.Rules {
		for i := range rule.OnPodConditions {
			if c := &rule.OnPodConditions[i]; c.Status == "" {
				c.Status = corev1.ConditionTrue
			}
		}
	}
}

func prepareJob(job *batchv1.Job) {
	job.Status = batchv1.JobStatus{}
	if !ptr.Deref(job.Spec.ManualSelector, false) {
		generateSelector(job)
	}
	if len(job.Labels) == 0 {
		job.Labels = job.Spec.Template.Labels
	}
	job.Labels = maps.Clone(job.Labels)
	prepareJobSpec(&job.Spec, nil)
}

// prepareJobSpec clears the fields behind gates that are off. old is nil on create.
func prepareJobSpec(spec, old *batchv1.JobSpec) {
	if old == nil || old.Scheduling == nil {
		spec.Scheduling = nil
	}
	var template *corev1.PodTemplateSpec
	if old != nil {
		template = &old.Template
	}
	podspec.DropTemplateFields(&spec.Template, template)
}

// jobLabels returns the labels of the pods of a job, each under two keys.
func jobLabels(job *batchv1.Job) map[string]string {
	out := map[string]string{}
	for key, value := range map[string]string{"job-name": job.Name, "controller-uid": string(job.UID)} {
		out[key], out[batchPrefix+key] = value, value
	}
	return out
}

// generateSelector makes the job select the pods with its uid. Labels that the client wrote are
// kept, and validation reports them.
func generateSelector(job *batchv1.Job) {
	if job.Spec.Template.Labels == nil {
		job.Spec.Template.Labels = map[string]string{}
	}
	keep := func(to map[string]string, key, value string) {
		if _, ok := to[key]; !ok {
			to[key] = value
		}
	}
	for key, value := range jobLabels(job) {
		keep(job.Spec.Template.Labels, key, value)
	}
	rules.Default(&job.Spec.Selector, metav1.LabelSelector{})
	if job.Spec.Selector.MatchLabels == nil {
		job.Spec.Selector.MatchLabels = map[string]string{}
	}
	keep(job.Spec.Selector.MatchLabels, batchv1.ControllerUidLabel, string(job.UID))
}

func jobWarnings(spec *batchv1.JobSpec, path *field.Path) []string {
	var warnings []string
	if isIndexed(spec) && ptr.Deref(spec.Completions, 0) > manyCompletions && ptr.Deref(spec.Parallelism, 0) > parallelismOfMany {
		warnings = append(warnings, fmt.Sprintf("%s: In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than 10^4, "+
			"Kubernetes might not be able to track completedIndexes when a big number of indexes fail", path))
	}
	return append(warnings, podspec.TemplateWarnings(&spec.Template, path.Child("template"))...)
}

// jobPhases are the conditions that name the status of a job, the first one first; "" stands
// for a deletion that has begun.
var jobPhases = []batchv1.JobConditionType{
	batchv1.JobComplete, batchv1.JobFailed, "", batchv1.JobSuspended, batchv1.JobFailureTarget, batchv1.JobSuccessCriteriaMet,
}

func jobCells(job *batchv1.Job) []any {
	status := "Running"
	if i := slices.IndexFunc(jobPhases, func(t batchv1.JobConditionType) bool {
		return t == "" && job.DeletionTimestamp != nil || t != "" && hasJobCondition(job, t, corev1.ConditionTrue)
	}); i >= 0 {
		if status = string(jobPhases[i]); status == "" {
			status = "Terminating"
		}
	}
	completions := fmt.Sprintf("%d/1", job.Status.Succeeded)
	if wanted := job.Spec.Completions; wanted != nil {
		completions = fmt.Sprintf("%d/%d", job.Status.Succeeded, *wanted)
	} else if p := ptr.Deref(job.Spec.Parallelism, 0); p > 1 {
		completions += fmt.Sprintf(" of %d", p)
	}
	taken := ""
	if start, end := job.Status.StartTime, job.Status.CompletionTime; start != nil {
		until := time.Now()
		if end != nil {
			until = end.Time
		}
		taken = duration.HumanDuration(until.Sub(start.Time))
	}
	names, images := containerCells(job.Spec.Template.Spec.Containers)
	return []any{
		job.Name, status, completions, taken, age(job.CreationTimestamp), names, images, metav1.FormatLabelSelector(job.Spec.Selector),
	}
}

func hasJobCondition(job *batchv1.Job, kind batchv1.JobConditionType, status corev1.ConditionStatus) bool {
	return slices.ContainsFunc(job.Status.Conditions, func(c batchv1.JobCondition) bool { return c.Type == kind && c.Status == status })
}

// indexes are index intervals in the text form of statuses and success policies: "1,3-5".
type indexes struct{ first, last int32 }

// parseIndexes reads intervals below completions, in increasing order. Those that can be read
// are returned with the first error.
func parseIndexes(text string, completions int32) (all []indexes, err error) {
	if text == "" {
		return nil, nil
	}
	fail := func(format string, args ...any) {
		if err == nil {
			err = fmt.Errorf(format, args...)
		}
	}
	for part := range strings.SplitSeq(text, ",") {
		interval, broken := parseInterval(part, completions)
		if broken != nil {
			fail("%w", broken)
			continue
		}
		if n := len(all); n > 0 && all[n-1].last >= interval.first {
			fail("non-increasing order, previous: %d, current: %d", all[n-1].last, interval.first)
		}
		all = append(all, interval)
	}
	return all, err
}

func parseInterval(text string, completions int32) (indexes, error) {
	limits := strings.Split(text, "-")
	if len(limits) > 2 {
		return indexes{}, fmt.Errorf("the fragment %q violates the requirement that an index interval can have at most two parts separated by '-'", text)
	}
	var at [2]int
	for i, limit := range limits {
		n, err := strconv.Atoi(limit)
		if err != nil {
			return indexes{}, fmt.Errorf("cannot convert string to integer for index: %q", limit)
		}
		if n >= int(completions) {
			return indexes{}, fmt.Errorf("too large index: %q", limit)
		}
		at[i] = n
	}
	if len(limits) == 1 {
		at[1] = at[0]
	} else if at[0] >= at[1] {
		return indexes{}, fmt.Errorf("non-increasing order, previous: %d, current: %d", at[0], at[1])
	}
	return indexes{int32(at[0]), int32(at[1])}, nil
}
