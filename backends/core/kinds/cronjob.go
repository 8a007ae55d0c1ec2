package kinds

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"strings"
	"time"
	_ "time/tzdata" // The zones of schedules are known on every machine.

	"github.com/robfig/cron/v3"
	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"portico/backends/core/kinds/rules"
	"portico/resource"
	"portico/resource/rest"
)

// maxCronJobName leaves room for the time that is added to the names of jobs.
const maxCronJobName = validation.DNS1035LabelMaxLength - 11

// cronJobs is the row of batch/v1 CronJob.
func cronJobs() *rest.Kind {
	return &rest.Kind{
		Info: resource.Info{
			Group: batchv1.GroupName, Versions: []string{"v1"}, Resource: "cronjobs", Kind: "CronJob",
			ShortNames: []string{"cj"}, Categories: []string{"all"}, Namespaced: true,
		},
		Strategy: rest.Strategy{
			Default:         onDefault(defaultCronJob),
			TrackGeneration: true,
			PrepareCreate: onCreate(func(cj *batchv1.CronJob) {
				cj.Status = batchv1.CronJobStatus{}
				prepareJobSpec(&cj.Spec.JobTemplate.Spec, nil)
			}),
			PrepareUpdate: onUpdate(func(cj, old *batchv1.CronJob) {
				old.Status.DeepCopyInto(&cj.Status)
				prepareJobSpec(&cj.Spec.JobTemplate.Spec, &old.Spec.JobTemplate.Spec)
			}),
			Validate:       check(validateCronJob),
			ValidateUpdate: checkUpdate(func(cj, old *batchv1.CronJob) field.ErrorList { return validateCronJobSpec(&cj.Spec, &old.Spec) }),
			Warnings:       cronJobWarnings,
		},
		Subresources: []rest.Subresource{{Name: "status", Strategy: &rest.Strategy{
			PrepareUpdate: onUpdate(func(cj, old *batchv1.CronJob) { old.Spec.DeepCopyInto(&cj.Spec) }),
		}}},
		Columns: append([]metav1.TableColumnDefinition{
			nameColumn(),
			column("Schedule", "string", "The schedule, in the format of cron."),
			column("Timezone", "string", "The time zone of the schedule."),
			column("Suspend", "boolean", "Whether no more jobs are started."),
			column("Active", "integer", "The number of running jobs."),
			column("Last Schedule", "string", "Time since a job was last started."),
			ageColumn(),
		}, podColumns()...),
		Cells:               cells(cronJobCells),
		UnconditionalUpdate: true,
	}
}

func defaultCronJob(cj *batchv1.CronJob) {
	defaultJobTemplate(&cj.Spec.JobTemplate.Spec)
	cj.Spec.ConcurrencyPolicy = cmp.Or(cj.Spec.ConcurrencyPolicy, batchv1.AllowConcurrent)
	rules.Default(&cj.Spec.Suspend, false)
	rules.Default(&cj.Spec.SuccessfulJobsHistoryLimit, 3)
	rules.Default(&cj.Spec.FailedJobsHistoryLimit, 1)
}

func cronJobWarnings(_ context.Context, obj, old rest.Object) []string {
	cj := obj.(*batchv1.CronJob)
	path := field.NewPath("spec", "jobTemplate", "spec")
	if old == nil {
		return append(podNameWarning(cj.Name), jobWarnings(&cj.Spec.JobTemplate.Spec, path)...)
	}
	var warnings []string
	if !equality.Semantic.DeepEqual(cj.Spec, old.(*batchv1.CronJob).Spec) {
		warnings = jobWarnings(&cj.Spec.JobTemplate.Spec, path)
	}
	if strings.Contains(cj.Spec.Schedule, "TZ") {
		warnings = append(warnings, "cannot use TZ or CRON_TZ in spec.spec.schedule, use timeZone instead, see "+
			"https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details")
	}
	return warnings
}

func cronJobCells(cj *batchv1.CronJob) []any {
	last, suspend := none, unset
	if t := cj.Status.LastScheduleTime; t != nil {
		last = age(*t)
	}
	if cj.Spec.Suspend != nil {
		suspend = map[bool]string{true: "True", false: "False"}[*cj.Spec.Suspend]
	}
	job := &cj.Spec.JobTemplate.Spec
	names, images := containerCells(job.Template.Spec.Containers)
	return []any{
		cj.Name, cj.Spec.Schedule, ptr.Deref(cj.Spec.TimeZone, none), suspend, int64(len(cj.Status.Active)), last,
		age(cj.CreationTimestamp), names, images, metav1.FormatLabelSelector(job.Selector),
	}
}

