package apiservice

import (
	"context"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta/table"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	apireg "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/kube-aggregator/pkg/apis/apiregistration/v1/helper"
	"k8s.io/kube-aggregator/pkg/client/applyconfiguration"

	"portico/apiservice/backend"
	"portico/resource"
	"portico/resource/rest"
)

// Kind returns the row that serves APIServices: stored as JSON, cluster-scoped, with a status
// subresource; updates require a resourceVersion (docs/wire.md 8.1).
func Kind() (*rest.Kind, error) {
	scheme := runtime.NewScheme()
	if err := apireg.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("register APIService: %w", err)
	}
	return &rest.Kind{
		Info: resource.Info{
			Group: Group, Versions: []string{"v1"}, Resource: "apiservices", Kind: "APIService",
			Categories: []string{"api-extensions"}, Path: Group + "/apiservices",
		},
		Codec:     rest.TypedJSON(scheme, apireg.SchemeGroupVersion.WithKind("APIService"), nil),
		Ownership: func() (managedfields.TypeConverter, error) { return applyconfiguration.NewTypeConverter(scheme), nil },
		Strategy:  strategy(),
		Subresources: []rest.Subresource{{
			Name: "status",
			Strategy: &rest.Strategy{
				Resets: []string{"metadata", "spec"},
				PrepareUpdate: func(_ context.Context, obj, old rest.Object) {
					status := obj.(*apireg.APIService).Status
					meta := obj.GetManagedFields()
					version := obj.GetResourceVersion()
					next := obj.(*apireg.APIService)
					old.(*apireg.APIService).DeepCopyInto(next)
					next.Status = status
					next.SetManagedFields(meta)
					next.SetResourceVersion(version)
				},
				ValidateUpdate: func(_ context.Context, obj, _ rest.Object) field.ErrorList {
					return validateStatus(&obj.(*apireg.APIService).Status)
				},
			},
		}},
		Columns: columns(),
		Cells:   cells,
	}, nil
}

func strategy() rest.Strategy {
	return rest.Strategy{
		Default: func(obj rest.Object) {
			if s := obj.(*apireg.APIService).Spec.Service; s != nil && s.Port == nil {
				port := Port(s)
				s.Port = &port
			}
		},
		ValidateName: func(name string, _ bool) []string { return content.IsPathSegmentName(name) },
		PrepareCreate: func(_ context.Context, obj rest.Object) {
			a := obj.(*apireg.APIService)
			a.Status = apireg.APIServiceStatus{}
			if a.Spec.Service == nil && a.Annotations[BackendAnnotation] != "" {
				Set(a, Local(), time.Now())
			}
		},
		PrepareUpdate: func(_ context.Context, obj, old rest.Object) {
			obj.(*apireg.APIService).Status = *old.(*apireg.APIService).Status.DeepCopy()
		},
		Validate: func(_ context.Context, obj rest.Object) field.ErrorList {
			return Validate(obj.(*apireg.APIService))
		},
		ValidateUpdate: func(_ context.Context, obj, _ rest.Object) field.ErrorList {
			return Validate(obj.(*apireg.APIService))
		},
	}
}

// Validate checks everything but the metadata that all kinds share, with
// upstream's messages (k8s.io/kube-aggregator apiregistration/validation).
func Validate(a *apireg.APIService) field.ErrorList {
	var errs field.ErrorList
	if want := Name(a.Spec.Group, a.Spec.Version); a.Name != want {
		errs = append(errs, field.Invalid(field.NewPath("metadata", "name"), a.Name,
			fmt.Sprintf("must be `spec.version+\".\"+spec.group`: %q", want)))
	}
	spec := field.NewPath("spec")
	if a.Spec.Group == "" && a.Spec.Version != "v1" {
		errs = append(errs, field.Required(spec.Child("group"), "only v1 may have an empty group and it better be legacy kube"))
	}
	if a.Spec.Group != "" {
		for _, msg := range validation.IsDNS1123Subdomain(a.Spec.Group) {
			errs = append(errs, field.Invalid(spec.Child("group"), a.Spec.Group, msg))
		}
	}
	for _, msg := range validation.IsDNS1035Label(a.Spec.Version) {
		errs = append(errs, field.Invalid(spec.Child("version"), a.Spec.Version, msg))
	}
	if p := a.Spec.GroupPriorityMinimum; p <= 0 || p > 20000 {
		errs = append(errs, field.Invalid(spec.Child("groupPriorityMinimum"), p, "must be positive and less than 20000"))
	}
	if p := a.Spec.VersionPriority; p <= 0 || p > 1000 {
		errs = append(errs, field.Invalid(spec.Child("versionPriority"), p, "must be positive and less than 1000"))
	}
	if a.Spec.Service == nil {
		return append(errs, validateLocal(a, spec)...)
	}
	return append(errs, validateService(a, spec)...)
}

