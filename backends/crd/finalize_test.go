package crd

import (
	"errors"
	"io"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico/backends/crd/custom"
	"portico/internal/testing/await"
	"portico/resource"
)

const (
	heldWidget    = "{apiVersion: example.com/v1, kind: Widget, metadata: {name: held, finalizers: [example.com/keep]}, spec: {size: small}}"
	widgetsByName = definitionPath + "/widgets.example.com"
)

// A definition that waits for an object with a finalizer during its deletion loses its own
// by a patch and is created again. The retried deletion of the old one must not delete
// objects of the new one.
func TestOldDeletionSparesARecreatedDefinition(t *testing.T) {
	t.Parallel()
	s := running(t)
	s.install(t, widgets)
	s.must(t, "POST", widgetPath, "", heldWidget)
	s.must(t, "DELETE", widgetsByName, "", "")
	var old string
	await.Until(t, "the deletion waits for the object", func() bool {
		got := s.must(t, "GET", widgetsByName, "", "")
		old, _ = at(got, "metadata", "uid").(string)
		return condition(got, "Terminating")["reason"] == "InstanceDeletionInProgress"
	})
	s.must(t, "PATCH", widgetsByName, "application/merge-patch+json", `{"metadata":{"finalizers":null}}`)
	s.install(t, widgets)
	await.Until(t, "objects can be created again", func() bool {
		return s.send(t, "POST", widgetPath, "", widget("new", "{size: small}")).code == 201
	})
	await.Until(t, "the old deletion has ended", func() bool { return !s.finalizer.tasks.Running(old) })
	if a := s.send(t, "GET", widgetPath+"/new", "", ""); a.code != 200 {
		t.Errorf("the object of the new definition: %d %s", a.code, a.body)
	}
}

// A definition is served once its names are accepted. Its objects are deleted with it even
// if it was never established: the next definition of the name would show them again.
func TestObjectsOfANeverEstablishedDefinitionAreDeleted(t *testing.T) {
	t.Parallel()
	s := running(t)
	s.install(t, strings.Replace(widgets, "  scope: Namespaced", `  scope: Namespaced
  conversion:
    strategy: Webhook
    webhook: {conversionReviewVersions: [v1], clientConfig: {url: "https://x.example/", caBundle: Zm9v}}`, 1))
	if got := s.must(t, "GET", widgetsByName, "", ""); condition(got, "Established")["reason"] != "InvalidCABundle" {
		t.Fatalf("the definition is %v", got["status"])
	}
	s.must(t, "POST", widgetPath, "", widget("a", "{size: small}"))
	s.must(t, "DELETE", widgetsByName, "", "")
	await.Until(t, "the definition is gone", func() bool { return s.send(t, "GET", widgetsByName, "", "").code == 404 })
	s.install(t, widgets)
	if a := s.send(t, "GET", widgetPath+"/a", "", ""); a.code != 404 {
		t.Errorf("the object is there again: %d %s", a.code, a.body)
	}
}

// Deleting a definition of CustomResourceDefinition itself does not delete all definitions.
func TestBuiltInObjectsAreNotDeletedWithADefinition(t *testing.T) {
	t.Parallel()
	s := running(t)
	s.install(t, widgets)
	const name = "customresourcedefinitions.apiextensions.k8s.io"
	s.must(t, "POST", definitionPath, "", `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: `+name+`, annotations: {api-approved.kubernetes.io: unapproved}}
spec:
  group: apiextensions.k8s.io
  scope: Cluster
  names: {plural: customresourcedefinitions, kind: CustomResourceDefinition}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
`)
	s.must(t, "DELETE", definitionPath+"/"+name, "", "")
	await.Until(t, "the definition is gone", func() bool { return s.send(t, "GET", definitionPath+"/"+name, "", "").code == 404 })
	if got := s.must(t, "GET", widgetsByName, "", ""); at(got, "metadata", "deletionTimestamp") != nil {
		t.Error("another definition was deleted with it")
	}
	s.install(t, strings.ReplaceAll(widgets, "example.com", "later.example.com")) // definitions are still followed
	for path, want := range map[string]bool{
		"gateway.portico.dev/backends": true, "apiregistration.k8s.io/apiservices": true, "example.com/widgets": false, "pods.example.com/pods": false,
	} {
		o := *s.served.Load().outlines["widgets.example.com"].DeepCopy()
		o.Spec.Group, o.Spec.Names.Plural, _ = strings.Cut(path, "/")
		if got := s.overlaps(&custom.Outline{CustomResourceDefinition: &o}); got != want {
			t.Errorf("%s overlaps: %v", path, got)
		}
	}
}

// While a definition waits for its objects, watches continue, and receive the deletions;
// discovery omits the verbs that are refused.
func TestWatchedWhileTerminating(t *testing.T) {
	t.Parallel()
	s := running(t)
	s.install(t, widgets)
	s.must(t, "POST", widgetPath, "", heldWidget)
	gr := schema.GroupResource{Group: "example.com", Resource: "widgets"}
	before := s.served.Load().byGR[gr]
	watch, err := before.rows["v1"].Store.Watch(t.Context(), resource.WatchOptions{InitialEvents: true})
	if err != nil {
		t.Fatal(err)
	}
	s.must(t, "DELETE", widgetsByName, "", "")
	await.Until(t, "the deletion is seen", func() bool { return s.served.Load().byGR[gr].terminating() })
	if s.served.Load().byGR[gr].serving != before.serving || before.watches["v1"].ended.Err() != nil {
		t.Error("its watches were ended")
	}
	for _, gv := range s.served.Load().documents["example.com"] {
		if got := strings.Join(gv.Legacy[0].Verbs, " "); gv.Legacy[0].Name != "widgets" || got != "delete deletecollection get list watch" {
			t.Errorf("%s %s can do %q", gv.Version, gv.Legacy[0].Name, got)
		}
	}
	s.must(t, "PATCH", widgetPath+"/held", "application/merge-patch+json", `{"metadata":{"finalizers":null}}`)
	var last resource.Event
	for {
		events, err := watch.Next(t.Context())
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		last = events[len(events)-1]
	}
	if last.Type != resource.Deleted || last.Object.Name != "held" {
		t.Errorf("the last event is %v", last)
	}
}
