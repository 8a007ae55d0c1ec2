package crd

import (
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico/internal/testing/await"
	"portico/internal/testing/memstore"
)

const definitionPath = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

func condition(object map[string]any, kind string) map[string]any {
	list, _ := at(object, "status", "conditions").([]any)
	for _, c := range list {
		if at(c, "type") == kind {
			return c.(map[string]any)
		}
	}
	return nil
}

// A definition is established once it is served. Deleting it deletes its objects and waits for those with finalizers; nothing can
// be created meanwhile.
func TestDeleteDefinition(t *testing.T) {
	t.Parallel()
	s := running(t)
	if made := s.install(t, widgets); condition(made, "Established")["status"] != "True" || condition(made, "NamesAccepted")["reason"] != "NoConflicts" {
		t.Errorf("created as %v", made["status"])
	}
	s.must(t, "POST", widgetPath, "", widget("a", "{size: small}"))
	s.must(t, "POST", widgetPath, "", heldWidget)
	gone := s.must(t, "DELETE", widgetsByName, "", "")
	if gone["kind"] != "CustomResourceDefinition" || at(gone, "metadata", "deletionTimestamp") == nil || condition(gone, "Terminating")["status"] != "True" {
		t.Errorf("deletion answered %v", gone)
	}
	await.Until(t, "the object without finalizers is gone", func() bool { return s.send(t, "GET", widgetPath+"/a", "", "").code == 404 })
	await.Until(t, "nothing can be created", func() bool {
		a := s.send(t, "POST", widgetPath, "", widget("c", "{size: small}"))
		return a.code == 403 && strings.Contains(a.status(t).Message, "create not allowed while custom resource definition is terminating")
	})
	if a := s.send(t, "GET", widgetsByName, "", ""); a.code != 200 {
		t.Fatalf("the definition went before its objects: %d %s", a.code, a.body)
	}
	s.must(t, "PATCH", widgetPath+"/held", mergePatch, `{"metadata":{"finalizers":null}}`)
	await.Until(t, "the definition is gone", func() bool { return s.send(t, "GET", widgetsByName, "", "").code == 404 })
	await.Until(t, "its API is gone", func() bool { return s.send(t, "GET", widgetPath, "", "").code == 404 })
	await.Until(t, "discovery no longer names it", func() bool {
		d := s.documents.Load()
		return !d.Serves("/apis/example.com/v1")
	})
}

// A definition with a taken name gets the name once it is free.
func TestAFreedNameIsAccepted(t *testing.T) {
	t.Parallel()
	s := running(t)
	s.install(t, widgets)
	other := strings.NewReplacer("widgets", "gadgets", "Widget", "Gadget").Replace(widgets)
	s.must(t, "POST", definitionPath, "", other) // the short name is taken
	got := s.must(t, "GET", definitionPath+"/gadgets.example.com", "", "")
	if c := condition(got, "NamesAccepted"); c["status"] != "False" || c["reason"] != "ShortNamesConflict" || c["message"] != `"wd" is already in use` {
		t.Fatalf("the second definition is %v", got["status"])
	}
	if a := s.send(t, "GET", "/apis/example.com/v1/namespaces/default/gadgets", "", ""); a.code != 404 {
		t.Errorf("it is served: %d", a.code)
	}
	s.must(t, "DELETE", widgetsByName, "", "")
	await.Until(t, "the second definition is established", func() bool {
		got := s.must(t, "GET", definitionPath+"/gadgets.example.com", "", "")
		return condition(got, "Established")["status"] == "True"
	})
	await.Until(t, "it is served", func() bool {
		return s.send(t, "GET", "/apis/example.com/v1/namespaces/default/gadgets", "", "").code == 200
	})
}

// A definition with an unchanged specification keeps its entry.
func TestEntriesAreReused(t *testing.T) {
	t.Parallel()
	s := running(t)
	s.install(t, widgets)
	gr := schema.GroupResource{Group: "example.com", Resource: "widgets"}
	before := s.served.Load().byGR[gr]
	s.must(t, "PATCH", widgetsByName, "application/merge-patch+json", `{"metadata":{"labels":{"a":"b"}}}`)
	await.Until(t, "the label is seen", func() bool { return s.served.Load().byGR[gr].Labels["a"] == "b" })
	if s.served.Load().byGR[gr].serving != before.serving {
		t.Error("a label made a new entry")
	}
	s.must(t, "PATCH", widgetsByName, "application/json-patch+json", `[{"op":"replace","path":"/spec/versions/1/deprecated","value":false}]`)
	await.Until(t, "the change is seen", func() bool { return s.served.Load().byGR[gr].serving != before.serving })
	if v := s.served.Load().byGR[gr].watches["v1"]; v != before.watches["v1"] || v.ended.Err() != nil {
		t.Error("its watches do not go on")
	}
	s.must(t, "PATCH", widgetsByName, "application/json-patch+json", `[{"op":"add","path":"/spec/versions/0/additionalPrinterColumns","value":[{"name":"N","type":"string","jsonPath":".spec.size"}]}]`)
	await.Until(t, "the watches of the version with other columns end", func() bool { return before.watches["v1"].ended.Err() != nil })
	if before.watches["v1beta1"].ended.Err() != nil {
		t.Error("those of the other version end, too")
	}
	s.must(t, "PATCH", widgetsByName, "application/json-patch+json", `[{"op":"replace","path":"/spec/versions/1/served","value":false}]`)
	await.Until(t, "the watches of a version that is no longer served end", func() bool { return before.watches["v1beta1"].ended.Err() != nil })
}

