package kindtest

import (
	"cmp"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"portico/resource"
	"portico/resource/rest"
)

// Cause is one error of validation.
type Cause struct {
	Field, Reason, Message string
}

// String returns the cause as it is recorded.
func (c Cause) String() string { return c.Field + ": " + c.Reason + ": " + c.Message }

// Outcome is what a server does with one write.
type Outcome struct {
	// Undecodable is set if the body is refused before validation, and Refused if
	// validation found errors, be they of metadata alone.
	Undecodable, Refused bool
	// Causes are the errors of validation, sorted.
	Causes []Cause
	// Object is the object to be stored, if there are no errors, without the parts of
	// metadata that differ from write to write.
	Object map[string]any
	// Warnings are those sent with it, sorted.
	Warnings []string
}

// Rules are the rules of one resource or subresource in one version. Their causes are without
// those of metadata.
type Rules interface {
	// Create returns the outcome of a creation with that body.
	Create(body []byte) Outcome
	// Update returns the outcome of a replacement of old, which is valid, by body.
	Update(body, old []byte) Outcome
}

// Outcome returns the outcome of a case.
func (c Case) Outcome(r Rules) Outcome {
	if c.Old == nil {
		return r.Create(c.Body())
	}
	return r.Update(c.Body(), c.Old)
}

// Of returns the rules of a version of a kind, or of a subresource that has a Strategy
// ("": the main resource). nil: the kind does not have them.
func Of(k *rest.Kind, version, subresource string) Rules {
	if !k.Serves(version) {
		return nil
	}
	if subresource == "" {
		return kindRules{k, version, k.Strategy}
	}
	i := slices.IndexFunc(k.Subresources, func(s rest.Subresource) bool { return s.Name == subresource && s.Strategy != nil })
	if i < 0 {
		return nil
	}
	return kindRules{k, version, *k.Subresources[i].Strategy}
}

// Objects reads the valid objects of a resource below dir: the documents of
// VERSION.RESOURCE.yaml, with GROUP. before it for other groups than the core group.
func Objects(t testing.TB, dir string, gvr schema.GroupVersionResource) []map[string]any {
	t.Helper()
	name := FileName(gvr) + ".yaml"
	data, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return nil
	}
	var out []map[string]any
	for doc := range strings.SplitSeq("\n"+string(data), "\n---\n") {
		var o map[string]any
		if err := yaml.UnmarshalStrict([]byte(doc), &o); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if len(o) > 0 {
			out = append(out, o)
		}
	}
	return out
}

// FileName returns the name of the files of a resource, without their ending.
func FileName(gvr schema.GroupVersionResource) string {
	return strings.TrimPrefix(gvr.Group+"."+gvr.Version+"."+strings.ReplaceAll(gvr.Resource, "/", "_"), ".")
}

// Case is one write.
type Case struct {
	// Name says what is written: an object and the change to it.
	Name string
	// Body returns what is written, and Old is the stored object, nil for a creation.
	Body func() []byte
	Old  []byte
}

// Cases calls emit with writes of one resource or subresource: creations (of the main
// resource) and updates of the valid objects, unchanged, with one field changed, and replaced
// by each other. typ is the Go type of the objects.
func Cases(t testing.TB, objects []map[string]any, typ reflect.Type, subresource bool, emit func(Case)) {
	t.Helper()
	for _, base := range objects {
		name, old := NameOf(base), Encoded(base)
		if !subresource {
			Each(t, base, typ, func(m Mutation) { emit(Case{"create " + name + ": " + m.Change, m.Body, nil}) })
		}
		Each(t, base, typ, func(m Mutation) { emit(Case{"update " + name + ": " + m.Change, m.Body, old}) })
		for _, other := range objects {
			body := func() []byte { return Encoded(Put(Clone(other), []any{"metadata", "name"}, name)) }
			emit(Case{"update " + name + " to " + NameOf(other), body, old})
		}
	}
}

// NameOf returns the name of an object.
func NameOf(o map[string]any) string {
	name, _ := Dig(o, "metadata", "name").(string)
	return name
}

// writer returns the context of a write by the user admin, in which Warn appends to warnings.
func writer(warnings *[]string) context.Context {
	ctx := context.WithValue(context.Background(), warningsKey{}, warnings)
	return resource.WithAction(ctx, &resource.Action{User: &resource.User{Name: "admin"}})
}

type warningsKey struct{}

// Warn adds a warning to the outcome of the write whose context it is.
func Warn(ctx context.Context, text string) {
	if warnings, ok := ctx.Value(warningsKey{}).(*[]string); ok {
		*warnings = append(*warnings, text)
	}
}

// kindRules are the rules of a rest.Kind.
type kindRules struct {
	kind     *rest.Kind
	version  string
	strategy rest.Strategy
}

