package handlers

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

func TestDelete(t *testing.T) {
	b := newBench(t)
	made := b.create(bare("a"))
	s := b.send("DELETE", inDefault+"configmaps/a", nil).want(200, "").status()
	if s.Status != metav1.StatusSuccess || s.Details == nil || s.Details.UID != made.UID || s.Details.Kind != "configmaps" || s.Details.Name != "a" {
		t.Errorf("%+v", s)
	}
	b.send("DELETE", inDefault+"configmaps/a", nil).want(404, `configmaps "a" not found`)
}

// What becomes of an object by its finalizers and the policy (docs/wire.md 4.5).
func TestDeletePropagation(t *testing.T) {
	for _, test := range []struct {
		have, query, body string
		code              int
		want              string // finalizers left; "gone"
	}{
		{"", "", "", 200, "gone"},
		{"x/y", "", "", 200, "x/y"},
		{"", "propagationPolicy=Foreground", "", 200, "foregroundDeletion"},
		{"", "propagationPolicy=Orphan", "", 200, "orphan"},
		{"", "propagationPolicy=Background", "", 200, "gone"},
		{"orphan", "propagationPolicy=Background", "", 200, "gone"},
		{"orphan,x/y", "propagationPolicy=Foreground", "", 200, "x/y,foregroundDeletion"},
		{"orphan", "", "", 200, "orphan"},
		{"", "orphanDependents=true", "", 200, "orphan"},
		{"", "orphanDependents=false", "", 200, "gone"},
		{"x/y", "orphanDependents=false", "", 202, "x/y"},
		// The body replaces the query.
		{"", "propagationPolicy=Orphan", `{"kind":"DeleteOptions","apiVersion":"v1","propagationPolicy":"Foreground"}`, 200, "foregroundDeletion"},
		{"", "propagationPolicy=Orphan", `{}`, 200, "gone"},
	} {
		t.Run(test.have+"?"+test.query+test.body, func(t *testing.T) {
			b := newBench(t)
			cm := bare("a")
			if test.have != "" {
				cm.Finalizers = strings.Split(test.have, ",")
			}
			b.create(cm)
			b.send("DELETE", inDefault+"configmaps/a?"+test.query, test.body).want(test.code, "")
			now := b.send("GET", inDefault+"configmaps/a", nil)
			if test.want == "gone" {
				now.want(404, "")
				return
			}
			got := now.want(200, "").configMap()
			if strings.Join(got.Finalizers, ",") != test.want || got.DeletionTimestamp == nil ||
				got.DeletionGracePeriodSeconds == nil || *got.DeletionGracePeriodSeconds != 0 {
				t.Errorf("%+v", got.ObjectMeta)
			}
		})
	}
}

// Clients send DeleteOptions in every encoding and apiVersion.
func TestDeleteOptionsForms(t *testing.T) {
	message, err := (&metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationOrphan)}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	envelope := func(apiVersion string) string {
		data, err := (&runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: apiVersion, Kind: "DeleteOptions"}, Raw: message}).Marshal()
		if err != nil {
			t.Fatal(err)
		}
		return "k8s\x00" + string(data)
	}
	for _, test := range []struct {
		mediaType, body string
		code            int
	}{
		{runtime.ContentTypeJSON, `{"propagationPolicy":"Orphan","kind":"DeleteOptions","apiVersion":"meta.k8s.io/v1"}`, 200},
		{runtime.ContentTypeYAML, "propagationPolicy: Orphan\n", 200},
		{runtime.ContentTypeProtobuf, envelope("v1"), 200},
		{runtime.ContentTypeProtobuf, envelope("meta.k8s.io/v1"), 200},
		{runtime.ContentTypeProtobuf, envelope("apps/v1"), 200},
		{runtime.ContentTypeJSON, `{"propagationPolicy":"Orphan","kind":"DeleteOptions","apiVersion":"apps/v1"}`, 200},
		{runtime.ContentTypeYAML, "propagationPolicy: Orphan\nkind: DeleteOptions\napiVersion: nope.example.com/v1\n", 200},
		{runtime.ContentTypeProtobuf, string(message), 400},
		{runtime.ContentTypeProtobuf, "k8s\x00\xff\xff", 400},
		{"text/plain", "x", 415},
	} {
		b := newBench(t)
		b.create(bare("a"))
		a := b.send("DELETE", inDefault+"configmaps/a", test.body, "Content-Type", test.mediaType).want(test.code, "")
		if test.code == 200 && fmt.Sprint(a.configMap().Finalizers) != "[orphan]" {
			t.Errorf("%s: %s", test.mediaType, a.body)
		}
	}
}