// Definitions and objects are read again after a restart, and objects that another server
// wrote are normalized.
func TestObjectsAreServedAfterARestart(t *testing.T) {
	t.Parallel()
	kept := memstore.New()
	s := over(t, kept)
	s.install(t, widgets)
	s.must(t, "POST", widgetPath, "", widget("a", "{size: small}"))
	info := s.served.Load().byGR[schema.GroupResource{Group: "example.com", Resource: "widgets"}].rows["v1"].Kind.Info
	put(t, kept.Store(&info), `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"b","namespace":"default","uid":"u","creationTimestamp":null},"spec":{"size":"small","junk":true}}`)
	again := over(t, kept)
	if got := again.must(t, "GET", widgetPath+"/a", "", ""); at(got, "spec", "size") != "small" {
		t.Errorf("read %v", got)
	}
	got := again.must(t, "GET", widgetPath+"/b", "", "")
	if at(got, "spec", "junk") != nil || at(got, "spec", "replicas") != 1.0 || at(got, "metadata", "generation") != 1.0 {
		t.Errorf("read %v", got)
	}
}

// Malformed metadata of a stored object is read alike as a whole object and as
// PartialObjectMetadata.
func TestMalformedStoredMetadata(t *testing.T) {
	t.Parallel()
	kept := memstore.New()
	s := over(t, kept)
	s.install(t, widgets)
	info := s.served.Load().byGR[schema.GroupResource{Group: "example.com", Resource: "widgets"}].rows["v1"].Kind.Info
	put(t, kept.Store(&info), `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"b","namespace":"default","uid":"u",`+
		`"annotations":{"a":1},"creationTimestamp":"soon","managedFields":{},"deletionGracePeriodSeconds":3},"spec":{"size":"small"}}`)
	await.Until(t, "the object is there", func() bool { return s.send(t, "GET", widgetPath+"/b", "", "").code != 404 })
	whole := s.must(t, "GET", widgetPath+"/b", "", "")["metadata"]
	const partial = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
	if got := s.must(t, "GET", widgetPath+"/b", "", "", "Accept", partial)["metadata"]; !reflect.DeepEqual(got, whole) || at(got, "generation") != 1.0 {
		t.Errorf("partial metadata %v, want %v", got, whole)
	}
	list := s.must(t, "GET", widgetPath, "", "", "Accept", strings.Replace(partial, "Metadata;", "MetadataList;", 1))
	if items, _ := list["items"].([]any); len(items) != 1 || !reflect.DeepEqual(at(items[0], "metadata"), whole) {
		t.Errorf("partial list %v, want metadata %v", list, whole)
	}
}

// A definition of the resource customresourcedefinitions is stored and defines nothing: discovery and
// OpenAPI describe the resource once. Another one in its group serves all versions but v1.
func TestDefinitionInTheGroupOfDefinitions(t *testing.T) {
	t.Parallel()
	s := running(t)
	described := func() string {
		t.Helper()
		document, ok, err := s.openAPI.JSON(t.Context(), "apis/apiextensions.k8s.io/v1")
		if err != nil || !ok {
			t.Fatalf("OpenAPI: %t, %v", ok, err)
		}
		return string(document) + string(jsonOf(t, s.documents.Load()))
	}
	before := described()
	s.must(t, "POST", definitionPath, "application/yaml", `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: customresourcedefinitions.apiextensions.k8s.io, annotations: {api-approved.kubernetes.io: "unapproved, test-only"}}
spec:
  group: apiextensions.k8s.io
  scope: Cluster
  names: {plural: customresourcedefinitions, singular: customresourcedefinition, kind: CustomResourceDefinition, listKind: CustomResourceDefinitionList}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {probe: {type: boolean}}}}}
`)
	await.Until(t, "it is established", func() bool {
		return condition(s.must(t, "GET", definitionPath+"/customresourcedefinitions.apiextensions.k8s.io", "", ""), "Established")["status"] == "True"
	})
	if after := described(); after != before {
		t.Errorf("got %s\nwant %s", after, before)
	}
	s.must(t, "DELETE", definitionPath+"/customresourcedefinitions.apiextensions.k8s.io", "", "")
	await.Until(t, "it is gone", func() bool {
		return s.send(t, "GET", definitionPath+"/customresourcedefinitions.apiextensions.k8s.io", "", "").code == 404
	})
	s.install(t, `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: bars.apiextensions.k8s.io, annotations: {api-approved.kubernetes.io: "unapproved, test-only"}}
spec:
  group: apiextensions.k8s.io
  scope: Cluster
  names: {plural: bars, singular: bar, kind: Bar, listKind: BarList}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}
  - {name: v2, served: true, storage: false, schema: {openAPIV3Schema: {type: object}}}
`)
	if after := described(); strings.Contains(after, `"bars"`) == strings.Contains(before, `"bars"`) || strings.Contains(after, "/apis/apiextensions.k8s.io/v1/bars") {
		t.Errorf("with bars: %s", after)
	}
	for version, want := range map[string]int{"v1": 404, "v2": 201} {
		if got := s.send(t, "POST", "/apis/apiextensions.k8s.io/"+version+"/bars", "", `{"apiVersion":"apiextensions.k8s.io/`+version+`","kind":"Bar","metadata":{"name":"a"}}`); got.code != want {
			t.Errorf("a bar in %s: %d %s", version, got.code, got.body)
		}
	}
}