func (o kindRules) decode(body []byte) (rest.Object, error) {
	obj, _, err := o.kind.Codec.Decode(body, runtime.ContentTypeJSON, o.kind.GVK(o.version), false)
	if err != nil {
		return nil, err
	}
	typed := obj.(rest.Object)
	if f := o.kind.Strategy.Default; f != nil {
		f(typed)
	}
	return typed, nil
}

func (o kindRules) encode(obj rest.Object) map[string]any {
	data, err := o.kind.Codec.Encode(obj, o.kind.GVK(o.version), runtime.ContentTypeJSON)
	if err != nil {
		panic(err)
	}
	return Document(data)
}

// Create implements Rules.
func (o kindRules) Create(body []byte) Outcome {
	obj, err := o.decode(body)
	if err != nil {
		return Outcome{Undecodable: true}
	}
	obj.SetUID(UID)
	if base := obj.GetGenerateName(); base != "" && obj.GetName() == "" {
		obj.SetName(Generated(base))
	}
	var warnings []string
	s, ctx := o.kind.Strategy, writer(&warnings)
	if s.PrepareCreate != nil {
		s.PrepareCreate(ctx, obj)
	}
	if s.TrackGeneration {
		obj.SetGeneration(1)
	}
	var errs field.ErrorList
	if s.Validate != nil {
		errs = s.Validate(ctx, obj)
	}
	return o.result(ctx, s, obj, nil, errs, warnings)
}

// Update implements Rules.
func (o kindRules) Update(body, old []byte) Outcome {
	before, err := o.decode(old)
	if err != nil {
		panic(err)
	}
	obj, err := o.decode(body)
	if err != nil {
		return Outcome{Undecodable: true}
	}
	Identify(before)
	Identify(obj)
	var warnings []string
	s, ctx := o.strategy, writer(&warnings)
	if s.PrepareUpdate != nil {
		s.PrepareUpdate(ctx, obj, before)
	}
	var errs field.ErrorList
	if s.ValidateUpdate != nil {
		errs = s.ValidateUpdate(ctx, obj, before)
	}
	if s.ChangesGeneration(obj, before) {
		obj.SetGeneration(before.GetGeneration() + 1)
	}
	return o.result(ctx, s, obj, before, errs, warnings)
}

// result returns the outcome of a write with these errors and warnings. old is nil on create.
func (o kindRules) result(ctx context.Context, s rest.Strategy, obj, old rest.Object, errs field.ErrorList, warnings []string) Outcome {
	var causes []Cause
	for _, e := range errs {
		causes = append(causes, Cause{Field: e.Field, Reason: string(e.Type), Message: e.ErrorBody()})
	}
	if len(errs) > 0 {
		return Outcome{Refused: true, Causes: Sorted(WithoutMetadata(causes))}
	}
	out := Outcome{Object: o.encode(obj)}
	if s.Warnings != nil {
		warnings = append(warnings, s.Warnings(ctx, obj, old)...)
	}
	out.Warnings = slices.Sorted(slices.Values(warnings))
	return out
}

// WithoutMetadata removes the causes of metadata, which package handlers checks for all kinds.
func WithoutMetadata(causes []Cause) []Cause {
	return slices.DeleteFunc(causes, func(c Cause) bool {
		return c.Field == "metadata" || strings.HasPrefix(c.Field, "metadata.") || strings.HasPrefix(c.Field, "metadata[")
	})
}

// Sorted sorts causes and removes repeated ones.
func Sorted(causes []Cause) []Cause {
	slices.SortFunc(causes, func(a, b Cause) int {
		return cmp.Or(cmp.Compare(a.Field, b.Field), cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Message, b.Message))
	})
	return slices.Compact(causes)
}

// Document decodes an object without what differs from write to write: parts of metadata, and
// times of now.
func Document(data []byte) map[string]any {
	var doc map[string]any
	if err := json.Unmarshal(data, &doc); err != nil {
		panic(err)
	}
	m, _ := doc["metadata"].(map[string]any)
	for _, name := range []string{"name", "uid", "creationTimestamp", "resourceVersion", "managedFields", "selfLink", "namespace", "deletionTimestamp", "deletionGracePeriodSeconds"} {
		delete(m, name)
	}
	return timeless(doc).(map[string]any)
}

// timeless replaces the times of the last minute.
func timeless(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			v[k] = timeless(e)
		}
	case []any:
		for i, e := range v {
			v[i] = timeless(e)
		}
	case string:
		if t, err := time.Parse(time.RFC3339, v); err == nil && time.Since(t).Abs() < time.Minute {
			return "now"
		}
	}
	return v
}

// UID is that of all objects, because some rules copy it.
const UID = "u"

// Identify gives an object the metadata that a stored one has.
func Identify(obj runtime.Object) {
	m, err := meta.Accessor(obj)
	if err != nil {
		panic(err)
	}
	m.SetUID(UID)
	m.SetResourceVersion("1")
	m.SetGeneration(1)
	m.SetCreationTimestamp(metav1.Unix(1_700_000_000, 0))
}
