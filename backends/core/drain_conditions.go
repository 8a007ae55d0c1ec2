package core

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico/resource"
)

// A condition names maxNamed things at most, and of an error so many bytes: a
// namespace's content may hold more than a namespace can be stored with.
const (
	maxNamed     = 100
	maxErrorText = 1 << 10
)

// result is what one round of draining found.
type result struct {
	discovery error          // groups that could not be found out about
	content   []error        // deletions that failed
	remaining map[string]int // resource to number of objects left
	held      map[string]int // finalizer to number of objects it holds
}

func newResult() *result { return &result{remaining: map[string]int{}, held: map[string]int{}} }

func (r *result) done() bool {
	return r.discovery == nil && len(r.content) == 0 && len(r.remaining) == 0
}

// note counts what is left of a resource. The name ends in a dot in the core
// group: that is the text clients know.
func (r *result) note(of schema.GroupVersionResource, objects []*resource.Object) {
	if len(objects) == 0 {
		return
	}
	r.remaining[of.Resource+"."+of.Group] += len(objects)
	for _, o := range objects {
		for _, f := range o.Finalizers {
			r.held[f]++
		}
	}
}

// conditions are what users read of a namespace that will not go (kubernetes
// pkg/controller/namespace/deletion).
func (r *result) conditions() []corev1.NamespaceCondition {
	condition := func(kind corev1.NamespaceConditionType, bad bool, badReason, badText, reason, text string) corev1.NamespaceCondition {
		c := corev1.NamespaceCondition{Type: kind, Status: corev1.ConditionFalse, Reason: reason, Message: text}
		if bad {
			c.Status, c.Reason, c.Message = corev1.ConditionTrue, badReason, badText
		}
		return c
	}
	discovery := ""
	if r.discovery != nil {
		discovery = cut(r.discovery.Error())
	}
	content := make([]string, len(r.content))
	for i, err := range r.content {
		content[i] = cut(err.Error())
	}
	slices.Sort(content) // the same text for the same errors: nothing is written
	return []corev1.NamespaceCondition{
		condition(corev1.NamespaceDeletionDiscoveryFailure, r.discovery != nil, "DiscoveryFailed", discovery,
			"ResourcesDiscovered", "All resources successfully discovered"),
		condition(corev1.NamespaceDeletionGVParsingFailure, false, "", "", "ParsedGroupVersions", "All legacy kube types successfully parsed"),
		condition(corev1.NamespaceDeletionContentFailure, len(content) > 0, "ContentDeletionFailed",
			"Failed to delete all resource types, "+fmt.Sprint(len(content))+" remaining: "+named(content),
			"ContentDeleted", "All content successfully deleted, may be waiting on finalization"),
		condition(corev1.NamespaceContentRemaining, len(r.remaining) > 0, "SomeResourcesRemain",
			"Some resources are remaining: "+counts(r.remaining, "%s has %d resource instances"), "ContentRemoved", "All content successfully removed"),
		condition(corev1.NamespaceFinalizersRemaining, len(r.held) > 0, "SomeFinalizersRemain",
			"Some content in the namespace has finalizers remaining: "+counts(r.held, "%s in %d resource instances"),
			"ContentHasNoFinalizers", "All content-preserving finalizers finished"),
	}
}

func counts(m map[string]int, format string) string {
	var parts []string
	for name, n := range m {
		parts = append(parts, fmt.Sprintf(format, name, n))
	}
	slices.Sort(parts)
	return named(parts)
}

// named lists the first of the parts and says how many more there are.
func named(parts []string) string {
	if more := len(parts) - maxNamed; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(parts[:maxNamed], ", "), more)
	}
	return strings.Join(parts, ", ")
}

// cut shortens the text of an error that is too long.
func cut(text string) string {
	if len(text) <= maxErrorText {
		return text
	}
	return strings.ToValidUTF8(text[:maxErrorText], "") + "..."
}

func setCondition(list *[]corev1.NamespaceCondition, c corev1.NamespaceCondition) {
	c.LastTransitionTime = metav1.NewTime(time.Now().Truncate(time.Second))
	for i, have := range *list {
		if have.Type != c.Type {
			continue
		}
		if have.Status == c.Status {
			c.LastTransitionTime = have.LastTransitionTime
		}
		(*list)[i] = c
		return
	}
	*list = append(*list, c)
}
