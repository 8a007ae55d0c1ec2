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
	"portico/resource/rest"
)

func TestUpdate(t *testing.T) {
	b := newBench(t)
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
	b.send("PUT", inDefault+"configmaps/a", changed).want(200, "")
}

func TestUpdateCreates(t *testing.T) {
	var asked []string
	var refuse error
	b := newBench(t, func(cfg *Config, _ *bench) {
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
	b := newBench(t)
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
			b := newBench(t)
			b.send("POST", inDefault+"configmaps", `{"metadata":{"name":"a","managedFields":`+entry+`}}`).want(201, "")
			got := b.send("PUT", inDefault+"configmaps/a", `{"metadata":{"name":"a"`+test.fields+`}}`).want(200, "").configMap()
			if len(got.ManagedFields) != test.want {
				t.Errorf("%+v", got.ManagedFields)
			}
		})
	}
}

// A write that loses a race is repeated with the new state, unless it names the state that it
// was made for.
func TestUpdateRetriesAfterARace(t *testing.T) {
	b := newBench(t)
	first := b.create(bare("a"))
	raced := func(obj rest.Object) { obj.(*corev1.ConfigMap).Data["racer"] = "yes" }
	b.race(b.configMaps, raced)
	got := b.merge(configMapA, `{"data":{"patched":"yes"}}`).want(200, "").configMap()
	if got.Data["patched"] != "yes" || got.Data["racer"] != "yes" {
		t.Errorf("%v", got.Data)
	}
	b.race(b.configMaps, raced)
	b.send("PUT", configMapA, `{"metadata":{"name":"a"},"foo":1,"data":{"put":"yes"}}`).want(200, "")
	if n := strings.Count(b.takeWarnings(), "unknown field"); n != 1 {
		t.Errorf("an unknown field was warned of %d times", n)
	}
	b.race(b.configMaps, raced)
	b.merge(configMapA, `{"metadata":{"resourceVersion":"`+first.ResourceVersion+`"}}`).want(409, "")
}
