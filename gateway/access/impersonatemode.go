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
	"portico/resource/authn"
	"portico/resource/authz"
)

// Names that impersonation uses (docs/wire.md 7.3).
const (
	extraNodeName = "authentication.kubernetes.io/node-name"
	groupNodes    = "system:nodes"
	groupAuthn    = "authentication.k8s.io"
)

// mode is a mode of impersonation. A constrained one needs two rights:
// impersonate:<name> on each part of the identity, and impersonate-on:<name>:<verb> on
// the resource of the request; it never reaches system:masters. The unconstrained one
// (no name) needs impersonate on each part, and gives all rights of the impersonated
// user.
type mode struct {
	name string
	// applies reports whether the mode is for the wanted identity; nil: for all.
	applies func(wanted, sender *resource.User) bool
	// everyNode: the right to impersonate is checked for all nodes ("*").
	everyNode bool
}

// modes returns the modes in the order in which they are tried. The unconstrained one is last,
// so that a constrained one is used where it suffices.
func modes() []mode {
	return []mode{
		{name: "associated-node", everyNode: true, applies: func(wanted, sender *resource.User) bool {
			// A service account in a pod may impersonate the node of its pod.
			name, ok := node(wanted.Name)
			_, _, isAccount := serviceAccount(sender.Name)
			on := sender.Extra[extraNodeName]
			return ok && onlyName(wanted) && isAccount && len(on) == 1 && on[0] == name
		}},
		{name: "arbitrary-node", applies: func(wanted, _ *resource.User) bool {
			_, ok := node(wanted.Name)
			return ok && onlyName(wanted)
		}},
		{name: "serviceaccount", applies: func(wanted, _ *resource.User) bool {
			_, _, ok := serviceAccount(wanted.Name)
			return ok && onlyName(wanted)
		}},
		{name: "user-info", applies: func(wanted, _ *resource.User) bool {
			_, isNode := node(wanted.Name)
			_, _, isAccount := serviceAccount(wanted.Name)
			return !isNode && !isAccount && constrainable(wanted)
		}},
		{},
	}
}

func (m *mode) constrained() bool { return m.name != "" }

// verb returns the verb that permits to impersonate in this mode.
func (m *mode) verb() string {
	if !m.constrained() {
		return "impersonate"
	}
	return "impersonate:" + m.name
}

// impersonate returns the action with the wanted user. It returns the error of the first mode
// that applies.
func (a *Access) impersonate(ctx context.Context, act *resource.Action, wanted *resource.User) (*resource.Action, error) {
	var first error
	for _, m := range modes() {
		if m.applies != nil && !m.applies(wanted, act.User) {
			continue
		}
		as := *act
		as.User, as.Impersonator = m.complete(wanted), act.User
		if m.constrained() {
			as.User.Constraint = &resource.Constraint{Impersonator: act.User, Mode: m.name}
		}
		err := a.permits(ctx, &m, &as, wanted)
		if err == nil {
			return &as, nil
		}
		if first == nil {
			first = err
		}
	}
	return nil, first
}

// permits checks the rights that a mode needs for an action as the wanted user.
func (a *Access) permits(ctx context.Context, m *mode, as *resource.Action, wanted *resource.User) error {
	if on := authz.ImpersonateOn(as); on != nil {
		if err := a.require(ctx, on); err != nil {
			return err
		}
	}
	for _, right := range m.rights(as.Impersonator, wanted) {
		if err := a.require(ctx, right); err != nil {
			return err
		}
	}
	return nil
}

// require returns a 403 unless the action is allowed.
func (a *Access) require(ctx context.Context, act *resource.Action) error {
	decision, reason, err := a.cfg.Chain().Authorize(ctx, act)
	if decision == authz.Allow {
		return nil
	}
	if err != nil {
		reason = err.Error()
	}
	return authz.Forbidden(act, reason)
}

// rights returns the actions that the sender must be allowed: one for each part of the wanted
// identity, in a fixed order.
func (m *mode) rights(sender, wanted *resource.User) []*resource.Action {
	var list []*resource.Action
	need := func(group, res, sub, namespace, name string) {
		list = append(list, &resource.Action{
			User: sender, Verb: m.verb(), IsResource: true, Group: group, Version: "v1",
			Resource: res, Subresource: sub, Namespace: namespace, Name: name, InPath: true,
		})
	}
	identities := "" // the group of users and groups in the unconstrained mode is the core group
	if m.constrained() {
		identities = groupAuthn
	}
	namespace, account, isAccount := serviceAccount(wanted.Name)
	host, isNode := node(wanted.Name)
	switch {
	case isAccount:
		need(identities, "serviceaccounts", "", namespace, account)
	case isNode && m.everyNode:
		need(identities, "nodes", "", "", "*")
	case isNode && m.constrained():
		need(identities, "nodes", "", "", host)
	default:
		need(identities, "users", "", "", wanted.Name)
	}
	if wanted.UID != "" {
		need(groupAuthn, "uids", "", "", wanted.UID)
	}
	for _, g := range wanted.Groups {
		need(identities, "groups", "", "", g)
	}
	for _, key := range slices.Sorted(maps.Keys(wanted.Extra)) {
		for _, value := range wanted.Extra[key] {
			need(groupAuthn, "userextras", key, "", value)
		}
	}
	return list
}

// complete returns the impersonated user with the groups that its name implies.
func (m *mode) complete(wanted *resource.User) *resource.User {
	u := *wanted
	if namespace, _, ok := serviceAccount(u.Name); ok && len(u.Groups) == 0 {
		u.Groups = serviceaccount.MakeGroupNames(namespace)
	}
	if _, ok := node(u.Name); ok && m.constrained() {
		u.Groups = []string{groupNodes}
	}
	if u.Name != resource.Anonymous {
		return authn.WithAuthenticated(&u)
	}
	if !slices.Contains(u.Groups, resource.GroupUnauthenticated) {
		u.Groups = append(slices.Clone(u.Groups), resource.GroupUnauthenticated)
	}
	return &u
}

func onlyName(u *resource.User) bool {
	return u.UID == "" && len(u.Groups) == 0 && len(u.Extra) == 0
}

// constrainable reports whether an identity can be impersonated in a constrained mode: without
// system:masters and empty names, and with valid keys of extras.
func constrainable(u *resource.User) bool {
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