// The decoder accepts what upstream's accepts, with the same result: any apiVersion and no other
// kind.
func TestDeleteOptionsAsUpstream(t *testing.T) {
	t.Parallel()
	codecs := scheme.Codecs
	message, err := (&metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationOrphan)}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"", "DeleteOptions", "CreateOptions", "UpdateOptions", "PatchOptions", "ListOptions", "GetOptions", "ConfigMap", "Status", "deleteoptions"} {
		for _, apiVersion := range []string{"", "v1", "v1beta1", "meta.k8s.io/v1", "meta.k8s.io/v2", "apps/v1", "batch/v1", "policy/v1", "nope.example.com/v1", "a/b/c", "/v1", "__internal", "meta.k8s.io/__internal"} {
			typed, err := (&runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: apiVersion, Kind: kind}, Raw: message}).Marshal()
			if err != nil {
				t.Fatal(err)
			}
			for mediaType, body := range map[string]string{
				runtime.ContentTypeJSON:     fmt.Sprintf(`{"propagationPolicy":"Orphan","kind":%q,"apiVersion":%q}`, kind, apiVersion),
				runtime.ContentTypeYAML:     fmt.Sprintf("propagationPolicy: Orphan\nkind: %q\napiVersion: %q\n", kind, apiVersion),
				runtime.ContentTypeProtobuf: "k8s\x00" + string(typed),
			} {
				info, _ := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), mediaType)
				unset, want := metav1.SchemeGroupVersion.WithKind("DeleteOptions"), &metav1.DeleteOptions{}
				obj, _, refused := codecs.DecoderToVersion(info.Serializer, unset.GroupVersion()).Decode([]byte(body), &unset, want)
				accepts := refused == nil && obj == want
				got := &metav1.DeleteOptions{}
				err := (&API{}).decodeDeleteOptions([]byte(body), mediaType, got)
				if (err == nil) != accepts {
					t.Errorf("%s, %q of %q: got %v, upstream %v, %v", mediaType, kind, apiVersion, err, accepts, refused)
				}
				want.TypeMeta, got.TypeMeta = metav1.TypeMeta{}, metav1.TypeMeta{} // which deleteOptions sets
				if accepts && !reflect.DeepEqual(got, want) {
					t.Errorf("%s, %q of %q: got %+v, upstream %+v", mediaType, kind, apiVersion, got, want)
				}
			}
		}
	}
}

func TestFinalizersDelayDeletion(t *testing.T) {
	b := newBench(t)
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "s", Finalizers: []string{"a/b", "c/d"}}}
	b.send("POST", inDefault+"services", service).want(201, "")
	first := b.send("DELETE", inDefault+"services/s", nil).want(200, "").service()
	if first.Generation != 2 || first.DeletionTimestamp == nil {
		t.Fatalf("%+v", first.ObjectMeta)
	}
	again := b.send("DELETE", inDefault+"services/s", nil).want(200, "").service()
	if again.ResourceVersion != first.ResourceVersion {
		t.Error("deleting a second time wrote")
	}
	more := again.DeepCopy()
	more.Finalizers = append(more.Finalizers, "e/f")
	b.send("PUT", inDefault+"services/s", more).want(422,
		`Service "s" is invalid: metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers []string{"e/f"}`)
	b.send("PATCH", inDefault+"services/s", `{"metadata":{"finalizers":["c/d"]}}`, "Content-Type", mergePatch).want(200, "")
	b.send("PATCH", inDefault+"services/s?dryRun=All", `{"metadata":{"finalizers":null}}`, "Content-Type", mergePatch).want(200, "")
	last := b.send("PATCH", inDefault+"services/s", `{"metadata":{"finalizers":null},"spec":{"externalName":"last"}}`, "Content-Type", mergePatch).want(200, "").service()
	if last.Spec.ExternalName != "last" || last.Name != "s" {
		t.Errorf("%+v", last)
	}
	b.send("GET", inDefault+"services/s", nil).want(404, "")
}

