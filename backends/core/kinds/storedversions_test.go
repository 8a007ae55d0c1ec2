package kinds

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	admissionregistrationv1beta1 "k8s.io/api/admissionregistration/v1beta1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	policyv1beta1 "k8s.io/api/policy/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico/internal/testing/kindtest"
	"portico/resource"
	"portico/resource/response"
	"portico/resource/rest"
	"portico/resource/rest/form"
)

// An object with a value in every field that kube-apiserver stored in a version that is not served, and that has the
// fields of the version of the row, is read, as protobuf and as JSON, without loss, and stored in the version of the row.
// Two fields of PodCertificateRequest are not in v1.
func TestVersionsThatAreStoredOnly(t *testing.T) {
	t.Parallel()
	rows := map[schema.GroupKind]*rest.Kind{}
	for _, k := range allKinds() {
		rows[k.GVK("").GroupKind()] = k
	}
	dir, tested := filepath.Join(kindtest.ModuleDir(t, "k8s.io/api"), "testdata", "HEAD"), 0
	for gvk := range scheme.AllKnownTypes() {
		k := rows[gvk.GroupKind()]
		if k == nil || k.Serves(gvk.Version) || gvk.Version == "__internal" || hasOtherFields(gvk) {
			continue
		}
		tested++
		name := filepath.Join(dir, gvk.Group+"."+gvk.Version+"."+gvk.Kind)
		text, err := os.ReadFile(name + ".json")
		if err != nil {
			t.Fatal(err)
		}
		var want map[string]any
		if err := json.Unmarshal(text, &want); err != nil {
			t.Fatal(err)
		}
		want["apiVersion"] = k.GVK(k.Storage()).GroupVersion().String()
		delete(want["metadata"].(map[string]any), "resourceVersion") // it is not stored
		if gvk.Kind == "PodCertificateRequest" {
			spec := want["spec"].(map[string]any)
			delete(spec, "pkixPublicKey")
			delete(spec, "proofOfPossession")
		}
		for form, encoding := range map[string]resource.Encoding{".json": resource.JSON, ".pb": resource.Protobuf} {
			data, err := os.ReadFile(name + form)
			if err != nil {
				t.Fatal(err)
			}
			if got := passedThrough(t, k, &resource.Object{Data: data, Encoding: encoding}); !reflect.DeepEqual(got, want) {
				t.Errorf("%s%s is read as\n%v\nwant\n%v", gvk, form, got, want)
			}
		}
	}
	if tested != 37 {
		t.Errorf("%d versions, want 37", tested)
	}
}

// hasOtherFields reports whether a version is not that of its row in all fields.
func hasOtherFields(gvk schema.GroupVersionKind) bool {
	switch gvk.Group + "/" + gvk.Version {
	case "apps/v1beta1", "apps/v1beta2", "batch/v1beta1", "discovery.k8s.io/v1beta1", "events.k8s.io/v1beta1", "extensions/v1beta1", "node.k8s.io/v1alpha1", "resource.k8s.io/v1beta1":
		return true
	case "networking.k8s.io/v1beta1":
		return gvk.Kind == "Ingress"
	}
	return false
}

// An empty selector of v1beta1 selects nothing, and one of v1 everything: what a stored
// PodDisruptionBudget selects stays the same.
func TestSelectorsOfStoredBudgets(t *testing.T) {
	t.Parallel()
	const key = `"pdb.kubernetes.io/deprecated-v1beta1-empty-selector-match"`
	budgets := kind(t, "poddisruptionbudgets.policy")
	for stored, want := range map[string]string{
		`{}`: `{"matchExpressions":[{"key":` + key + `,"operator":"Exists"}]}`,
		`{"matchExpressions":[{"key":` + key + `,"operator":"DoesNotExist"}]}`:                                 `{}`,
		`{"matchExpressions":[{"key":"a","operator":"Exists"},{"key":` + key + `,"operator":"DoesNotExist"}]}`: `{"matchExpressions":[{"key":"a","operator":"Exists"}]}`,
		`{"matchLabels":{"a":"b"}}`: `{"matchLabels":{"a":"b"}}`,
		`null`:                      `null`,
	} {
		obj, err := budgets.Codec.DecodeStored(&resource.Object{Data: []byte(`{"apiVersion":"policy/v1beta1","kind":"PodDisruptionBudget","metadata":{"name":"a"},"spec":{"selector":` + stored + `}}`)})
		if err != nil {
			t.Fatal(err)
		}
		if got, err := json.Marshal(obj.(*policyv1.PodDisruptionBudget).Spec.Selector); err != nil || string(got) != want {
			t.Errorf("%s is read as %s, want %s (%v)", stored, got, want, err)
		}
		// Field ownership converts to the version of each entry of managedFields, and back.
		codec := budgets.Codec.(rest.Versioned)
		before := obj.DeepCopyObject()
		beta, err := codec.ConvertTo(obj, policyv1beta1.SchemeGroupVersion)
		if err == nil {
			beta, err = codec.ConvertTo(beta, policyv1.SchemeGroupVersion)
		}
		if err != nil || !reflect.DeepEqual(beta, obj) || !reflect.DeepEqual(before, obj) {
			t.Errorf("%s is converted to %+v, want %+v (%v)", stored, beta, obj, err)
		}
	}
}

