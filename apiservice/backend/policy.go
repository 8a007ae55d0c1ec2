package backend

import (
	"cmp"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Policy is how requests are sent to a Backend, with all defaults. It is comparable.
//
// +k8s:openapi-gen=false
type Policy struct {
	Balance Balance
	// PanicThresholdPercent 0 is off.
	PanicThresholdPercent int
	HealthCheck           HealthPolicy
	Outlier               OutlierPolicy
	SlowStart             SlowStartPolicy
	Timeouts              TimeoutPolicy
	Retries               RetryPolicy
	Limits                LimitPolicy
}

// HealthPolicy is the active check. Path "": reading the discovery is the check.
//
// +k8s:openapi-gen=false
type HealthPolicy struct {
	Path                       string
	Interval, Suspect, Timeout time.Duration
	Fall, Rise                 int
}

// OutlierPolicy ejects endpoints by the results of requests. ConsecutiveErrors and
// ConsecutiveLocalErrors 0 are off.
//
// +k8s:openapi-gen=false
type OutlierPolicy struct {
	ConsecutiveErrors, ConsecutiveLocalErrors int
	BaseEjectionTime, MaxEjectionTime         time.Duration
	MaxEjectionPercent                        int
}

// SlowStartPolicy is how the share of an endpoint grows. Window 0 is off.
//
// +k8s:openapi-gen=false
type SlowStartPolicy struct {
	Window                              time.Duration
	MinWeightPercent, AggressionPercent int
}

// TimeoutPolicy bounds one attempt, and connections. MaxConnectionAge 0 is off.
//
// +k8s:openapi-gen=false
type TimeoutPolicy struct{ Connect, ResponseHeader, Idle, MaxConnectionAge time.Duration }

// RetryPolicy bounds retries. Attempts counts the first one.
//
// +k8s:openapi-gen=false
type RetryPolicy struct{ BudgetPercent, MinPerSecond, Attempts int }

// LimitPolicy bounds requests in flight.
//
// +k8s:openapi-gen=false
type LimitPolicy struct{ Concurrent, Queue int }

// Defaults of fields that a Backend does not set.
const (
	defaultWeight        = 1
	defaultPort          = 443
	defaultOpenAPIPath   = "/openapi.json"
	defaultGroupPriority = 1000
	defaultVersion       = 15
	// suspectShare is the rate of checks of a suspect endpoint, as a multiple of the normal
	// one.
	suspectShare = 10
)

// DefaultPolicy is the policy of a server without a Backend.
func DefaultPolicy() Policy { return (&Spec{}).Policy() }

// Policy returns how requests are sent, with the defaults of unset fields.
func (s *Spec) Policy() Policy {
	p := Policy{Balance: cmp.Or(s.Balance, LeastRequest), PanicThresholdPercent: number(s.PanicThresholdPercent, 50)}

	check := orEmpty(s.HealthCheck)
	p.HealthCheck = HealthPolicy{
		Path: check.Path, Interval: span(check.Interval, 5*time.Second), Timeout: span(check.Timeout, time.Second),
		Fall: number(check.Fall, 3), Rise: number(check.Rise, 2),
	}
	p.HealthCheck.Suspect = p.HealthCheck.Interval / suspectShare

	outlier := orEmpty(s.OutlierDetection)
	p.Outlier = OutlierPolicy{
		ConsecutiveErrors: number(outlier.ConsecutiveErrors, 5), ConsecutiveLocalErrors: number(outlier.ConsecutiveLocalErrors, 3),
		BaseEjectionTime: span(outlier.BaseEjectionTime, 30*time.Second), MaxEjectionPercent: number(outlier.MaxEjectionPercent, 50),
	}
	// A base above the default maximum raises the maximum.
	p.Outlier.MaxEjectionTime = span(outlier.MaxEjectionTime, max(300*time.Second, p.Outlier.BaseEjectionTime))

	slow := orEmpty(s.SlowStart)
	p.SlowStart = SlowStartPolicy{
		Window: span(slow.Window, 10*time.Second), MinWeightPercent: number(slow.MinWeightPercent, 10),
		AggressionPercent: number(slow.AggressionPercent, 100),
	}

	timeouts := orEmpty(s.Timeouts)
	p.Timeouts = TimeoutPolicy{
		Connect: span(timeouts.Connect, time.Second), ResponseHeader: span(timeouts.ResponseHeader, 60*time.Second),
		Idle: span(timeouts.Idle, 90*time.Second), MaxConnectionAge: span(timeouts.MaxConnectionAge, 10*time.Minute),
	}
	retries := orEmpty(s.Retries)
	p.Retries = RetryPolicy{
		BudgetPercent: number(retries.BudgetPercent, 20), MinPerSecond: number(retries.MinPerSecond, 3), Attempts: number(retries.Attempts, 3),
	}
	limits := orEmpty(s.Limits)
	p.Limits = LimitPolicy{Concurrent: number(limits.Concurrent, 1024), Queue: number(limits.Queue, 256)}
	return p
}

// WeightOf returns the endpoint's share of the requests.
func (e *Endpoint) WeightOf() int { return number(e.Weight, defaultWeight) }

// PortOf returns the port of the Service.
func (s *Service) PortOf() int32 { return int32(number(s.Port, defaultPort)) }

// Document returns the path of the server's OpenAPI document.
func (r *REST) Document() string { return cmp.Or(r.OpenAPIPath, defaultOpenAPIPath) }

// Priorities returns the priorities of the automanaged APIServices.
func (a *AutoRegister) Priorities() (group, version int32) {
	return int32(number(a.GroupPriorityMinimum, defaultGroupPriority)), int32(number(a.VersionPriority, defaultVersion))
}

// Takes reports whether a group/version of the server is to be registered.
func (a *AutoRegister) Takes(group, version string) bool {
	return slices.ContainsFunc(a.Groups, func(entry string) bool { return entryTakes(entry, group, version) })
}

// entryTakes reports whether an entry of AutoRegister.Groups takes a group/version.
func entryTakes(entry, group, version string) bool {
	g, v, one := strings.Cut(entry, "/")
	return entry == AllGroups || g == group && (!one || v == version)
}

// Missing returns the entries of Groups that take none of these group/versions.
func (a *AutoRegister) Missing(gvs []schema.GroupVersion) (out []string) {
	for _, entry := range a.Groups {
		if entry != AllGroups && !slices.ContainsFunc(gvs, func(gv schema.GroupVersion) bool { return entryTakes(entry, gv.Group, gv.Version) }) {
			out = append(out, entry)
		}
	}
	return out
}

// AllGroups in AutoRegister.Groups takes every group.
const AllGroups = "*"

func orEmpty[T any](p *T) T {
	if p == nil {
		var none T
		return none
	}
	return *p
}

func number(p *int32, unset int) int {
	if p == nil {
		return unset
	}
	return int(*p)
}

func span(p *metav1.Duration, unset time.Duration) time.Duration {
	if p == nil {
		return unset
	}
	return p.Duration
}