func validateLocal(a *apireg.APIService, spec *field.Path) (errs field.ErrorList) {
	if len(a.Spec.CABundle) != 0 {
		errs = append(errs, field.Invalid(spec.Child("caBundle"), fmt.Sprintf("%d bytes", len(a.Spec.CABundle)),
			"local APIServices may not have a caBundle"))
	}
	if a.Spec.InsecureSkipTLSVerify {
		errs = append(errs, field.Invalid(spec.Child("insecureSkipTLSVerify"), true,
			"local APIServices may not have insecureSkipTLSVerify"))
	}
	return errs
}

func validateService(a *apireg.APIService, spec *field.Path) (errs field.ErrorList) {
	service := spec.Child("service")
	if a.Spec.Service.Namespace == "" {
		errs = append(errs, field.Required(service.Child("namespace"), ""))
	}
	if a.Spec.Service.Name == "" {
		errs = append(errs, field.Required(service.Child("name"), ""))
	}
	port := Port(a.Spec.Service)
	if msgs := validation.IsValidPortNum(int(port)); msgs != nil {
		errs = append(errs, field.Invalid(service.Child("port"), port, "port is not valid: "+strings.Join(msgs, ", ")))
	}
	if a.Spec.InsecureSkipTLSVerify && len(a.Spec.CABundle) > 0 {
		errs = append(errs, field.Invalid(spec.Child("insecureSkipTLSVerify"), true, "may not be true if caBundle is present"))
	}
	return errs
}

func validateStatus(s *apireg.APIServiceStatus) (errs field.ErrorList) {
	allowed := []string{string(apireg.ConditionTrue), string(apireg.ConditionFalse), string(apireg.ConditionUnknown)}
	for i, c := range s.Conditions {
		switch c.Status {
		case apireg.ConditionTrue, apireg.ConditionFalse, apireg.ConditionUnknown:
		default:
			errs = append(errs, field.NotSupported(field.NewPath("status", "conditions").Index(i).Child("status"), string(c.Status), allowed))
		}
	}
	return errs
}

func columns() []metav1.TableColumnDefinition {
	return []metav1.TableColumnDefinition{
		{Name: "Name", Type: "string", Format: "name", Description: "Version and group of the API, as version.group."},
		{Name: "Service", Type: "string", Description: "The service or the backend that answers the API, or Local for the gateway itself."},
		{Name: "Available", Type: "string", Description: "Whether the API answers, and why not."},
		{Name: "Age", Type: "string", Description: "How long ago the object was created."},
	}
}

func cells(obj runtime.Object) ([]any, error) {
	a, ok := obj.(*apireg.APIService)
	if !ok {
		return nil, fmt.Errorf("print APIService: got %T", obj)
	}
	service := "Local"
	if s := a.Spec.Service; s != nil {
		service = s.Namespace + "/" + s.Name
	} else if name := a.Annotations[BackendAnnotation]; name != "" && name != backend.Reserved {
		service = "backend/" + name
	}
	available := string(apireg.ConditionUnknown)
	if c, ok := Current(a); ok {
		available = string(c.Status)
		if !c.Available() {
			available = fmt.Sprintf("%s (%s)", c.Status, c.Reason)
		}
	}
	return []any{a.Name, service, available, table.ConvertToHumanReadableDateType(a.CreationTimestamp)}, nil
}

// Condition is the condition Available of an APIService without its times. Equal conditions
// need no write.
type Condition struct {
	Status  apireg.ConditionStatus
	Reason  string
	Message string
}

// Available reports whether requests may be sent.
func (c Condition) Available() bool { return c.Status == apireg.ConditionTrue }

// The conditions of docs/wire.md 8.2 have upstream's reasons and messages
// (k8s.io/kube-aggregator pkg/controllers/status).

// Local is the condition of an APIService without a Service.
func Local() Condition {
	return Condition{apireg.ConditionTrue, "Local", "Local APIServices are always available"}
}

// Passed is the condition after a passed check.
func Passed() Condition { return Condition{apireg.ConditionTrue, "Passed", "all checks passed"} }

// Truncated adds to a good condition that the discovery of the group/version is incomplete.
// Requests are not affected.
func (c Condition) Truncated() Condition {
	c.Message += "; DiscoveryTruncated: a part of its discovery exceeds the limits on the discovery of one server, and is left out"
	return c
}

// Kept adds to the condition of a user's APIService that the gateway does not delete it although
// its server answers 404.
func (c Condition) Kept() Condition {
	c.Message += "; the server does not serve it, and the APIService stays until it is deleted: a user keeps it (kubectl delete apiservice)"
	return c
}

// ServiceNotFound is the condition if the Service does not exist.
func ServiceNotFound(s *apireg.ServiceReference) Condition {
	return Condition{apireg.ConditionFalse, "ServiceNotFound",
		fmt.Sprintf("service/%s in %q is not present", s.Name, s.Namespace)}
}

