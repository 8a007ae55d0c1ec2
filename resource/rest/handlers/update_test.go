package handlers

import (
	"context"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico/resource"
)

func TestUpdate(t *testing.T) {
	b := newWriteBench(t)
	first := b.create(bare("a"))

	same := b.send("PUT", inDefault+"configmaps/a", first).want(200, "").configMap()
	if same.ResourceVersion != first.ResourceVersion {
		t.Errorf("a write that changes nothing went from %s to %s", first.ResourceVersion, same.ResourceVersion)
	}
	changed := first.DeepCopy()
	changed.Data["k"] = "w"
	changed.UID, changed.CreationTimestamp, changed.Generation = "", metav1.Time{}, 9
	changed.DeletionTimestamp, changed.DeletionGracePeriodSeconds = new(metav1.Unix(6, 0)), new(int64)
	got := b.send("PUT", inDefault+"configmaps/a", changed).want(200, "").configMap()
	if got.Data["k"] != "w" || got.UID != first.UID || !got.CreationTimestamp.Equal(&first.CreationTimestamp) ||
		got.Generation != 0 || got.DeletionTimestamp != nil || got.DeletionGracePeriodSeconds != nil || got.ResourceVersion == first.ResourceVersion {
		t.Errorf("%+v", got)
	}
	b.send("PUT", inDefault+"configmaps/a", changed).want(409,
		`Operation cannot be fulfilled on configmaps "a": the object has been modified; please apply your changes to the latest version and try again`)

	changed.ResourceVersion = ""
	changed.Data["k"] = "unconditional"
	b.send("PUT", inDefault+"configmaps/a?dryRun=All", changed).want(200, "")
	if now := b.send("GET", inDefault+"configmaps/a", nil).configMap(); now.Data["k"] != "w" {
		t.Errorf("a dry run wrote: %v", now.Data)
	}
	b.send("PUT", inDefault+"configmaps/a", changed).want(200, "")
}

func TestUpdateErrors(t *testing.T) {
	b := newWriteBench(t)
	first := b.create(bare("a"))
	service := b.send("POST", inDefault+"services", &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "s"}}).want(201, "").service()
	for name, test := range map[string]struct {
		path, body string
		code       int
		message    string
	}{
		"missing": {"configmaps/x", `{"metadata":{"name":"x"}}`, 404, `configmaps "x" not found`},
		"uid": {"configmaps/a", `{"metadata":{"name":"a","uid":"x"}}`, 409,
			`Operation cannot be fulfilled on configmaps "a": Precondition failed: UID in precondition: x, UID in object meta: ` + string(first.UID)},
		"unconditional": {"services/s", `{"metadata":{"name":"s"}}`, 422,
			`services "s" is invalid: metadata.resourceVersion: Invalid value: 0: must be specified for an update`},
		"resource version":    {"configmaps/a", `{"metadata":{"name":"a","resourceVersion":"x"}}`, 400, ""},
		"encoded slash":       {"configmaps/a%2Fb", `{"metadata":{"name":"a/b"}}`, 400, ""},
		"create with a uid":   {"services/t", `{"metadata":{"name":"t","uid":"x"}}`, 409, ""},
		"created one invalid": {"services/T", `{"metadata":{"name":"T"}}`, 422, ""},
		"generated name": {"configmaps/a", `{"metadata":{"name":"a","generateName":"a/b"}}`, 422,
			`ConfigMap "a" is invalid: metadata.generateName: Invalid value: "a/b": may not contain '/'`},
		"finalizer": {"configmaps/a", `{"metadata":{"name":"a","finalizers":["bare"]}}`, 422, ""},
	} {
		t.Run(name, func(t *testing.T) {
			a := b.send("PUT", inDefault+test.path, test.body)
			a.t = t
			a.want(test.code, test.message)
		})
	}
	if now := b.send("GET", inDefault+"services/s", nil).service(); now.ResourceVersion != service.ResourceVersion || b.claimed != 1 {
		t.Errorf("refused updates left traces: %s, %d claimed", now.ResourceVersion, b.claimed)
	}
}

func TestUpdateCreates(t *testing.T) {
	var asked []string
	var refuse error
	b := newWriteBench(t, func(cfg *Config, _ *writeBench) {
		cfg.Authorize = func(_ context.Context, a *resource.Action) error {
			asked = append(asked, a.Verb+" "+a.Resource+" "+a.Name)
			return refuse
		}
	})
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "s"}, Status: corev1.ServiceStatus{Conditions: []metav1.Condition{{Type: "X"}}}}
	got := b.send("PUT", inDefault+"services/s", service).want(201, "").service()
	if got.UID == "" || got.Generation != 1 || len(got.Status.Conditions) != 0 || b.claimed != 1 {
		t.Errorf("%+v, %d claimed", got, b.claimed)
	}
	b.send("PUT", inDefault+"services/s", got).want(200, "")
	refuse = apierrors.NewForbidden(b.services.GroupResource(), "t", errors.New("no create"))
	service.Name = "t"
	b.send("PUT", inDefault+"services/t", service).want(403, `services "t" is forbidden: no create`)
	b.send("GET", inDefault+"services/t", nil).want(404, "")
	if strings.Join(asked, ",") != "create services s,create services t" {
		t.Errorf("asked %q", asked)
	}
}

