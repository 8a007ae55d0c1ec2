package access

import (
	"context"
	"fmt"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta/table"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/applyconfigurations"

	"portico/resource"
	"portico/resource/rest"
)

// Kinds returns the kinds to serve: the four stored RBAC kinds and the reviews.
func (a *Access) Kinds() ([]*rest.Kind, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{rbacv1.AddToScheme, authenticationv1.AddToScheme, authorizationv1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("register access kinds: %w", err)
		}
	}
	stored := []*rest.Kind{
		a.roleKind(), a.clusterRoleKind(),
		a.bindingKind(resource.Info{Resource: "rolebindings", Kind: "RoleBinding", Namespaced: true}),
		a.bindingKind(resource.Info{Resource: "clusterrolebindings", Kind: "ClusterRoleBinding"}),
	}
	for _, k := range stored {
		if k.Strategy.ValidateUpdate == nil {
			k.Strategy.ValidateUpdate = func(ctx context.Context, obj, _ rest.Object) field.ErrorList { return k.Strategy.Validate(ctx, obj) }
		}
		k.Group, k.Versions = rbacv1.GroupName, []string{"v1"}
		k.CreateOnUpdate, k.UnconditionalUpdate = true, true
		k.Codec = rest.Typed(scheme, rbacv1.SchemeGroupVersion.WithKind(k.Kind))
		k.Ownership = func() (managedfields.TypeConverter, error) { return applyconfigurations.NewTypeConverter(scheme), nil }
		k.Strategy.ValidateName = func(name string, _ bool) []string { return content.IsPathSegmentName(name) }
	}
	return append(stored, a.reviews(scheme)...), nil
}

func (a *Access) roleKind() *rest.Kind {
	return &rest.Kind{
		Info: resource.Info{Resource: "roles", Kind: "Role", Namespaced: true},
		Strategy: rest.Strategy{
			Check: func(ctx context.Context, _ string, obj, old rest.Object) error {
				return a.checkRole(ctx, rbacv1.Resource("roles"), obj, old, obj.(*rbacv1.Role).Rules, false)
			},
			Validate: func(_ context.Context, obj rest.Object) field.ErrorList {
				return validateRules(obj.(*rbacv1.Role).Rules, true)
			},
		},
	}
}

func (a *Access) clusterRoleKind() *rest.Kind {
	return &rest.Kind{
		Info: resource.Info{Resource: "clusterroles", Kind: "ClusterRole"},
		Strategy: rest.Strategy{
			Check: func(ctx context.Context, _ string, obj, old rest.Object) error {
				r, aggregates := obj.(*rbacv1.ClusterRole), hasAggregation(obj)
				if old != nil {
					aggregates = aggregates || hasAggregation(old)
				}
				return a.checkRole(ctx, rbacv1.Resource("clusterroles"), obj, old, r.Rules, aggregates)
			},
			Validate: func(_ context.Context, obj rest.Object) field.ErrorList {
				r := obj.(*rbacv1.ClusterRole)
				return append(validateRules(r.Rules, false), validateAggregation(r.AggregationRule)...)
			},
		},
	}
}

func hasAggregation(obj rest.Object) bool {
	rule := obj.(*rbacv1.ClusterRole).AggregationRule
	return rule != nil && len(rule.ClusterRoleSelectors) > 0
}

// binding has the fields of both kinds of bindings.
type binding struct {
	ref      *rbacv1.RoleRef
	subjects *[]rbacv1.Subject
}

// bindingOf returns the fields of a binding; empty ones for other kinds.
func bindingOf(obj runtime.Object) binding {
	switch b := obj.(type) {
	case *rbacv1.RoleBinding:
		return binding{&b.RoleRef, &b.Subjects}
	case *rbacv1.ClusterRoleBinding:
		return binding{&b.RoleRef, &b.Subjects}
	}
	return binding{&rbacv1.RoleRef{}, &[]rbacv1.Subject{}}
}

func (a *Access) bindingKind(info resource.Info) *rest.Kind {
	return &rest.Kind{
		Info: info,
		Strategy: rest.Strategy{
			Default: func(obj rest.Object) { defaultBinding(bindingOf(obj)) },
			Check: func(ctx context.Context, _ string, obj, old rest.Object) error {
				return a.checkBinding(ctx, rbacv1.Resource(info.Resource), obj, old, *bindingOf(obj).ref)
			},
			Validate: func(_ context.Context, obj rest.Object) field.ErrorList {
				return validateBinding(bindingOf(obj), info.Namespaced)
			},
			ValidateUpdate: func(_ context.Context, obj, old rest.Object) field.ErrorList {
				errs := validateBinding(bindingOf(obj), info.Namespaced)
				if b, o := bindingOf(obj), bindingOf(old); *b.ref != *o.ref {
					errs = append(errs, field.Invalid(field.NewPath("roleRef"), *b.ref, "cannot change roleRef"))
				}
				return errs
			},
		},
		Columns: bindingColumns(),
		Cells: func(obj runtime.Object) ([]any, error) {
			meta, ok := obj.(metav1.Object)
			if !ok {
				return nil, fmt.Errorf("print binding: got %T", obj)
			}
			return bindingCells(meta, bindingOf(obj)), nil
		},
	}
}

func defaultBinding(b binding) {
	if b.ref.APIGroup == "" {
		b.ref.APIGroup = rbacv1.GroupName
	}
	for i := range *b.subjects {
		if s := &(*b.subjects)[i]; s.APIGroup == "" && (s.Kind == rbacv1.UserKind || s.Kind == rbacv1.GroupKind) {
			s.APIGroup = rbacv1.GroupName
		}
	}
}

func bindingColumns() []metav1.TableColumnDefinition {
	column := func(name string, wide int32, text string) metav1.TableColumnDefinition {
		return metav1.TableColumnDefinition{Name: name, Type: "string", Priority: wide, Description: text}
	}
	name := column("Name", 0, "Name of the binding.")
	name.Format = "name"
	return []metav1.TableColumnDefinition{
		name,
		column("Role", 0, "Role that is granted, as kind/name."),
		column("Age", 0, "Time since the object was created."),
		column("Users", 1, "Users that it is granted to."),
		column("Groups", 1, "Groups that it is granted to."),
		column("ServiceAccounts", 1, "Service accounts that it is granted to, as namespace/name."),
	}
}

func bindingCells(meta metav1.Object, b binding) []any {
	var users, groups, accounts []string
	for _, s := range *b.subjects {
		switch s.Kind {
		case rbacv1.UserKind:
			users = append(users, s.Name)
		case rbacv1.GroupKind:
			groups = append(groups, s.Name)
		case rbacv1.ServiceAccountKind:
			accounts = append(accounts, s.Namespace+"/"+s.Name)
		}
	}
	return []any{
		meta.GetName(), b.ref.Kind + "/" + b.ref.Name, table.ConvertToHumanReadableDateType(meta.GetCreationTimestamp()),
		strings.Join(users, ", "), strings.Join(groups, ", "), strings.Join(accounts, ", "),
	}
}