func TestDeleteNamespace(t *testing.T) {
	b := newBench(t)
	b.send("POST", "/api/v1/namespaces", `{"metadata":{"name":"n"},"spec":{"finalizers":["kubernetes"]}}`).want(201, "")
	ns := b.send("DELETE", "/api/v1/namespaces/n", nil).want(200, "").namespace()
	if ns.Status.Phase != corev1.NamespaceTerminating || ns.DeletionTimestamp == nil || ns.DeletionGracePeriodSeconds != nil {
		t.Fatalf("%+v", ns)
	}
	// An ordinary write does not complete the deletion.
	b.send("PATCH", "/api/v1/namespaces/n", `{"metadata":{"labels":{"a":"b"}}}`, "Content-Type", mergePatch).want(200, "")
	ns = b.send("GET", "/api/v1/namespaces/n", nil).want(200, "").namespace()
	ns.Spec.Finalizers = nil
	b.send("PATCH", "/api/v1/namespaces/n/finalize", `{}`, "Content-Type", mergePatch).want(405, "")
	b.send("PUT", "/api/v1/namespaces/n/finalize", `{"metadata":{"name":"n","resourceVersion":"`+ns.ResourceVersion+`"}}`).want(200, "")
	b.send("GET", "/api/v1/namespaces/n", nil).want(404, "")

	b.send("POST", "/api/v1/namespaces", `{"metadata":{"name":"empty"}}`).want(201, "")
	if gone := b.send("DELETE", "/api/v1/namespaces/empty", nil).want(200, "").namespace(); gone.Kind != "Namespace" || gone.Name != "empty" {
		t.Errorf("a kind that returns what it deleted returned %+v", gone)
	}
}

// A deletecollection deletes the selected objects with the same options, in order, until one
// fails, and responds with the list as it was (docs/wire.md 4.5).
func TestDeleteCollection(t *testing.T) {
	b := newBench(t)
	left := func(want ...string) {
		t.Helper()
		var names []string
		for _, cm := range read(b.send("GET", configMaps, nil), &corev1.ConfigMapList{}).Items {
			names = append(names, cm.Name+strings.Join(cm.Finalizers, ""))
		}
		if !slices.Equal(names, want) {
			t.Fatalf("%q are left, want %q", names, want)
		}
	}
	for i := range 5 {
		cm := bare(fmt.Sprint("c", i))
		cm.Labels = map[string]string{"even": fmt.Sprint(i%2 == 0)}
		if i == 4 {
			cm.Finalizers = []string{"x/y"}
		}
		b.create(cm)
	}
	a := b.send("DELETE", configMaps+"?labelSelector=even%3Dtrue", nil).want(200, "")
	if l := read(a, &corev1.ConfigMapList{}); l.Kind != "ConfigMapList" || len(l.Items) != 3 || l.Items[2].DeletionTimestamp != nil {
		t.Errorf("%s", a.body)
	}
	left("c1", "c3", "c4x/y")
	b.merge(configMaps+"/c4", `{"metadata":{"finalizers":null}}`).want(200, "")
	b.send("DELETE", configMaps+"?limit=1", nil).want(200, "")
	left("c3")
	b.create(bare("d"))
	b.send("DELETE", configMaps+"?fieldSelector=metadata.name%21%3Dc3", `{"propagationPolicy":"Foreground"}`).want(200, "")
	left("c3", "dforegroundDeletion")
	// The options of the body replace those of the query.
	b.send("DELETE", configMaps+"?propagationPolicy=Orphan", `{"propagationPolicy":"Background"}`).want(200, "")
	left()
	uid := b.create(bare("e0")).UID
	b.create(bare("e1"))
	b.send("DELETE", configMaps, `{"preconditions":{"uid":"`+string(uid)+`"}}`).want(409, "")
	left("e1")
}

// The decoder of DeleteOptions accepts no other kind.
func FuzzDeleteOptions(f *testing.F) {
	f.Add([]byte(`{"propagationPolicy":"Orphan"}`), runtime.ContentTypeJSON)
	f.Add([]byte("kind: DeleteOptions\napiVersion: v1\n"), runtime.ContentTypeYAML)
	f.Add([]byte("k8s\x00\n\x13\n\x02v1\x12\rDeleteOptions\x12\x02\x08\x05"), runtime.ContentTypeProtobuf)
	f.Fuzz(func(t *testing.T, data []byte, mediaType string) {
		opts := &metav1.DeleteOptions{}
		if (&API{}).decodeDeleteOptions(data, mediaType, opts) == nil && opts.Kind != "" && opts.Kind != "DeleteOptions" {
			t.Errorf("took a %q", opts.Kind)
		}
	})
}