func TestGenerationAndStatus(t *testing.T) {
	b := newWriteBench(t)
	s := b.send("POST", inDefault+"services", &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "s"}}).want(201, "").service()
	s.Labels = map[string]string{"a": "b"}
	s.Status.Conditions = []metav1.Condition{{Type: "X"}}
	s = b.send("PUT", inDefault+"services/s", s).want(200, "").service()
	if s.Generation != 1 || len(s.Status.Conditions) != 0 {
		t.Fatalf("metadata and status changed through the object: %+v", s)
	}
	s.Spec.ExternalName = "x"
	s = b.send("PUT", inDefault+"services/s", s).want(200, "").service()
	if s.Generation != 2 {
		t.Fatalf("generation %d after a change of spec", s.Generation)
	}
	s.Spec.ExternalName, s.Labels = "y", nil
	s.Status.Conditions = []metav1.Condition{{Type: "X"}}
	s = b.send("PUT", inDefault+"services/s/status", s).want(200, "").service()
	if s.Generation != 2 || s.Spec.ExternalName != "x" || s.Labels["a"] != "b" || len(s.Status.Conditions) != 1 {
		t.Errorf("through status: %+v", s)
	}
	s = b.send("PATCH", inDefault+"services/s/status", `{"spec":{"externalName":"z"},"status":{"conditions":null}}`,
		"Content-Type", "application/merge-patch+json").want(200, "").service()
	if s.Generation != 2 || s.Spec.ExternalName != "x" || len(s.Status.Conditions) != 0 {
		t.Errorf("status patched: %+v", s)
	}
	if got := b.send("GET", inDefault+"services/s/status", nil).want(200, "").service(); got.ResourceVersion != s.ResourceVersion {
		t.Errorf("status reads %s, want %s", got.ResourceVersion, s.ResourceVersion)
	}
	b.send("PUT", inDefault+"services/none/status", `{"metadata":{"name":"none"}}`).want(404, "")
}

func TestManagedFieldsOfUpdates(t *testing.T) {
	entry := `[{"manager":"m","operation":"Update","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{"f:data":{}}}]`
	for name, test := range map[string]struct {
		fields string
		want   int
	}{
		"left out":       {"", 1},
		"empty":          {`,"managedFields":[]`, 0},
		"an empty entry": {`,"managedFields":[{}]`, 0},
		"null":           {`,"managedFields":null`, 1},
		"its own":        {`,"managedFields":` + entry, 1},
	} {
		t.Run(name, func(t *testing.T) {
			b := newWriteBench(t)
			b.send("POST", inDefault+"configmaps", `{"metadata":{"name":"a","managedFields":`+entry+`}}`).want(201, "")
			got := b.send("PUT", inDefault+"configmaps/a", `{"metadata":{"name":"a"`+test.fields+`}}`).want(200, "").configMap()
			if len(got.ManagedFields) != test.want {
				t.Errorf("%+v", got.ManagedFields)
			}
		})
	}
	b := newWriteBench(t)
	b.send("POST", inDefault+"configmaps", `{"metadata":{"name":"a","managedFields":[{"operation":"Own"}]}}`).want(422, "")
}

// A write that loses a race is tried again on what won, as long as it did not
// name the state it was made for.
func TestUpdateRetriesAfterARace(t *testing.T) {
	b := newWriteBench(t)
	first := b.create(bare("a"))
	b.configMaps.Store = &racingStore{Store: b.configMaps.Store, b: b}
	got := b.send("PATCH", inDefault+"configmaps/a", `{"data":{"patched":"yes"}}`, "Content-Type", "application/merge-patch+json").want(200, "").configMap()
	if got.Data["patched"] != "yes" || got.Data["racer"] != "yes" {
		t.Errorf("%v", got.Data)
	}
	b.configMaps.Store.(*racingStore).done = false
	b.send("PUT", inDefault+"configmaps/a", `{"metadata":{"name":"a"},"foo":1,"data":{"put":"yes"}}`).want(200, "")
	if n := strings.Count(b.takeWarnings(), "unknown field"); n != 1 {
		t.Errorf("an unknown field was warned of %d times", n)
	}
	b.configMaps.Store.(*racingStore).done = false
	b.send("PATCH", inDefault+"configmaps/a", `{"metadata":{"resourceVersion":"`+first.ResourceVersion+`"}}`,
		"Content-Type", "application/merge-patch+json").want(409, "")
}

// racingStore changes the object once, after the first call of mutate.
type racingStore struct {
	resource.Store
	b    *writeBench
	done bool
}

func (s *racingStore) Update(ctx context.Context, key resource.Key, mutate resource.Mutate) (*resource.Object, error) {
	return s.Store.Update(ctx, key, func(cur *resource.Object) (resource.Mutation, error) {
		if !s.done {
			s.done = true
			if _, err := mutate(cur); err != nil {
				return resource.Mutation{}, err
			}
			obj, err := s.b.configMaps.Decode(cur)
			if err != nil {
				return resource.Mutation{}, err
			}
			obj.(*corev1.ConfigMap).Data["racer"] = "yes"
			o, err := s.b.configMaps.Codec.EncodeStored(obj)
			if err != nil {
				return resource.Mutation{}, err
			}
			cur = o.WithRevision(cur.Revision + 1)
		}
		return mutate(cur)
	})
}