// BackendNotFound is the condition if the Backend does not exist. The reason is that of
// ServiceNotFound, since upstream has none.
func BackendNotFound(name string) Condition {
	return Condition{apireg.ConditionFalse, "ServiceNotFound", fmt.Sprintf("Backend %q is not present", name)}
}

// NotServed is the condition if an APIService names neither a Service nor a Backend, and the
// gateway does not serve its group/version itself. The reason is ServiceNotFound; upstream
// says that it is Local.
func NotServed(a *apireg.APIService) Condition {
	return Condition{apireg.ConditionFalse, "ServiceNotFound", fmt.Sprintf(
		"no server is named for %s/%s, by spec.service or by the annotation %s, and the gateway does not serve it itself",
		a.Spec.Group, a.Spec.Version, BackendAnnotation)}
}

// ServiceAccessError is the condition while Services cannot be read.
func ServiceAccessError(s *apireg.ServiceReference, err error) Condition {
	return Condition{apireg.ConditionUnknown, "ServiceAccessError",
		fmt.Sprintf("service/%s in %q cannot be checked due to: %v", s.Name, s.Namespace, err)}
}

// ServicePortError is the condition if the Service does not have the port.
func ServicePortError(s *apireg.ServiceReference) Condition {
	return Condition{apireg.ConditionFalse, "ServicePortError",
		fmt.Sprintf("service/%s in %q is not listening on port %d", s.Name, s.Namespace, Port(s))}
}

// EndpointsNotFound is the condition if the Service has no EndpointSlice.
func EndpointsNotFound(s *apireg.ServiceReference) Condition {
	return Condition{apireg.ConditionFalse, "EndpointsNotFound",
		fmt.Sprintf("cannot find endpointslices for service/%s in %q", s.Name, s.Namespace)}
}

// MissingEndpoints is the condition if no ready address has a port of that name.
func MissingEndpoints(s *apireg.ServiceReference, portName string) Condition {
	return Condition{apireg.ConditionFalse, "MissingEndpoints",
		fmt.Sprintf("endpointslices for service/%s in %q have no addresses with port name %q", s.Name, s.Namespace, portName)}
}

// AllDrained is the condition if every endpoint of the Backend has the weight 0. The
// reason is that of MissingEndpoints, since upstream has none.
func AllDrained() Condition {
	return Condition{apireg.ConditionFalse, "MissingEndpoints", "every endpoint of the server has the weight 0, so that none gets requests"}
}

// FailedDiscoveryCheck is the condition while the server does not answer its discovery
// path.
func FailedDiscoveryCheck(url string, err error) Condition {
	return Condition{apireg.ConditionFalse, "FailedDiscoveryCheck",
		fmt.Sprintf("failing or missing response from %s: %v", url, err)}
}

// observed opens the part of a message that names the observer.
const observed = " (observed by "

// ObservedBy adds the gateway that observed a condition to its message, for conditions
// that end with an error: other messages stay those of upstream.
func (c Condition) ObservedBy(observer string) Condition {
	if observer == "" || c.Reason != "FailedDiscoveryCheck" && c.Reason != "ServiceAccessError" {
		return c
	}
	c.Message = c.unobserved().Message + observed + observer + ")"
	return c
}

// Agrees reports whether two conditions are equal apart from their observers.
func (c Condition) Agrees(other Condition) bool { return c.unobserved() == other.unobserved() }

func (c Condition) unobserved() Condition {
	c.Message = Unobserved(c.Message)
	return c
}

// Unobserved returns a message without the name of its observer.
func Unobserved(message string) string {
	if at := strings.LastIndex(message, observed); at >= 0 && strings.HasSuffix(message, ")") {
		return message[:at]
	}
	return message
}

// Port returns the port of a service reference, defaulted to 443.
func Port(s *apireg.ServiceReference) int32 {
	if s.Port == nil {
		return 443
	}
	return *s.Port
}

// Current returns the condition Available of the object; ok is false if it has none.
func Current(a *apireg.APIService) (c Condition, ok bool) {
	have := helper.GetAPIServiceConditionByType(a, apireg.Available)
	if have == nil {
		return Condition{}, false
	}
	return Condition{have.Status, have.Reason, have.Message}, true
}

// Set sets the condition Available of the object and reports whether it changed.
// lastTransitionTime changes with the status only.
func Set(a *apireg.APIService, c Condition, now time.Time) (changed bool) {
	if have, ok := Current(a); ok && have == c {
		return false
	}
	helper.SetAPIServiceCondition(a, apireg.APIServiceCondition{
		Type: apireg.Available, Status: c.Status, Reason: c.Reason, Message: c.Message,
		LastTransitionTime: metav1.NewTime(now.Truncate(time.Second)),
	})
	return true
}
