package audit

import (
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"portico/resource"
)

// attributes is an Action as upstream's policies and events see it.
type attributes struct {
	action *resource.Action
	user   user.DefaultInfo
}

var _ authorizer.Attributes = (*attributes)(nil)

// newAttributes returns the attributes of the action. They do not change with it.
func newAttributes(a *resource.Action) *attributes {
	attrs := &attributes{action: a}
	if a.User != nil {
		attrs.user = userInfo(a.User)
	}
	return attrs
}

func userInfo(u *resource.User) user.DefaultInfo {
	return user.DefaultInfo{Name: u.Name, UID: u.UID, Groups: u.Groups, Extra: u.Extra}
}

// GetUser returns nil where nobody is known.
func (a *attributes) GetUser() user.Info {
	if a.action.User == nil {
		return nil
	}
	return &a.user
}

func (a *attributes) GetVerb() string         { return a.action.Verb }
func (a *attributes) IsReadOnly() bool        { return !a.action.Mutating() }
func (a *attributes) GetNamespace() string    { return a.action.Namespace }
func (a *attributes) GetResource() string     { return a.action.Resource }
func (a *attributes) GetSubresource() string  { return a.action.Subresource }
func (a *attributes) GetName() string         { return a.action.Name }
func (a *attributes) GetAPIGroup() string     { return a.action.Group }
func (a *attributes) GetAPIVersion() string   { return a.action.Version }
func (a *attributes) IsResourceRequest() bool { return a.action.IsResource }
func (a *attributes) GetPath() string         { return a.action.Path }

// GetFieldSelector and GetLabelSelector are no concern of audit.
func (a *attributes) GetFieldSelector() (fields.Requirements, error) { return nil, nil }
func (a *attributes) GetLabelSelector() (labels.Requirements, error) { return nil, nil }
