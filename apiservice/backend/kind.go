package backend

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"

	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico/resource"
	"portico/resource/rest"
)

// Kind returns the row that serves Backends: cluster-scoped, stored as JSON, with a status
// subresource. It has no Ownership, which needs the OpenAPI schema.
func Kind() (*rest.Kind, error) {
	scheme := runtime.NewScheme()
	if err := AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("register Backend: %w", err)
	}
	codec, ok := rest.TypedJSON(scheme, GroupVersion().WithKind("Backend"), nil).(rest.Versioned)
	if !ok {
		return nil, errors.New("register Backend: its codec has no versions")
	}
	return &rest.Kind{
		Info: resource.Info{
			Group: Group, Versions: []string{Version}, Resource: "backends", Kind: "Backend",
			ShortNames: []string{"be"}, Categories: []string{"api-extensions"}, Path: Group + "/backends",
		},
		Codec: namingCodec{codec}, Definitions: GetOpenAPIDefinitions,
		Strategy: strategy(),
		Subresources: []rest.Subresource{{
			Name: "status",
			Strategy: &rest.Strategy{
				Resets:        []string{"metadata", "spec"},
				PrepareUpdate: keepAllButStatus,
				ValidateUpdate: func(_ context.Context, obj, _ rest.Object) field.ErrorList {
					return validateStatus(&obj.(*Backend).Status)
				},
			},
		}},
		Columns: columns(),
		Cells:   cells,
	}, nil
}

// keepAllButStatus restores what a write of the status must not change.
func keepAllButStatus(_ context.Context, obj, old rest.Object) {
	next := obj.(*Backend)
	status, owners, version := next.Status, next.GetManagedFields(), next.GetResourceVersion()
	old.(*Backend).DeepCopyInto(next)
	next.Status = status
	next.SetManagedFields(owners)
	next.SetResourceVersion(version)
}

func strategy() rest.Strategy {
	validate := func(obj rest.Object) field.ErrorList { return Validate(obj.(*Backend)) }
	return rest.Strategy{
		// All other defaults are in Policy.
		Default: func(obj rest.Object) {
			if s := obj.(*Backend).Spec.Service; s != nil && s.Port == nil {
				port := s.PortOf()
				s.Port = &port
			}
		},
		TrackGeneration: true,
		PrepareCreate:   func(_ context.Context, obj rest.Object) { obj.(*Backend).Status = Status{} },
		PrepareUpdate: func(_ context.Context, obj, old rest.Object) {
			obj.(*Backend).Status = old.(*Backend).Status.DeepCopy()
		},
		Validate:       func(_ context.Context, obj rest.Object) field.ErrorList { return validate(obj) },
		ValidateUpdate: func(_ context.Context, obj, _ rest.Object) field.ErrorList { return validate(obj) },
		Warnings:       func(_ context.Context, obj, _ rest.Object) []string { return warnings(&obj.(*Backend).Spec) },
	}
}

// warnings describe what is valid and may be a mistake.
func warnings(s *Spec) (out []string) {
	idle := len(s.Endpoints) > 0
	for i, e := range s.Endpoints {
		idle = idle && e.WeightOf() == 0
		switch a, err := ParseURL(e.URL); {
		case err != nil:
		case a.Scheme == HTTP && s.REST == nil:
			out = append(out, fmt.Sprintf("spec.endpoints[%d].url: users are named in plain text; any client that reaches this endpoint can impersonate any user", i))
		case a.Scheme == Unix && s.TLS != nil:
			out = append(out, fmt.Sprintf("spec.endpoints[%d].url: tls is not used on a unix socket, which the permissions of its file protect", i))
		}
	}
	if idle {
		out = append(out, "spec.endpoints: every weight is 0, so that no endpoint gets requests")
	}
	if s.TLS != nil && s.TLS.InsecureSkipVerify {
		out = append(out, "spec.tls.insecureSkipVerify: any server at these addresses gets users' requests")
	}
	return out
}

const (
	// MaxEndpoints bounds the endpoints of a Backend: every gateway checks each of them.
	MaxEndpoints = 256
	// MaxGroups bounds the groups in autoRegister.
	MaxGroups = 256
	// Reserved is the annotation of the gateway's own APIServices, and no name of a Backend.
	Reserved = "gateway"
)

// Validate checks everything but the metadata that all kinds share.
func Validate(b *Backend) field.ErrorList {
	var errs field.ErrorList
	if b.Name == Reserved {
		errs = append(errs, field.Invalid(field.NewPath("metadata", "name"), b.Name, "is reserved for the gateway"))
	}
	spec := field.NewPath("spec")
	s := &b.Spec
	errs = append(errs, s.validateAddress(spec)...)
	errs = append(errs, s.validateTLS(spec.Child("tls"))...)
	if s.AutoRegister != nil {
		errs = append(errs, s.AutoRegister.validate(spec.Child("autoRegister"))...)
	}
	if s.REST != nil {
		if s.AutoRegister != nil {
			errs = append(errs, field.Forbidden(spec.Child("rest"), "may not be set together with autoRegister"))
		}
		errs = append(errs, s.REST.validate(spec.Child("rest"))...)
	}
	return append(errs, s.validatePolicy(spec)...)
}

