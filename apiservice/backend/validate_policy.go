package backend

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Bounds of the fields of a Backend.
const (
	minInterval = 100 * time.Millisecond
	maxInterval = time.Hour
	maxTimeout  = time.Hour
	maxEjection = 24 * time.Hour
	maxWindow   = time.Hour
	minAge      = time.Second
	maxAge      = 7 * 24 * time.Hour
	maxStreak   = 1000 // failures or successes in a row
	maxAttempts = 10
	maxRequests = 1_000_000
	// maxPath bounds a path, in bytes.
	maxPath = 1024
	// maxPathPrefix bounds the prefix of the paths of a REST server, in bytes.
	maxPathPrefix = 256
)

func (s *Spec) validateTLS(at *field.Path) (errs field.ErrorList) {
	t := s.TLS
	if t == nil {
		return nil
	}
	if len(t.CABundle) > 0 {
		if err := checkBundle(t.CABundle); err != nil {
			errs = append(errs, field.Invalid(at.Child("caBundle"), fmt.Sprintf("%d bytes", len(t.CABundle)), err.Error()))
		}
		if t.InsecureSkipVerify {
			errs = append(errs, field.Invalid(at.Child("insecureSkipVerify"), true, "may not be true if caBundle is present"))
		}
	}
	if t.ServerName != "" {
		errs = append(errs, invalid(at.Child("serverName"), t.ServerName, validation.IsDNS1123Subdomain(strings.ToLower(t.ServerName)))...)
	}
	return append(errs, oneOf(at.Child("clientCertificate"), t.ClientCertificate, FrontProxy, NoneShown)...)
}

// checkBundle returns an error unless all certificates of a bundle can be used: x509.CertPool
// skips broken ones and those with headers.
func checkBundle(bundle []byte) error {
	found := false
	for rest := bundle; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		if len(block.Headers) != 0 {
			return errors.New("holds a certificate with PEM headers, which is not used")
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			return fmt.Errorf("holds a certificate that cannot be read: %w", err)
		}
		found = true
	}
	if !found {
		return errors.New("must be PEM with at least one certificate")
	}
	return nil
}

// validatePolicy checks how requests are sent.
func (s *Spec) validatePolicy(spec *field.Path) (errs field.ErrorList) {
	p := s.Policy()
	errs = append(errs, oneOf(spec.Child("balance"), s.Balance, LeastRequest, RoundRobin, ConsistentHash)...)
	errs = append(errs, within(spec.Child("panicThresholdPercent"), p.PanicThresholdPercent, 0, 100)...)
	if s.HealthCheck != nil {
		errs = append(errs, s.HealthCheck.validate(p.HealthCheck, spec.Child("healthCheck"))...)
	}
	if s.OutlierDetection != nil {
		errs = append(errs, s.OutlierDetection.validate(p.Outlier, spec.Child("outlierDetection"))...)
	}
	if t := s.Timeouts; t != nil {
		at := spec.Child("timeouts")
		errs = append(errs, durationWithin(at.Child("connect"), t.Connect, time.Millisecond, maxTimeout)...)
		errs = append(errs, durationWithin(at.Child("responseHeader"), t.ResponseHeader, time.Millisecond, maxTimeout)...)
		errs = append(errs, durationWithin(at.Child("idle"), t.Idle, time.Millisecond, maxTimeout)...)
		if age := t.MaxConnectionAge; age != nil && age.Duration != 0 {
			errs = append(errs, durationWithin(at.Child("maxConnectionAge"), age, minAge, maxAge)...)
		}
	}
	if s.SlowStart != nil {
		errs = append(errs, s.SlowStart.validate(p.SlowStart, spec.Child("slowStart"))...)
	}
	retries, limits := spec.Child("retries"), spec.Child("limits")
	errs = append(errs, within(retries.Child("budgetPercent"), p.Retries.BudgetPercent, 0, 100)...)
	errs = append(errs, within(retries.Child("minPerSecond"), p.Retries.MinPerSecond, 0, maxRequests)...)
	errs = append(errs, within(retries.Child("attempts"), p.Retries.Attempts, 1, maxAttempts)...)
	errs = append(errs, within(limits.Child("concurrent"), p.Limits.Concurrent, 1, maxRequests)...)
	return append(errs, within(limits.Child("queue"), p.Limits.Queue, 0, maxRequests)...)
}

