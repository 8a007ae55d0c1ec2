package plugins

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/lru"

	"golang.org/x/time/rate"

	"portico/resource/rest"
)

// eventLimit limits the rate of events, for all, or for each key of a type.
type eventLimit struct {
	Type string `json:"type"`
	// QPS is the number of events per second, Burst that of events at once.
	QPS   int32 `json:"qps"`
	Burst int32 `json:"burst"`
	// CacheSize bounds the keys that are remembered; default 4096.
	CacheSize int32 `json:"cacheSize,omitempty"`

	limiters *lru.Cache // of *rate.Limiter, by key
}

// eventKeys are the types of limits with the keys of events.
var eventKeys = map[string]func(*rest.Attributes) string{
	"Server":    func(*rest.Attributes) string { return "" },
	"Namespace": func(a *rest.Attributes) string { return a.Key.Namespace },
	"User": func(a *rest.Attributes) string {
		if a.Action == nil || a.Action.User == nil {
			return ""
		}
		return a.Action.User.Name
	},
	"SourceAndObject": func(a *rest.Attributes) string {
		e, ok := a.Object.(*corev1.Event)
		if !ok {
			return ""
		}
		o := &e.InvolvedObject
		return strings.Join([]string{e.Source.Component, e.Source.Host, o.Kind, o.Namespace, o.Name, string(o.UID), o.APIVersion}, "")
	},
}

// defaultEventKeys is the default of CacheSize.
const defaultEventKeys = 4096

// newEventRateLimit rejects events beyond the limits of the configuration.
func newEventRateLimit(cfg *Config) (rest.Admission, error) {
	var config struct {
		metav1.TypeMeta `json:",inline"`
		Limits          []*eventLimit `json:"limits"`
	}
	if err := cfg.files.decodeKind("EventRateLimit", "eventratelimit.admission.k8s.io/v1alpha1", &config.TypeMeta, &config); err != nil {
		return nil, err
	}
	if err := validateEventLimits(config.Limits).ToAggregate(); err != nil {
		return nil, err
	}
	for _, l := range config.Limits {
		if l.CacheSize == 0 || l.Type == "Server" {
			l.CacheSize = defaultEventKeys
		}
		l.limiters = lru.New(int(l.CacheSize))
	}
	return validates(func(_ context.Context, a *rest.Attributes) error {
		if a.DryRun || a.Object == nil || subresourceOf(a) != "" {
			return nil
		}
		var errs []error
		for _, l := range config.Limits {
			if key := eventKeys[l.Type](a); !l.limiter(key).Allow() {
				errs = append(errs, fmt.Errorf("limit reached on type %v for key %v", l.Type, key))
			}
		}
		if err := utilerrors.NewAggregate(errs); err != nil {
			return apierrors.NewTooManyRequestsError(err.Error())
		}
		return nil
	}), nil
}

// limiter returns the limiter of a key. Of two first events at once one may pass uncounted.
func (l *eventLimit) limiter(key string) *rate.Limiter {
	if found, ok := l.limiters.Get(key); ok {
		return found.(*rate.Limiter)
	}
	made := rate.NewLimiter(rate.Limit(l.QPS), int(l.Burst))
	l.limiters.Add(key, made)
	return made
}

func validateEventLimits(limits []*eventLimit) (errs field.ErrorList) {
	path := field.NewPath("limits")
	if len(limits) == 0 {
		return field.ErrorList{field.Invalid(path, nil, "must not be empty")}
	}
	for i, l := range limits {
		at := path.Index(i)
		if eventKeys[l.Type] == nil {
			errs = append(errs, field.NotSupported(at.Child("type"), l.Type, []string{"Namespace", "Server", "SourceAndObject", "User"}))
		}
		if l.Burst <= 0 {
			errs = append(errs, field.Invalid(at.Child("burst"), l.Burst, "must be positive"))
		}
		if l.QPS <= 0 {
			errs = append(errs, field.Invalid(at.Child("qps"), l.QPS, "must be positive"))
		}
		if l.CacheSize < 0 && l.Type != "Server" {
			errs = append(errs, field.Invalid(at.Child("cacheSize"), l.CacheSize, "must not be negative"))
		}
	}
	return errs
}
