package devices

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/operation"
	"k8s.io/apimachinery/pkg/api/validate"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celapi "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/utils/ptr"

	"portico/backends/core/kinds/rules"
)

// options are the values of the options that tags name.
var options = map[string]bool{"DRAPartitionableDevicesType": false}

// tagged returns the errors that the tags of the types say; old is nil on create. Tags that
// are marked as alpha are not enforced.
func tagged[T any](check func(context.Context, operation.Operation, *field.Path, *T, *T) field.ErrorList, obj, old *T) field.ErrorList {
	op := operation.Operation{Type: operation.Create, Options: options}
	if old != nil {
		op.Type = operation.Update
	}
	ctx := context.Background()
	return validate.FilterEnforcedDeclarativeErrors(ctx, check(ctx, op, nil, obj, old), true)
}

// each checks the entries of a list. A list that is longer than limit has an error by its
// tags, and its entries are not checked.
func each[T any](list []T, limit int, path *field.Path, check func(*T, *field.Path) field.ErrorList) field.ErrorList {
	if len(list) > limit {
		return nil
	}
	var errs field.ErrorList
	for i := range list {
		errs = append(errs, check(&list[i], path.Index(i))...)
	}
	return errs
}

// eachKey checks the entries of a map in the order of the keys.
func eachKey[V any](m map[resourcev1.QualifiedName]V, path *field.Path, check func(string, V, *field.Path) field.ErrorList) field.ErrorList {
	var errs field.ErrorList
	for _, key := range slices.Sorted(maps.Keys(m)) {
		errs = append(errs, qualifiedName(string(key), path)...)
		errs = append(errs, check(string(key), m[key], path.Key(shortened(string(key))))...)
	}
	return errs
}

// maxKey is the length of the longest name with a domain.
const maxKey = resourcev1.DeviceMaxDomainLength + 1 + resourcev1.DeviceMaxIDLength

// shortened cuts the middle out of a key that is too long to be valid.
func shortened(key string) string {
	const dots = "..."
	if len(key) <= maxKey {
		return key
	}
	const keep = maxKey - len(dots)
	return key[:(keep+1)/2] + dots + key[len(key)-keep/2:]
}

// driverName requires a domain name in any case.
func driverName(name string, path *field.Path) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	var errs field.ErrorList
	if len(name) > resourcev1.DriverNameMaxLength {
		errs = append(errs, field.TooLong(path, "", resourcev1.DriverNameMaxLength))
	}
	return append(errs, rules.Invalid(path, name, validation.IsDNS1123Subdomain(strings.ToLower(name)))...)
}

// poolName requires domain names, separated by slashes.
func poolName(name string, path *field.Path) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	var errs field.ErrorList
	if len(name) > resourcev1.PoolNameMaxLength {
		errs = append(errs, field.TooLong(path, "", resourcev1.PoolNameMaxLength))
	}
	for part := range strings.SplitSeq(name, "/") {
		errs = append(errs, rules.Subdomain(part, path)...)
	}
	return errs
}

// qualifiedName requires an identifier with an optional domain before it. Names with more
// than one slash pass, as in kube-apiserver.
func qualifiedName(name string, path *field.Path) field.ErrorList {
	domain, id, qualified := strings.Cut(name, "/")
	if !qualified {
		return identifier(name, path)
	}
	if strings.Contains(id, "/") {
		return nil
	}
	var errs field.ErrorList
	if domain == "" {
		errs = append(errs, field.Invalid(path, "", "the domain must not be empty"))
	} else {
		errs = append(errs, driverName(domain, path)...)
	}
	if id == "" {
		return append(errs, field.Invalid(path, "", "the name must not be empty"))
	}
	return append(errs, identifier(id, path)...)
}

func identifier(id string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(id) > resourcev1.DeviceMaxIDLength {
		errs = append(errs, field.TooLong(path, "", resourcev1.DeviceMaxIDLength))
	}
	return append(errs, rules.Invalid(path, id, content.IsCIdentifier(id))...)
}