// validateAddress checks endpoints and service.
func (s *Spec) validateAddress(spec *field.Path) (errs field.ErrorList) {
	switch {
	case s.Service != nil && len(s.Endpoints) > 0:
		errs = append(errs, field.Forbidden(spec.Child("service"), "may not be set together with endpoints"))
	case s.Service == nil && len(s.Endpoints) == 0:
		return field.ErrorList{field.Required(spec.Child("endpoints"), "either endpoints or service must be set")}
	}
	if s.Service != nil {
		errs = append(errs, s.Service.validate(spec.Child("service"))...)
	}
	return append(errs, s.validateEndpoints(spec.Child("endpoints"))...)
}

func (s *Spec) validateEndpoints(at *field.Path) (errs field.ErrorList) {
	if n := len(s.Endpoints); n > MaxEndpoints {
		return field.ErrorList{field.TooMany(at, n, MaxEndpoints)}
	}
	seen := map[[2]string]bool{}
	for i, e := range s.Endpoints {
		at := at.Index(i)
		if w := e.WeightOf(); w < 0 || w > 1000 {
			errs = append(errs, field.Invalid(at.Child("weight"), w, "must be between 0 and 1000"))
		}
		if e.URL == "" {
			errs = append(errs, field.Required(at.Child("url"), ""))
			continue
		}
		address, err := ParseURL(e.URL)
		switch {
		case err != nil:
			errs = append(errs, field.Invalid(at.Child("url"), shortened(e.URL), err.Error()))
			continue
		case address.impossibleHost() != "":
			errs = append(errs, field.Invalid(at.Child("url"), shortened(e.URL), address.impossibleHost()))
		case seen[address.where()]:
			errs = append(errs, field.Duplicate(at.Child("url"), e.URL))
		case address.Scheme == HTTP && s.TLS != nil:
			errs = append(errs, field.Invalid(at.Child("url"), e.URL, "must be https where tls is set"))
		}
		seen[address.where()] = true
	}
	return errs
}

func (s *Service) validate(at *field.Path) (errs field.ErrorList) {
	errs = append(errs, required(at.Child("namespace"), s.Namespace, validation.IsDNS1123Label)...)
	errs = append(errs, required(at.Child("name"), s.Name, validation.IsDNS1123Subdomain)...)
	if msgs := validation.IsValidPortNum(int(s.PortOf())); msgs != nil {
		errs = append(errs, field.Invalid(at.Child("port"), s.PortOf(), "port is not valid: "+strings.Join(msgs, ", ")))
	}
	return errs
}

func (a *AutoRegister) validate(at *field.Path) (errs field.ErrorList) {
	groups := at.Child("groups")
	switch n := len(a.Groups); {
	case n == 0:
		errs = append(errs, field.Required(groups, `name the groups to take; "*" takes all`))
	case n > MaxGroups:
		return append(errs, field.TooMany(groups, n, MaxGroups))
	}
	seen := sets.New[string]()
	for i, g := range a.Groups {
		switch {
		case seen.Has(g):
			errs = append(errs, field.Duplicate(groups.Index(i), g))
		case g == AllGroups && len(a.Groups) > 1:
			errs = append(errs, field.Invalid(groups.Index(i), g, "must be the only one"))
		case g != AllGroups:
			group, version, one := strings.Cut(g, "/")
			if group != "" {
				errs = append(errs, invalid(groups.Index(i), g, validation.IsDNS1123Subdomain(group))...)
			}
			if one {
				errs = append(errs, invalid(groups.Index(i), g, validation.IsDNS1035Label(version))...)
			}
		}
		seen.Insert(g)
	}
	group, version := a.Priorities()
	if group < 1 || group > 20000 {
		errs = append(errs, field.Invalid(at.Child("groupPriorityMinimum"), group, "must be positive and less than 20000"))
	}
	if version < 1 || version > 1000 {
		errs = append(errs, field.Invalid(at.Child("versionPriority"), version, "must be positive and less than 1000"))
	}
	return append(errs, oneOf(at.Child("onConflict"), a.OnConflict, KeepOther, ReplaceOther)...)
}

func (r *REST) validate(at *field.Path) (errs field.ErrorList) {
	errs = append(errs, required(at.Child("group"), r.Group, validation.IsDNS1123Subdomain)...)
	errs = append(errs, required(at.Child("version"), r.Version, validation.IsDNS1035Label)...)
	if r.OpenAPIPath != "" {
		errs = append(errs, validatePath(at.Child("openAPIPath"), r.OpenAPIPath)...)
	}
	if r.PathPrefix != "" {
		errs = append(errs, validatePathPrefix(at.Child("pathPrefix"), r.PathPrefix)...)
	}
	return append(errs, validateHeaders(at.Child("headers"), r.Headers)...)
}

