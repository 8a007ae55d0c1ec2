package handlers

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico/resource"
	"portico/resource/rest"
)

func TestCreateSetsSystemMetadata(t *testing.T) {
	b := newBench(t)
	sent := bare("a")
	//lint:ignore SA1019 clients may send the deprecated field
	sent.UID, sent.SelfLink, sent.Generation = "mine", "/x", 7
	sent.CreationTimestamp, sent.DeletionTimestamp = metav1.Unix(5, 0), new(metav1.Unix(6, 0))
	sent.DeletionGracePeriodSeconds = new(int64)
	got := b.create(sent)
	//lint:ignore SA1019 the deprecated field must stay empty
	if got.UID == "mine" || len(got.UID) != 36 || got.SelfLink != "" || got.Generation != 7 || got.ResourceVersion == "" ||
		got.CreationTimestamp.IsZero() || got.CreationTimestamp.Unix() == 5 || got.DeletionTimestamp != nil ||
		got.DeletionGracePeriodSeconds != nil || got.Namespace != "default" || got.Data["k"] != "v" {
		t.Errorf("%+v", got)
	}
}

func TestCreateWarns(t *testing.T) {
	b := newBench(t)
	owner := `{"apiVersion":"v1","kind":"A","name":"a","uid":"1"}`
	a := b.send("POST", inDefault+"configmaps", `{"metadata":{"name":"x","ownerReferences":[`+owner+`,`+owner+`]},"foo":1,"data":{"a":"1","a":"2"}}`).want(201, "")
	if n := len(a.configMap().OwnerReferences); n != 1 {
		t.Errorf("%d owners", n)
	}
	warned := b.takeWarnings()
	for _, want := range []string{`unknown field "foo"`, `duplicate field "data.a"`, "duplicate UID(s) observed: 1"} {
		if !strings.Contains(warned, want) {
			t.Errorf("no warning %q in %q", want, warned)
		}
	}
	b.send("POST", inDefault+"configmaps?fieldValidation=Ignore", `{"metadata":{"name":"y"},"foo":1}`).want(201, "")
	if warned := b.takeWarnings(); warned != "" {
		t.Errorf("Ignore warned: %s", warned)
	}
	b.send("POST", inDefault+"configmaps", "metadata:\n  name: z\nfoo: 1\ndata:\n  a: b\n  a: c\n", "Content-Type", runtime.ContentTypeYAML).want(201, "")
	if warned := b.takeWarnings(); !strings.Contains(warned, `line 6: key "a" already set in map`) || strings.Contains(warned, "unmarshal errors") {
		t.Errorf("YAML warnings: %q", warned)
	}
}

// Owner references that mutating admission duplicates are stored once, with a warning.
func TestDuplicatesOfAdmissionAreRemoved(t *testing.T) {
	b := newBench(t, func(cfg *Config, _ *bench) {
		cfg.Admission = admission{mutate: func(a *rest.Attributes) error {
			owner := metav1.OwnerReference{APIVersion: "v1", Kind: "A", Name: "a", UID: "1"}
			a.Object.(rest.Object).SetOwnerReferences([]metav1.OwnerReference{owner, owner})
			return nil
		}}
	})
	if n := len(b.create(bare("a")).OwnerReferences); n != 1 {
		t.Errorf("%d owner references are stored, want 1", n)
	}
	if warned := b.takeWarnings(); !strings.Contains(warned, "duplicate entries after mutating admission happens") {
		t.Errorf("warned %q", warned)
	}
}

