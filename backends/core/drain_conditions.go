package core

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico/apiservice"
	"portico/resource"
)

// A condition lists at most maxNamed items, and maxErrorText bytes of an error: more might
// not fit into the stored namespace.
const (
	maxNamed     = 100
	maxErrorText = 1 << 10
	// maxAdvised bounds how many APIServices a condition advises about.
	maxAdvised = 20
)

// result is the result of draining a namespace once.
type result struct {
	namespace string

	mu        sync.Mutex
	resources []emptied // with objects left, or errors
	discovery error     // of reading discovery
	unknown   []emptied // group/versions with unknown resources

	// Of settle:
	content   []emptied      // deletions that failed
	abandoned []emptied      // what the namespace does not wait for
	remaining map[string]int // number of objects left by resource
	held      map[string]int // number of objects left by finalizer
}

// emptied is a resource that is not empty, may not be, or is not known. A group/version with
// unknown resources has a resource without a name.
type emptied struct {
	api      string // the APIService; "": this server's resource
	resource schema.GroupResource
	err      error
	left     []*resource.Object
}

func (e emptied) String() string { return cut(e.resource.String() + ": " + e.err.Error()) }

func newResult(namespace string) *result {
	return &result{namespace: namespace, remaining: map[string]int{}, held: map[string]int{}}
}

// add adds a resource. Safe for concurrent use.
func (r *result) add(e emptied) {
	if e.err == nil && len(e.left) == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.resources = append(r.resources, e)
}

// settle separates what failed behind abandoned APIServices from what the namespace waits for.
func (r *result) settle(abandoned func(api string) bool) {
	for _, e := range r.resources {
		switch {
		case e.err != nil && abandoned(e.api):
			r.abandoned = append(r.abandoned, e)
			continue
		case e.err != nil:
			r.content = append(r.content, e)
		}
		r.count(e.resource, e.left)
	}
	r.unknown = slices.DeleteFunc(r.unknown, func(e emptied) bool {
		if abandoned(e.api) {
			r.abandoned = append(r.abandoned, e)
			return true
		}
		return false
	})
}

func (r *result) done() bool {
	return r.discovery == nil && len(r.unknown)+len(r.content)+len(r.remaining) == 0
}

// count counts the objects left of a resource. The name of a resource of the core group ends
// in a dot, as upstream's.
func (r *result) count(of schema.GroupResource, objects []*resource.Object) {
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
	discovery := r.discoveryMessage()
	content := make([]string, len(r.content))
	for i, e := range r.content {
		content[i] = e.String()
	}
	slices.Sort(content) // the same errors make the same text, which is not written again
	return []corev1.NamespaceCondition{
		condition(corev1.NamespaceDeletionDiscoveryFailure, discovery != "", "DiscoveryFailed", discovery,
			"ResourcesDiscovered", "All resources successfully discovered"),
		condition(corev1.NamespaceDeletionGVParsingFailure, false, "", "", "ParsedGroupVersions", "All legacy kube types successfully parsed"),
		condition(corev1.NamespaceDeletionContentFailure, len(content) > 0, "ContentDeletionFailed",
			"Failed to delete all resource types, "+fmt.Sprint(len(content))+" remaining: "+named(content)+r.advice(r.content),
			"ContentDeleted", "All content successfully deleted, may be waiting on finalization"),
		condition(corev1.NamespaceContentRemaining, len(r.remaining) > 0, "SomeResourcesRemain",
			"Some resources are remaining: "+counts(r.remaining, "%s has %d resource instances"), "ContentRemoved", "All content successfully removed"),
		condition(corev1.NamespaceFinalizersRemaining, len(r.held) > 0, "SomeFinalizersRemain",
			"Some content in the namespace has finalizers remaining: "+counts(r.held, "%s in %d resource instances"),
			"ContentHasNoFinalizers", "All content-preserving finalizers finished"),
	}
}

// discoveryMessage says what could not be discovered; "": nothing.
func (r *result) discoveryMessage() string {
	if r.discovery != nil {
		return cut(r.discovery.Error())
	}
	if len(r.unknown) == 0 {
		return ""
	}
	groups := make([]string, len(r.unknown))
	for i, e := range r.unknown {
		groups[i] = e.err.Error()
	}
	slices.Sort(groups)
	return fmt.Sprintf("Discovery failed for some groups, %d failing: unable to retrieve the complete list of server APIs: %s%s", len(groups), named(groups), r.advice(r.unknown))
}

// advice says how a namespace goes that is held up by objects that cannot be read, by webhooks, or by
// servers that do not respond; "": they are not what holds it up.
func (r *result) advice(failed []emptied) (advice string) {
	var others []emptied
	var unreadable, admission bool
	var converted []string
	for _, e := range failed {
		switch text := e.err.Error(); {
		case apierrors.ReasonForError(e.err) == metav1.StatusReasonStoreReadError:
			unreadable = true
		case strings.Contains(text, conversionFailed):
			converted = append(converted, e.resource.String())
		case strings.Contains(text, admissionFailed):
			admission = true
		default:
			others = append(others, e)
		}
	}
	if unreadable {
		advice = "; repair what cannot be read, or delete it with ignoreStoreReadErrorWithClusterBreakingPotential in DeleteOptions"
	}
	if admission {
		advice += "; repair the admission webhook that is named, or delete its configuration"
	}
	if len(converted) > 0 {
		slices.Sort(converted)
		advice += fmt.Sprintf("; repair the conversion webhook of CustomResourceDefinition %s, or delete the definition with all of its objects, which needs no webhook",
			named(converted))
	}
	apis := servicesOf(others)
	if len(apis) == 0 {
		return advice
	}
	if more := len(apis) - maxAdvised; more > 0 {
		apis = append(apis[:maxAdvised:maxAdvised], fmt.Sprintf("and %d more", more))
	}
	names := strings.Join(apis, " ")
	return advice + fmt.Sprintf("; repair the server of APIService %s, or leave behind what it has in this namespace: kubectl annotate apiservice %s %s=%s",
		names, names, apiservice.AbandonAnnotation, r.namespace)
}

// Parts of the errors of servers that cannot call a webhook (docs/wire.md 9.5, 10.2).
const (
	conversionFailed = "conversion webhook for "
	admissionFailed  = "failed calling webhook "
)

// servicesOf returns the names of the APIServices, each once.
func servicesOf(list []emptied) (names []string) {
	for _, e := range list {
		if e.api != "" && !slices.Contains(names, e.api) {
			names = append(names, e.api)
		}
	}
	slices.Sort(names)
	return names
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
