package audit

import (
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"portico/resource"
)

// attributes is an Action in the form of upstream's packages.
type attributes resource.Action

var _ authorizer.Attributes = (*attributes)(nil)

// GetUser returns nil if no user is known.
func (a *attributes) GetUser() user.Info {
	if a.User == nil {
		return nil
	}
	return (*userInfo)(a.User)
}

func (a *attributes) GetVerb() string         { return a.Verb }
func (a *attributes) IsReadOnly() bool        { return !(*resource.Action)(a).Mutating() }
func (a *attributes) GetNamespace() string    { return a.Namespace }
func (a *attributes) GetResource() string     { return a.Resource }
func (a *attributes) GetSubresource() string  { return a.Subresource }
func (a *attributes) GetName() string         { return a.Name }
func (a *attributes) GetAPIGroup() string     { return a.Group }
func (a *attributes) GetAPIVersion() string   { return a.Version }
func (a *attributes) IsResourceRequest() bool { return a.IsResource }
func (a *attributes) GetPath() string         { return a.Path }

// GetFieldSelector and GetLabelSelector return nothing: audit does not use them.
func (a *attributes) GetFieldSelector() (fields.Requirements, error) { return nil, nil }
func (a *attributes) GetLabelSelector() (labels.Requirements, error) { return nil, nil }

// userInfo is a User in the form of upstream's packages.
type userInfo resource.User

func (u *userInfo) GetName() string               { return u.Name }
func (u *userInfo) GetUID() string                { return u.UID }
func (u *userInfo) GetGroups() []string           { return u.Groups }
func (u *userInfo) GetExtra() map[string][]string { return u.Extra }
