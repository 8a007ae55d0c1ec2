package handlers

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico/resource"
	"portico/resource/rest"
)

func TestCreateSetsSystemMetadata(t *testing.T) {
	b := newWriteBench(t)
	sent := bare("a")
	//lint:ignore SA1019 clients may send the deprecated field
	sent.UID, sent.SelfLink, sent.Generation = "mine", "/x", 7
	sent.CreationTimestamp, sent.DeletionTimestamp = metav1.Unix(5, 0), new(metav1.Unix(6, 0))
	sent.DeletionGracePeriodSeconds = new(int64)
	got := b.create(sent)
	//lint:ignore SA1019 the deprecated field must stay empty
	if got.UID == "mine" || len(got.UID) != 36 || got.SelfLink != "" || got.Generation != 0 || got.ResourceVersion == "" ||
		got.CreationTimestamp.IsZero() || got.CreationTimestamp.Unix() == 5 || got.DeletionTimestamp != nil ||
		got.DeletionGracePeriodSeconds != nil || got.Namespace != "default" || got.Data["k"] != "v" {
		t.Errorf("%+v", got)
	}
}

func TestCreateErrors(t *testing.T) {
	b := newWriteBench(t)
	b.create(bare("taken"))
	long := strings.Repeat("a", 254)
	for name, test := range map[string]struct {
		query, body string
		headers     []string
		code        int
		message     string
	}{
		"exists":           {"", `{"metadata":{"name":"taken"}}`, nil, 409, `configmaps "taken" already exists`},
		"no name":          {"", `{}`, nil, 422, `ConfigMap "" is invalid: metadata.name: Required value: name or generateName is required`},
		"slash in name":    {"", `{"metadata":{"name":"../x"}}`, nil, 422, ""},
		"long name":        {"", `{"metadata":{"name":"` + long + `"}}`, nil, 422, ""},
		"namespace":        {"", `{"metadata":{"name":"x","namespace":"other"}}`, nil, 400, "the namespace of the provided object does not match the namespace sent on the request"},
		"resource version": {"", `{"metadata":{"name":"x","resourceVersion":"5"}}`, nil, 500, "resourceVersion should not be set on objects to be created"},
		"version":          {"", `{"apiVersion":"v2","kind":"ConfigMap","metadata":{"name":"x"}}`, nil, 400, ""},
		"media type":       {"", `{}`, []string{"Content-Type", "text/plain"}, 415, "the body of the request was in an unknown format - accepted media types include: application/json, application/yaml, application/vnd.kubernetes.protobuf"},
		"dry run":          {"?dryRun=x", `{}`, nil, 422, `CreateOptions.meta.k8s.io "" is invalid: dryRun: Unsupported value: ["x"]: supported values: "All"`},
		"manager":          {"?fieldManager=" + long, `{}`, nil, 422, `CreateOptions.meta.k8s.io "" is invalid: fieldManager: Too long: may not be more than 128 bytes`},
		"validation":       {"?fieldValidation=x", `{}`, nil, 422, ""},
		"strict": {"?fieldValidation=Strict", `{"metadata":{"name":"x"},"foo":1,"immutable":true,"immutable":true}`, nil, 400,
			`ConfigMap in version "v1" cannot be handled as a ConfigMap: strict decoding error: unknown field "foo", duplicate field "immutable"`},
		"finalizer": {"", `{"metadata":{"name":"x","finalizers":["bare"]}}`, nil, 422,
			`ConfigMap "x" is invalid: metadata.finalizers[0]: Invalid value: "bare": name is neither a standard finalizer name nor is it fully qualified`},
		"both finalizers": {"", `{"metadata":{"name":"x","finalizers":["orphan","foregroundDeletion"]}}`, nil, 422, ""},
		"annotations": {"", `{"metadata":{"name":"x","annotations":{"a":"` + strings.Repeat("x", 262144) + `"}}}`, nil, 422,
			`ConfigMap "x" is invalid: metadata.annotations: Too long: may not be more than 262144 bytes`},
		"two controllers": {"", `{"metadata":{"name":"x","ownerReferences":[` +
			`{"apiVersion":"v1","kind":"A","name":"a","uid":"1","controller":true},{"apiVersion":"v1","kind":"B","name":"b","uid":"2","controller":true}]}}`, nil, 422, ""},
		"no JSON": {"", `{`, nil, 400, ""},
		"empty":   {"", ``, nil, 400, ""},
	} {
		t.Run(name, func(t *testing.T) {
			a := b.send("POST", inDefault+"configmaps"+test.query, test.body, test.headers...)
			a.t = t
			a.want(test.code, test.message)
			if s := a.status(); int(s.Code) != test.code {
				t.Errorf("Status code %d", s.Code)
			}
		})
	}
	a := b.send("GET", inDefault+"configmaps", nil).want(200, "")
	if l := read(a, &corev1.ConfigMapList{}); len(l.Items) != 1 {
		t.Errorf("refused objects were stored: %d", len(l.Items))
	}
}

