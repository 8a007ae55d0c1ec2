package audit

import (
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"portico/resource"
)

// attributesOf returns an Action in the form of upstream's packages; the user is nil if it
// is not known.
func attributesOf(a *resource.Action) authorizer.Attributes {
	attributes := &authorizer.AttributesRecord{
		Verb: a.Verb, Namespace: a.Namespace, APIGroup: a.Group, APIVersion: a.Version, Resource: a.Resource, Subresource: a.Subresource,
		Name: a.Name, ResourceRequest: a.IsResource, Path: a.Path,
	}
	if a.User != nil {
		attributes.User = userInfo(a.User)
	}
	return attributes
}

// userInfo returns a User in the form of upstream's packages.
func userInfo(u *resource.User) user.Info {
	return &user.DefaultInfo{Name: u.Name, UID: u.UID, Groups: u.Groups, Extra: u.Extra}
}
