package access

import (
	"context"
	"maps"
	"slices"
	"strings"

	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"

	"portico/resource"
	"portico/resource/authz"
)

// Extra keys and groups that impersonation knows (docs/wire.md 7.3).
const (
	extraNodeName = "authentication.kubernetes.io/node-name"
	groupNodes    = "system:nodes"
	groupWho      = "authentication.k8s.io"
)

// mode is a mode of impersonation. A constrained one needs two rights:
// impersonate:<name> on each part of the identity, and impersonate-on:<name>:<verb> on
// the resource of the request; it never reaches system:masters. The unconstrained one
// (no name) needs impersonate on each part, and gives all rights of the impersonated
// user.
type mode struct {
	name string
	// applies reports whether the mode is for such an identity; nil: for all.
	applies func(asked, sender *resource.User) bool
	// everyNode: the right to impersonate is checked for all nodes ("*").
	everyNode bool
}

// modes are the modes in the order in which they are tried. The unconstrained one is
// last, so that a constraint applies where it suffices.
func modes() []mode {
	return []mode{
		{name: "associated-node", everyNode: true, applies: func(asked, sender *resource.User) bool {
			// A service account in a pod may be the node its pod runs on.
			name, ok := node(asked.Name)
			_, _, isAccount := serviceAccount(sender.Name)
			on := sender.Extra[extraNodeName]
			return ok && onlyName(asked) && isAccount && len(on) == 1 && on[0] == name
		}},
		{name: "arbitrary-node", applies: func(asked, _ *resource.User) bool {
			_, ok := node(asked.Name)
			return ok && onlyName(asked)
		}},
		{name: "serviceaccount", applies: func(asked, _ *resource.User) bool {
			_, _, ok := serviceAccount(asked.Name)
			return ok && onlyName(asked)
		}},
		{name: "user-info", applies: func(asked, _ *resource.User) bool {
			_, isNode := node(asked.Name)
			_, _, isAccount := serviceAccount(asked.Name)
			return !isNode && !isAccount && plausible(asked)
		}},
		{},
	}
}

func (m *mode) constrained() bool { return m.name != "" }

// verb is the right to take on an identity in this mode.
func (m *mode) verb() string {
	if !m.constrained() {
		return "impersonate"
	}
	return "impersonate:" + m.name
}

// impersonate returns the action as it is when asked makes it. The error is
// that of the unconstrained mode, which names what the sender may not be.
func (a *Access) impersonate(ctx context.Context, act *resource.Action, asked *resource.User) (*resource.Action, error) {
	var err error
	for _, m := range modes() {
		if m.applies != nil && !m.applies(asked, act.User) {
			continue
		}
		if err = a.permits(ctx, &m, act, asked); err != nil {
			continue
		}
		as := *act
		as.User, as.Impersonator = m.complete(asked), act.User
		if m.constrained() {
			as.ImpersonationConstraint = m.verb()
		}
		return &as, nil
	}
	return nil, err
}

// permits checks every right that a mode needs.
func (a *Access) permits(ctx context.Context, m *mode, act *resource.Action, asked *resource.User) error {
	if m.constrained() {
		on := *act
		on.Verb = "impersonate-on:" + m.name + ":" + act.Verb
		if err := a.require(ctx, &on); err != nil {
			return err
		}
	}
	for _, right := range m.rights(act.User, asked) {
		if err := a.require(ctx, right); err != nil {
			return err
		}
	}
	return nil
}

// require returns a 403 unless the action is allowed.
func (a *Access) require(ctx context.Context, act *resource.Action) error {
	decision, reason, err := a.Authorize(ctx, act)
	if decision == authz.Allow {
		return nil
	}
	if err != nil {
		reason = err.Error()
	}
	return authz.Forbidden(act, reason)
}

// rights are the actions that the sender must be allowed in order to be asked:
// one for each part of the identity, in a fixed order.
func (m *mode) rights(sender, asked *resource.User) []*resource.Action {
	var list []*resource.Action
	need := func(group, res, sub, namespace, name string) {
		list = append(list, &resource.Action{
			User: sender, Verb: m.verb(), IsResource: true, Group: group, Version: "v1",
			Resource: res, Subresource: sub, Namespace: namespace, Name: name, InPath: true,
		})
	}
	people := "" // users and groups were in the core group before there were modes
	if m.constrained() {
		people = groupWho
	}
	namespace, account, isAccount := serviceAccount(asked.Name)
	host, isNode := node(asked.Name)
	switch {
	case isAccount:
		need(people, "serviceaccounts", "", namespace, account)
	case isNode && m.everyNode:
		need(people, "nodes", "", "", "*")
	case isNode && m.constrained():
		need(people, "nodes", "", "", host)
	default:
		need(people, "users", "", "", asked.Name)
	}
	if asked.UID != "" {
		need(groupWho, "uids", "", "", asked.UID)
	}
	for _, g := range asked.Groups {
		need(people, "groups", "", "", g)
	}
	for _, key := range slices.Sorted(maps.Keys(asked.Extra)) {
		for _, value := range asked.Extra[key] {
			need(groupWho, "userextras", key, "", value)
		}
	}
	return list
}

// complete returns the impersonated user with the groups that come with the
// name.
func (m *mode) complete(asked *resource.User) *resource.User {
	u := *asked
	if namespace, _, ok := serviceAccount(u.Name); ok && len(u.Groups) == 0 {
		u.Groups = serviceaccount.MakeGroupNames(namespace)
	}
	if _, ok := node(u.Name); ok && m.constrained() {
		u.Groups = []string{groupNodes}
	}
	if u.Name != resource.Anonymous {
		return authenticated(&u)
	}
	if !slices.Contains(u.Groups, resource.GroupUnauthenticated) {
		u.Groups = append(slices.Clone(u.Groups), resource.GroupUnauthenticated)
	}
	return &u
}

func onlyName(u *resource.User) bool {
	return u.UID == "" && len(u.Groups) == 0 && len(u.Extra) == 0
}

// plausible reports whether an identity may be asked for under a constraint at
// all: not system:masters, no empty names, and proper keys of extras.
func plausible(u *resource.User) bool {
	if slices.Contains(u.Groups, "") || slices.Contains(u.Groups, resource.GroupMasters) {
		return false
	}
	for key, values := range u.Extra {
		if key != strings.ToLower(key) || len(utilvalidation.IsDomainPrefixedPath(field.NewPath("extra"), key)) > 0 ||
			len(values) == 0 || slices.Contains(values, "") {
			return false
		}
	}
	return true
}