func validateCronJob(cj *batchv1.CronJob) field.ErrorList {
	errs := validateCronJobSpec(&cj.Spec, nil)
	if len(cj.Name) > maxCronJobName {
		errs = append(errs, field.Invalid(field.NewPath("metadata", "name"), cj.Name, fmt.Sprintf("must be no more than %d characters", maxCronJobName)))
	}
	return errs
}

// validateCronJobSpec validates a spec. old is nil on create.
func validateCronJobSpec(spec, old *batchv1.CronJobSpec) field.ErrorList {
	path := field.NewPath("spec")
	errs := validateSchedule(spec, old != nil && strings.Contains(old.Schedule, "TZ"), path.Child("schedule"))
	errs = append(errs, nonNegative(spec.StartingDeadlineSeconds, path.Child("startingDeadlineSeconds"))...)
	errs = append(errs, nonNegative(spec.SuccessfulJobsHistoryLimit, path.Child("successfulJobsHistoryLimit"))...)
	errs = append(errs, nonNegative(spec.FailedJobsHistoryLimit, path.Child("failedJobsHistoryLimit"))...)
	if zone := spec.TimeZone; zone != nil && (old == nil || !ptr.Equal(zone, old.TimeZone)) {
		errs = append(errs, validateTimeZone(*zone, path.Child("timeZone"))...)
	}
	errs = append(errs, rules.Enum(spec.ConcurrencyPolicy, path.Child("concurrencyPolicy"),
		batchv1.AllowConcurrent, batchv1.ForbidConcurrent, batchv1.ReplaceConcurrent)...)
	var was *batchv1.JobSpec
	if old != nil {
		was = &old.JobTemplate.Spec
	}
	job, path := &spec.JobTemplate.Spec, path.Child("jobTemplate", "spec")
	errs = append(errs, validateJobSpec(job, was, path)...)
	if job.Selector != nil {
		errs = append(errs, field.Invalid(path.Child("selector"), job.Selector, "`selector` will be auto-generated"))
	}
	if ptr.Deref(job.ManualSelector, false) {
		errs = append(errs, field.NotSupported(path.Child("manualSelector"), job.ManualSelector, []string{"nil", "false"}))
	}
	return errs
}

// validateSchedule validates a schedule. zoned is set if the stored one has a time zone in it.
func validateSchedule(spec *batchv1.CronJobSpec, zoned bool, path *field.Path) field.ErrorList {
	schedule := spec.Schedule
	if schedule == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	var errs field.ErrorList
	if err := parseSchedule(schedule); err != nil {
		errs = append(errs, field.Invalid(path, schedule, err.Error()))
	}
	switch has := strings.Contains(schedule, "TZ"); {
	case has && !zoned:
		errs = append(errs, field.Invalid(path, schedule, "cannot use TZ or CRON_TZ in schedule, use timeZone field instead"))
	case has && spec.TimeZone != nil:
		errs = append(errs, field.Invalid(path, schedule, "cannot use both timeZone field and TZ or CRON_TZ in schedule"))
	}
	return errs
}

// parseSchedule returns why a schedule cannot be read. The parser panics on some.
func parseSchedule(schedule string) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("invalid schedule format: %v", r)
		}
	}()
	_, err = cron.ParseStandard(schedule)
	return err
}

// zonePart is a part of the name of a time zone, which is the path of a file.
var zonePart = regexp.MustCompile(`^[A-Za-z._0-9+][A-Za-z._0-9+-]{0,13}$`)

func validateTimeZone(zone string, path *field.Path) field.ErrorList {
	if zone == "" {
		return field.ErrorList{field.Invalid(path, zone, "timeZone must be nil or non-empty string")}
	}
	for part := range strings.SplitSeq(zone, "/") {
		if part == "." || part == ".." || !zonePart.MatchString(part) {
			return field.ErrorList{field.Invalid(path, zone, "unknown time zone "+zone)}
		}
	}
	var errs field.ErrorList
	if strings.EqualFold(zone, "Local") {
		errs = append(errs, field.Invalid(path, zone, "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones"))
	}
	if _, err := time.LoadLocation(zone); err != nil {
		errs = append(errs, field.Invalid(path, zone, err.Error()))
	}
	return errs
}