func (h *HealthCheck) validate(p HealthPolicy, at *field.Path) (errs field.ErrorList) {
	if h.Path != "" {
		errs = append(errs, validatePath(at.Child("path"), h.Path)...)
	}
	errs = append(errs, durationWithin(at.Child("interval"), h.Interval, minInterval, maxInterval)...)
	errs = append(errs, durationWithin(at.Child("timeout"), h.Timeout, time.Millisecond, maxTimeout)...)
	errs = append(errs, within(at.Child("fall"), p.Fall, 1, maxStreak)...)
	return append(errs, within(at.Child("rise"), p.Rise, 1, maxStreak)...)
}

func (o *OutlierDetection) validate(p OutlierPolicy, at *field.Path) (errs field.ErrorList) {
	errs = append(errs, within(at.Child("consecutiveErrors"), p.ConsecutiveErrors, 0, maxStreak)...)
	errs = append(errs, within(at.Child("consecutiveLocalErrors"), p.ConsecutiveLocalErrors, 0, maxStreak)...)
	base := durationWithin(at.Child("baseEjectionTime"), o.BaseEjectionTime, time.Millisecond, maxEjection)
	most := durationWithin(at.Child("maxEjectionTime"), o.MaxEjectionTime, time.Millisecond, maxEjection)
	errs = append(append(errs, base...), most...)
	if len(base)+len(most) == 0 && p.MaxEjectionTime < p.BaseEjectionTime {
		errs = append(errs, field.Invalid(at.Child("maxEjectionTime"), p.MaxEjectionTime.String(), "must not be less than baseEjectionTime, "+p.BaseEjectionTime.String()))
	}
	return append(errs, within(at.Child("maxEjectionPercent"), p.MaxEjectionPercent, 0, 100)...)
}

func (v *SlowStart) validate(p SlowStartPolicy, at *field.Path) (errs field.ErrorList) {
	errs = append(errs, durationWithin(at.Child("window"), v.Window, 0, maxWindow)...)
	errs = append(errs, within(at.Child("minWeightPercent"), p.MinWeightPercent, 1, 100)...)
	return append(errs, within(at.Child("aggressionPercent"), p.AggressionPercent, 10, 1000)...)
}

// within checks a number.
func within(at *field.Path, n, least, most int) field.ErrorList {
	if n >= least && n <= most {
		return nil
	}
	return field.ErrorList{field.Invalid(at, n, fmt.Sprintf("must be between %d and %d", least, most))}
}

// durationWithin checks a duration; nil is the default.
func durationWithin(at *field.Path, d *metav1.Duration, least, most time.Duration) field.ErrorList {
	if d == nil || d.Duration >= least && d.Duration <= most {
		return nil
	}
	return field.ErrorList{field.Invalid(at, d.Duration.String(), fmt.Sprintf("must be between %s and %s", least, most))}
}

// validatePath checks a path of requests to a server, which may have a query.
func validatePath(at *field.Path, text string) field.ErrorList {
	complain := func(message string) field.ErrorList {
		return field.ErrorList{field.Invalid(at, shortened(text), message)}
	}
	if len(text) > maxPath {
		return field.ErrorList{field.TooLong(at, "", maxPath)}
	}
	if !strings.HasPrefix(text, "/") || strings.HasPrefix(text, "//") {
		return complain("must begin with one slash")
	}
	u, err := url.ParseRequestURI(text)
	if err != nil || strings.Contains(text, "#") {
		return complain("must be an escaped path of a URL")
	}
	for part := range strings.SplitSeq(u.Path, "/") {
		if part == ".." || part == "." {
			return complain(`must not have "." or ".." as a part`)
		}
	}
	return nil
}