// maxHeaders bounds the number of REST.Headers.
const maxHeaders = 64

// notPassed are the names, or with a dash at the end the beginnings of names, of headers that REST.Headers must not
// have: what authenticates at the gateway or before it, what the gateway sets, what describes a connection, and what
// may override the method or the path.
var notPassed = []string{
	"authorization", "cookie", "cookie2", "set-cookie", "set-cookie2", "proxy-", "impersonate-", "x-remote-", "x-forwarded-", "forwarded", "x-portico-",
	"host", "connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "http2-settings", "content-length", "sec-",
	"access-control-", "x-http-method", "x-http-method-", "x-method-", "x-original-", "x-rewrite-url", "proxy",
}

// validateHeaders checks names of headers. They have letters, digits and dashes only: servers fold other characters into dashes.
func validateHeaders(at *field.Path, names []string) (errs field.ErrorList) {
	if len(names) > maxHeaders {
		errs = append(errs, field.TooMany(at, len(names), maxHeaders))
	}
	seen := sets.New[string]()
	for i, name := range names {
		at, lower := at.Index(i), strings.ToLower(name)
		refused := slices.ContainsFunc(notPassed, func(other string) bool {
			return lower == other || strings.HasSuffix(other, "-") && strings.HasPrefix(lower, other)
		})
		switch {
		case name == "" || strings.Trim(lower, "abcdefghijklmnopqrstuvwxyz0123456789-") != "":
			errs = append(errs, field.Invalid(at, shortened(name), "must be the name of a header, of letters, digits and dashes"))
		case refused:
			errs = append(errs, field.Invalid(at, name, "is a header of the gateway or a credential for it, and not for servers"))
		case seen.Has(lower):
			errs = append(errs, field.Duplicate(at, name))
		}
		seen.Insert(lower)
	}
	return errs
}

// validatePathPrefix checks what precedes paths; discovery/rest can use every valid one.
func validatePathPrefix(at *field.Path, prefix string) field.ErrorList {
	if errs := validatePath(at, prefix); len(errs) > 0 {
		return errs
	}
	var errs field.ErrorList
	if strings.HasSuffix(prefix, "/") && prefix != "/" {
		errs = append(errs, field.Invalid(at, shortened(prefix), "must not end with a slash"))
	}
	if strings.Contains(prefix, "?") {
		errs = append(errs, field.Invalid(at, shortened(prefix), "must not have a query"))
	}
	if len(errs) > 0 {
		return errs
	}
	if len(prefix) > maxPathPrefix || strings.Contains(prefix, "//") || strings.ContainsFunc(prefix, func(c rune) bool {
		return c > unicode.MaxASCII || !unicode.IsLetter(c) && !unicode.IsDigit(c) && !strings.ContainsRune("/._~-", c)
	}) {
		errs = append(errs, field.Invalid(at, shortened(prefix),
			fmt.Sprintf("must be a path of letters, digits, '.', '_', '~' and '-', at most %d bytes long", maxPathPrefix)))
	}
	return errs
}

// validateStatus checks a written status.
func validateStatus(s *Status) (errs field.ErrorList) {
	status := field.NewPath("status")
	for i, e := range s.Endpoints {
		at := status.Child("endpoints").Index(i)
		if e.URL == "" {
			errs = append(errs, field.Required(at.Child("url"), ""))
		}
		if e.State == "" {
			errs = append(errs, field.Required(at.Child("state"), ""))
		}
		errs = append(errs, oneOf(at.Child("state"), e.State,
			EndpointUnknown, EndpointHealthy, EndpointUnhealthy, EndpointEjected, EndpointDraining)...)
	}
	for i, gv := range s.GroupVersions {
		errs = append(errs, oneOf(status.Child("groupVersions").Index(i).Child("freshness"), gv.Freshness, "Current", "Stale")...)
	}
	return append(errs, metav1validation.ValidateConditions(s.Conditions, status.Child("conditions"))...)
}

// oneOf checks an enumeration; "" is the default.
func oneOf[T ~string](at *field.Path, have T, known ...T) field.ErrorList {
	if have == "" || slices.Contains(known, have) {
		return nil
	}
	return field.ErrorList{field.NotSupported(at, have, known)}
}

// required checks a value that must not be empty.
func required(at *field.Path, value string, check func(string) []string) field.ErrorList {
	if value == "" {
		return field.ErrorList{field.Required(at, "")}
	}
	return invalid(at, value, check(value))
}

func invalid(at *field.Path, value string, msgs []string) (errs field.ErrorList) {
	for _, msg := range msgs {
		errs = append(errs, field.Invalid(at, value, msg))
	}
	return errs
}

// shortened cuts a long value for a message.
func shortened(text string) string {
	const limit = 128
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit], "") + "..."
}
