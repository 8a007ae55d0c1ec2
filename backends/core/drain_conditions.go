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

// A condition lists at most maxNamed items, and maxErrorText bytes of an error: more might
// not fit into the stored namespace.
const (
	maxNamed     = 100
	maxErrorText = 1 << 10
)

// result is the result of draining a namespace once.
type result struct {
	discovery error          // of groups with unknown resources
	content   []error        // deletions that failed
	remaining map[string]int // number of objects left by resource
	held      map[string]int // number of objects left by finalizer
}

func newResult() *result { return &result{remaining: map[string]int{}, held: map[string]int{}} }

func (r *result) done() bool {
	return r.discovery == nil && len(r.content) == 0 && len(r.remaining) == 0
}

// count counts the objects left of a resource. The name of a resource of the core group ends
// in a dot, as upstream's.
func (r *result) count(of schema.GroupVersionResource, objects []*resource.Object) {
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

// conditions returns the conditions of the namespace (k8s.io/kubernetes
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
	slices.Sort(content) // the same errors make the same text, which is not written again
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

// named joins the first maxNamed parts, and counts the others.
func named(parts []string) string {
	if more := len(parts) - maxNamed; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(parts[:maxNamed], ", "), more)
	}
	return strings.Join(parts, ", ")
}

// cut shortens the text of an error to maxErrorText.
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
