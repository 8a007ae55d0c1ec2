package main

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico/apiservice/backend"
)

const (
	// notServed begins what unserved says of a server that was read.
	notServed = "the server does not serve "
	// maxServedNames bounds the group/versions that a message names.
	maxServedNames = 10
)

// unserved says what was asked for by name and the server does not serve, and what
// it serves in its place; "" is nothing. That its Backend is available tells nothing
// of that: neither a group that nobody has heard of nor an APIService that was just
// made, which is available until the gateway has asked the server for it.
func (r *registration) unserved(b *backend.Backend) string {
	have := b.Status.GroupVersions
	if r.rest || r.allGroups || len(have) >= backend.MaxStatusGroups {
		return "" // a full list may lack what there is
	}
	var lost []string
	for _, group := range r.groups {
		if len(r.versions) == 0 && !slices.ContainsFunc(have, func(gv backend.GroupVersionStatus) bool { return gv.Group == group }) {
			lost = append(lost, fmt.Sprintf("group %q", group))
		}
		for _, version := range r.versions {
			if !slices.ContainsFunc(have, func(gv backend.GroupVersionStatus) bool { return gv.Group == group && gv.Version == version }) {
				lost = append(lost, strings.TrimPrefix(group+"/"+version, "/"))
			}
		}
	}
	c := meta.FindStatusCondition(b.Status.Conditions, backend.Discovered)
	switch {
	case len(lost) == 0:
		return ""
	case c == nil || c.Status == metav1.ConditionUnknown:
		return "what the server serves has not been read yet"
	case len(have) == 0 && c.Status == metav1.ConditionFalse:
		return fmt.Sprintf("what the server serves cannot be read: %s", oneLine(c.Message))
	}
	return fmt.Sprintf("%s%s; it serves %s", notServed, strings.Join(lost, ", "), someNames(served(b)))
}

// someNames is the first of many names; "nothing" is none.
func someNames(names []string) string {
	switch n := len(names); {
	case n == 0:
		return "nothing"
	case n > maxServedNames:
		return fmt.Sprintf("%s and %d more", strings.Join(names[:maxServedNames], ", "), n-maxServedNames)
	}
	return strings.Join(names, ", ")
}