func TestGenerateName(t *testing.T) {
	b := newBench(t)
	sent := bare("")
	sent.GenerateName = strings.Repeat("a", 70)
	got := b.create(sent)
	if want := regexp.MustCompile("^a{58}[bcdfghjklmnpqrstvwxz2456789]{5}$"); !want.MatchString(got.Name) {
		t.Errorf("name %q", got.Name)
	}
	tried := 0
	b.configMaps.Store = refusingStore{b.configMaps.Store, func(o *resource.Object) error {
		tried++
		return apierrors.NewAlreadyExists(b.configMaps.GroupResource(), o.Name)
	}}
	a := b.send("POST", inDefault+"configmaps", `{"metadata":{"generateName":"g-"}}`).want(409, "")
	s := a.status()
	if !strings.HasSuffix(s.Message, "already exists, the server was not able to generate a unique name for the object") ||
		s.Reason != metav1.StatusReasonAlreadyExists || s.Details.RetryAfterSeconds != 1 || tried != maxNameAttempts {
		t.Errorf("%+v after %d attempts", s, tried)
	}
}

func TestCreateReleasesAllocationsOfFailedWrites(t *testing.T) {
	b := newBench(t)
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "s"}}
	got := b.send("POST", inDefault+"services", service).want(201, "").service()
	if b.claimed != 1 || got.Generation != 1 {
		t.Fatalf("claimed %d, generation %d", b.claimed, got.Generation)
	}
	b.send("POST", inDefault+"services", service).want(409, "")
	service.Name = "No"
	b.send("POST", inDefault+"services", service).want(422, "")
	b.send("POST", inDefault+"services?dryRun=All", &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "t"}}).want(201, "")
	if b.claimed != 1 {
		t.Errorf("claimed %d after writes that failed", b.claimed)
	}
}

// recorder is an admission that records its calls.
type recorder struct {
	asked  []string
	refuse error
}

func (r *recorder) note(phase string, a *rest.Attributes) {
	options := "none"
	if a.Options != nil {
		options = a.Options.GetObjectKind().GroupVersionKind().Kind
	}
	r.asked = append(r.asked, fmt.Sprintf("%s %s %s object=%t old=%t dry=%t %s", phase, a.Operation, a.Key,
		a.Object != nil, a.Old != nil, a.DryRun, options))
}

func (r *recorder) Mutate(_ context.Context, a *rest.Attributes) error {
	r.note("mutate", a)
	if cm, ok := a.Object.(*corev1.ConfigMap); ok {
		metav1.SetMetaDataAnnotation(&cm.ObjectMeta, "mutated", "yes"+string(cm.UID))
	}
	return nil
}

func (r *recorder) Validate(_ context.Context, a *rest.Attributes) error {
	r.note("validate", a)
	return r.refuse
}

func TestAdmissionRunsInOrder(t *testing.T) {
	admission := &recorder{}
	var steps []string
	b := newBench(t, func(cfg *Config, b *bench) {
		cfg.Admission = admission
		s := &b.configMaps.Strategy
		s.Check = func(_ context.Context, verb string, obj, old rest.Object) error {
			steps = append(steps, fmt.Sprintf("check %s %s old=%t", verb, obj.GetAnnotations()["mutated"], old != nil))
			return nil
		}
		s.PrepareCreate = func(context.Context, rest.Object) { steps = append(steps, "prepare") }
		s.Validate = func(_ context.Context, obj rest.Object) field.ErrorList {
			steps = append(steps, fmt.Sprintf("validate after %d", len(admission.asked)))
			return nil
		}
	})
	forged := bare("a")
	forged.UID = "forged" // admission must not see it
	if got := b.create(forged); got.Annotations["mutated"] != "yes" {
		t.Errorf("what admission changed was not stored, or it saw a uid of the client's: %v", got.Annotations)
	}
	want := []string{"check create yes old=false", "prepare", "validate after 1"}
	if fmt.Sprint(steps) != fmt.Sprint(want) {
		t.Errorf("steps %q, want %q", steps, want)
	}
	b.send("DELETE", inDefault+"configmaps/a?dryRun=All", nil).want(200, "")
	asked := []string{
		"mutate CREATE default/a object=true old=false dry=false CreateOptions",
		"validate CREATE default/a object=true old=false dry=false CreateOptions",
		"mutate DELETE default/a object=false old=true dry=true DeleteOptions",
		"validate DELETE default/a object=false old=true dry=true DeleteOptions",
	}
	if fmt.Sprint(admission.asked) != fmt.Sprint(asked) {
		t.Errorf("asked %q, want %q", admission.asked, asked)
	}
	admission.refuse = apierrors.NewForbidden(b.configMaps.GroupResource(), "b", fmt.Errorf("no"))
	b.send("POST", inDefault+"configmaps", bare("b")).want(403, `configmaps "b" is forbidden: no`)
	b.send("GET", inDefault+"configmaps/b", nil).want(404, "")
}