// A stored v1beta1 webhook has the defaults of that version.
func TestDefaultsOfStoredWebhooks(t *testing.T) {
	t.Parallel()
	for _, kinds := range [][2]string{{"validatingwebhookconfigurations", "ValidatingWebhookConfiguration"}, {"mutatingwebhookconfigurations", "MutatingWebhookConfiguration"}} {
		row := kind(t, kinds[0]+".admissionregistration.k8s.io")
		o, err := resource.Parse([]byte(`{"apiVersion":"admissionregistration.k8s.io/v1beta1","kind":"` + kinds[1] +
			`","metadata":{"name":"a","resourceVersion":"1"},"webhooks":[{"name":"a.example.com","clientConfig":{"url":"https://a"}}]}`))
		if err != nil {
			t.Fatal(err)
		}
		obj, err := row.Codec.DecodeStored(o)
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(obj)
		if err != nil {
			t.Fatal(err)
		}
		for _, field := range []string{
			`"failurePolicy":"Ignore"`, `"matchPolicy":"Exact"`, `"timeoutSeconds":30`, `"sideEffects":"Unknown"`, `"admissionReviewVersions":["v1beta1"]`,
			`"namespaceSelector":{}`, `"objectSelector":{}`,
		} {
			if !strings.Contains(string(text), field) {
				t.Errorf("no %s in %s", field, text)
			}
		}
		plain, err := row.Codec.(rest.Versioned).ConvertTo(obj, admissionregistrationv1beta1.SchemeGroupVersion)
		if err != nil {
			t.Fatal(err)
		}
		reflect.ValueOf(plain).Elem().FieldByName("Webhooks").Index(0).FieldByName("FailurePolicy").SetZero()
		if plain, err = row.Codec.(rest.Versioned).ConvertTo(plain, admissionregistrationv1.SchemeGroupVersion); err != nil ||
			!reflect.ValueOf(plain).Elem().FieldByName("Webhooks").Index(0).FieldByName("FailurePolicy").IsNil() {
			t.Errorf("a conversion sets defaults: %v", err)
		}
		// It can be updated, although v1 does not permit such side effects in a new one.
		expect(t, row.Strategy.ValidateUpdate(t.Context(), obj.(rest.Object), obj.(rest.Object)))
	}
}

// passedThrough reads a stored object and returns what is stored of the result, as JSON.
func passedThrough(t *testing.T, k *rest.Kind, o *resource.Object) (out map[string]any) {
	t.Helper()
	obj, err := k.Codec.DecodeStored(o)
	if err != nil {
		t.Errorf("%s: %v", k.Kind, err)
		return nil
	}
	if o, err = k.Codec.EncodeStored(obj); err != nil {
		t.Fatal(err)
	}
	if obj, err = k.Codec.DecodeStored(o); err != nil {
		t.Fatal(err)
	}
	text, err := k.Codec.Encode(obj, k.GVK(k.Storage()), "application/json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// What kube-apiserver does not store because it is a default is in what is read: the apiVersion and
// kind of claim templates, without which no update would pass, and the phase of a new claim.
func TestDefaultsOfWhatIsStored(t *testing.T) {
	t.Parallel()
	stored := func(k *rest.Kind, obj rest.Object) *resource.Object {
		t.Helper()
		o, err := rest.Typed(scheme, k.GVK(k.Storage())).EncodeStored(obj)
		if err != nil || o.Encoding != resource.Protobuf {
			t.Fatalf("stored as %v: %v", o.Encoding, err)
		}
		return o
	}
	const manifest = `{"metadata":{"name":"a","namespace":"b","resourceVersion":"1"},"spec":{"selector":{"matchLabels":{"a":"b"}},"serviceName":"a",` +
		`"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"d"}]}},` +
		`"volumeClaimTemplates":[{"metadata":{"name":"data"},"spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}}}}]}}`
	sets := kind(t, "statefulsets.apps")
	o := stored(sets, decode[*appsv1.StatefulSet](t, sets, manifest))
	old, err := sets.Decode(o)
	if err != nil {
		t.Fatal(err)
	}
	if got := old.(*appsv1.StatefulSet).Spec.VolumeClaimTemplates[0].TypeMeta; got.APIVersion != "v1" || got.Kind != "PersistentVolumeClaim" {
		t.Errorf("the template is read as %+v", got)
	}
	expect(t, sets.Strategy.ValidateUpdate(t.Context(), decode[*appsv1.StatefulSet](t, sets, manifest), old))

	claims := kind(t, "persistentvolumeclaims")
	o = stored(claims, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "b"}})
	for _, media := range []response.Media{response.JSON, response.Protobuf} {
		sent, err := form.Form{Media: media, Version: "v1"}.Encode(claims, o)
		if err != nil || !bytes.Contains(sent, []byte("Pending")) {
			t.Errorf("%v: %q, %v", media, sent, err)
		}
	}
}