// bindingConditions requires both lists or none, without an entry twice.
func bindingConditions(conditions, failures []string, path *field.Path) field.ErrorList {
	at, failuresAt := path.Child("bindingConditions"), path.Child("bindingFailureConditions")
	name := func(s *string, path *field.Path) field.ErrorList { return metav1validation.ValidateLabelName(*s, path) }
	errs := each(conditions, resourcev1.BindingConditionsMaxSize, at, name)
	errs = append(errs, each(failures, resourcev1.BindingFailureConditionsMaxSize, failuresAt, name)...)
	errs = append(errs, rules.Unique(conditions, at)...)
	errs = append(errs, rules.Unique(failures, failuresAt)...)
	for i, f := range failures {
		if slices.Contains(conditions, f) {
			errs = append(errs, field.Invalid(failuresAt.Index(i), f, "bindingFailureConditions must not overlap with bindingConditions"))
		}
	}
	if len(conditions) == 0 && len(failures) > 0 {
		errs = append(errs, field.Invalid(at, conditions, "bindingConditions are required to use bindingFailureConditions"))
	}
	if len(failures) == 0 && len(conditions) > 0 {
		errs = append(errs, field.Invalid(failuresAt, failures, "bindingFailureConditions are required to use bindingConditions"))
	}
	return errs
}

// selectors checks CEL expressions; those that are stored compiled when they were stored.
func selectors(list []resourcev1.DeviceSelector, stored bool, path *field.Path) field.ErrorList {
	return each(list, resourcev1.DeviceSelectorsMaxSize, path, func(s *resourcev1.DeviceSelector, path *field.Path) field.ErrorList {
		path = path.Child("cel")
		if s.CEL == nil {
			return field.ErrorList{field.Required(path, "")}
		}
		if stored {
			return nil
		}
		return expression(s.CEL.Expression, path.Child("expression"))
	})
}

// expression compiles a CEL expression and estimates its cost.
func expression(text string, path *field.Path) field.ErrorList {
	if len(text) > resourcev1.CELSelectorExpressionMaxLength {
		return field.ErrorList{field.TooLong(path, "", resourcev1.CELSelectorExpressionMaxLength)}
	}
	result := cel.GetCompiler(cel.Features{EnableConsumableCapacity: true}).
		CompileCELExpression(text, cel.Options{EnvType: ptr.To(environment.NewExpressions)})
	switch err := result.Error; {
	case err == nil && result.MaxCost > resourcev1.CELSelectorExpressionMaxCost:
		return field.ErrorList{field.Forbidden(path, "too complex, exceeds cost limit")}
	case err == nil:
		return nil
	case err.Type == celapi.ErrorTypeRequired:
		return field.ErrorList{field.Required(path, err.Detail)}
	case err.Type == celapi.ErrorTypeInvalid:
		return field.ErrorList{field.Invalid(path, text, err.Detail)}
	case err.Type == celapi.ErrorTypeInternal:
		return field.ErrorList{field.InternalError(path, err)}
	default:
		return field.ErrorList{field.InternalError(path, fmt.Errorf("unsupported error type: %w", err))}
	}
}

// configuration requires the parameters of a driver; those that are stored may be longer.
func configuration(c *resourcev1.DeviceConfiguration, stored bool, path *field.Path) field.ErrorList {
	path = path.Child("opaque")
	if c.Opaque == nil {
		return field.ErrorList{field.Required(path, "")}
	}
	limit := resourcev1.OpaqueParametersMaxLength
	if stored {
		limit = len(c.Opaque.Parameters.Raw)
	}
	return jsonObject(&c.Opaque.Parameters, limit, path.Child("parameters"))
}

func jsonObject(data *runtime.RawExtension, limit int, path *field.Path) field.ErrorList {
	if len(data.Raw) > limit {
		return field.ErrorList{field.TooLong(path, "", limit)}
	}
	var value any
	if len(data.Raw) > 0 {
		if err := json.Unmarshal(data.Raw, &value); err != nil {
			return field.ErrorList{field.Invalid(path, "<value omitted>", fmt.Sprintf("error parsing data as JSON: %v", err))}
		}
	}
	switch value.(type) {
	case nil:
		return field.ErrorList{field.Required(path, "")}
	case map[string]any:
		return nil
	}
	return field.ErrorList{field.Invalid(path, "<value omitted>", "must be a valid JSON object")}
}