func TestCreateTooLarge(t *testing.T) {
	b := newWriteBench(t)
	body := `{"metadata":{"name":"x"},"data":{"k":"` + strings.Repeat("x", 3<<20) + `"}}`
	a := b.send("POST", inDefault+"configmaps", body).want(413, "Request entity too large: limit is 3145728")
	if r := a.status().Reason; r != metav1.StatusReasonRequestEntityTooLarge {
		t.Errorf("reason %s", r)
	}
}

func TestCreateWarns(t *testing.T) {
	b := newWriteBench(t)
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

func TestGenerateName(t *testing.T) {
	b := newWriteBench(t)
	sent := bare("")
	sent.GenerateName = strings.Repeat("a", 70)
	got := b.create(sent)
	if want := regexp.MustCompile("^a{58}[bcdfghjklmnpqrstvwxz2456789]{5}$"); !want.MatchString(got.Name) {
		t.Errorf("name %q", got.Name)
	}
	full := newWriteBench(t)
	store := &fullStore{Store: full.configMaps.Store}
	full.configMaps.Store = store
	a := full.send("POST", inDefault+"configmaps", `{"metadata":{"generateName":"g-"}}`).want(409, "")
	s := a.status()
	if !strings.HasSuffix(s.Message, "already exists, the server was not able to generate a unique name for the object") ||
		s.Reason != metav1.StatusReasonAlreadyExists || s.Details.RetryAfterSeconds != 1 || store.tried != maxNameAttempts {
		t.Errorf("%+v after %d attempts", s, store.tried)
	}
}

// fullStore is a store in which every name is taken.
type fullStore struct {
	resource.Store
	tried int
}

func (s *fullStore) Create(_ context.Context, key resource.Key, _ *resource.Object, _ time.Duration) (*resource.Object, error) {
	s.tried++
	return nil, apierrors.NewAlreadyExists(s.Info().GroupResource(), key.Name)
}

func TestCreateDryRun(t *testing.T) {
	b := newWriteBench(t)
	got := b.send("POST", inDefault+"configmaps?dryRun=All", bare("a")).want(201, "").configMap()
	if got.UID == "" || got.ResourceVersion != "" {
		t.Errorf("%+v", got.ObjectMeta)
	}
	b.send("GET", inDefault+"configmaps/a", nil).want(404, `configmaps "a" not found`)
	b.create(bare("a"))
	b.send("POST", inDefault+"configmaps?dryRun=All", bare("a")).want(409, `configmaps "a" already exists`)
}

func TestCreateWhileDeleting(t *testing.T) {
	b := newWriteBench(t)
	going := bare("a")
	going.Finalizers = []string{"example.com/x"}
	b.create(going)
	b.send("DELETE", inDefault+"configmaps/a", nil).want(200, "")
	b.send("POST", inDefault+"configmaps", bare("a")).want(409, `object is being deleted: configmaps "a" already exists`)
}

func TestCreateReleasesAllocationsOfFailedWrites(t *testing.T) {
	b := newWriteBench(t)
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
	r.asked = append(r.asked, fmt.Sprintf("%s %s %s object=%t old=%t dry=%t %s", phase, a.Operation, a.Key,
		a.Object != nil, a.Old != nil, a.DryRun, a.Options.GetObjectKind().GroupVersionKind().Kind))
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
	b := newWriteBench(t, func(cfg *Config, b *writeBench) {
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
	forged.UID = "forged"
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