// A new object must not have a resourceVersion that is a revision.
func TestCreateWithARevision(t *testing.T) {
	b := newBench(t)
	for i, rv := range []string{"", "0", "none"} {
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("c", i), ResourceVersion: rv}}
		if got := b.create(cm); got.ResourceVersion == rv {
			t.Errorf("%q is kept", rv)
		}
	}
}

// Mutating admission cannot move an object to another namespace, or give one that the URL names another name. An object
// without a namespace keeps its own.
func TestAdmissionThatMovesObjects(t *testing.T) {
	var move func(obj metav1.Object)
	dry := false
	b := newTrackedBench(t, func(cfg *Config, b *bench) {
		b.configMaps.CreateOnUpdate = true
		cfg.Resources = append(cfg.Resources, &rest.Resource{Kind: serviceAccounts(&dry)})
		cfg.Admission = admission{mutate: func(a *rest.Attributes) error {
			if obj, ok := a.Object.(metav1.Object); ok {
				move(obj)
			}
			return nil
		}}
	})
	const (
		wrongNamespace = "the namespace of the provided object does not match the namespace sent on the request"
		wrongName      = "the name of the object (other) does not match the name on the URL (a)"
	)
	namespaced := func(namespace string) func(metav1.Object) {
		return func(obj metav1.Object) { obj.SetNamespace(namespace) }
	}
	renamed := func(obj metav1.Object) { obj.SetName("other") }
	b.send("GET", inDefault+"configmaps/a", nil).want(404, "")
	writes := map[string]func() answer{
		"POST":        func() answer { return b.send("POST", inDefault+"configmaps", bare("a")) },
		"POST widget": func() answer { return b.send("POST", widgetsPath, `{"metadata":{"name":"w"}}`) },
		"PUT":         func() answer { return b.send("PUT", inDefault+"configmaps/a", bare("a")) },
		"apply": func() answer {
			return b.apply(configMapA, "m", cmIntent(`,"metadata":{"name":"a"},"data":{"k":"v","l":"w"}`))
		},
		"token": func() answer { return b.send("POST", inDefault+"serviceaccounts/a/token", `{}`) },
	}
	for name, do := range writes {
		move = namespaced("other")
		do().want(400, wrongNamespace)
		if move = renamed; !strings.HasPrefix(name, "POST") {
			do().want(400, wrongName)
		}
	}
	b.send("GET", inDefault+"configmaps/a", nil).want(404, "")

	move = namespaced("")
	if got := b.create(bare("a")); got.Namespace != "default" {
		t.Errorf("namespace %q", got.Namespace)
	}
	writes = map[string]func() answer{"PUT": writes["PUT"], "apply": writes["apply"], "patch": func() answer { return b.merge(configMapA, `{"data":{"k":"x"}}`) }}
	for _, do := range writes {
		move = namespaced("other")
		do().want(400, wrongNamespace)
		move = renamed
		do().want(422, `ConfigMap "other" is invalid: metadata.name: Invalid value: "other": field is immutable`)
	}
	move = renamed // a POST is stored under the name that admission gives it
	b.send("POST", inDefault+"configmaps", bare("b")).want(201, "")
	b.send("GET", inDefault+"configmaps/other", nil).want(200, "")
	move = namespaced("other") // an object without a namespace gets none
	b.send("POST", "/api/v1/namespaces", `{"metadata":{"name":"n"}}`).want(201, "")
}
