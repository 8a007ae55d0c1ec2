package crd

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"portico/backends/crd/prevalidate"
	"portico/internal/testing/await"
	"portico/internal/testing/memstore"
)

// wide returns a definition with numbers of served versions, short names and categories.
func wide(plural, group string, versions, shortNames, categories int) *apiextensionsv1.CustomResourceDefinition {
	crd := &apiextensionsv1.CustomResourceDefinition{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apiextensions.k8s.io/v1", Kind: "CustomResourceDefinition"},
		ObjectMeta: metav1.ObjectMeta{Name: plural + "." + group},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: group, Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: plural, Singular: plural, Kind: "K" + plural, ListKind: "K" + plural + "List"},
		},
	}
	schema := &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object"}}
	for i := range versions {
		crd.Spec.Versions = append(crd.Spec.Versions, apiextensionsv1.CustomResourceDefinitionVersion{
			Name: fmt.Sprintf("v%d", i+1), Served: true, Storage: i == 0, Schema: schema,
		})
	}
	for i := range shortNames {
		crd.Spec.Names.ShortNames = append(crd.Spec.Names.ShortNames, fmt.Sprintf("s%d", i))
	}
	for i := range categories {
		crd.Spec.Names.Categories = append(crd.Spec.Names.Categories, fmt.Sprintf("c%d", i))
	}
	return crd
}

func jsonOf(t testing.TB, v any) string {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// plant stores a definition without checking the bounds.
func plant(t testing.TB, kept *memstore.Storage, crd *apiextensionsv1.CustomResourceDefinition) {
	t.Helper()
	crd = crd.DeepCopy()
	crd.UID, crd.Generation, crd.CreationTimestamp = types.UID("uid-of-"+crd.Name), 1, metav1.Now()
	crd.Status = apiextensionsv1.CustomResourceDefinitionStatus{
		AcceptedNames: crd.Spec.Names, StoredVersions: []string{"v1"},
		Conditions: []apiextensionsv1.CustomResourceDefinitionCondition{
			{Type: apiextensionsv1.NamesAccepted, Status: apiextensionsv1.ConditionTrue, Reason: "NoConflicts", Message: "no conflicts found"},
			{Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionTrue, Reason: "InitialNamesAccepted", Message: "the initial names have been accepted"},
		},
	}
	put(t, kept.Store(&DefinitionKind().Info), jsonOf(t, crd))
}

// A definition that would exceed a bound on discovery is rejected, with the field and the
// bound.
func TestDefinitionBeyondBoundsIsRefused(t *testing.T) {
	t.Parallel()
	s := running(t)
	for name, tc := range map[string]struct {
		crd   *apiextensionsv1.CustomResourceDefinition
		field string
	}{
		"versions":    {wide("vers", "bomb.example.com", 5000, 0, 0), "spec.versions"},
		"one more":    {wide("vers", "bomb.example.com", maxVersions+1, 0, 0), "spec.versions"},
		"categories":  {wide("cats", "bomb.example.com", 60, 0, 20000), "spec.names.categories"},
		"a body":      {wide("cats", "bomb.example.com", 60, 0, 60000), ""},
		"short names": {wide("shorts", "bomb.example.com", 1, maxNames+1, 0), "spec.names.shortNames"},
	} {
		a := s.send(t, "POST", definitionPath, "application/json", jsonOf(t, tc.crd))
		st := a.status(t)
		if tc.field == "" {
			if a.code != http.StatusRequestEntityTooLarge {
				t.Errorf("%s: %d %.300s", name, a.code, a.body)
			}
			continue
		}
		if a.code != http.StatusUnprocessableEntity || st.Details == nil || len(st.Details.Causes) != 1 || st.Details.Causes[0].Field != tc.field ||
			!strings.Contains(st.Message, "must have at most 100 items") {
			t.Errorf("%s: %d %.300s", name, a.code, a.body)
		}
	}
	s.install(t, jsonOf(t, wide("as-many", "ok.example.com", maxVersions, maxNames, maxNames)))
}

// Stored definitions that exceed the bounds can be read, made smaller and deleted, are in
// discovery in part, as a condition tells, and must not grow.
func TestStoredDefinitionsBeyondBounds(t *testing.T) {
	t.Parallel()
	kept := memstore.New()
	plant(t, kept, wide("vers", "bomb.example.com", 500, 0, 0))
	plant(t, kept, wide("cats", "bomb2.example.com", 60, 5000, 20000))
	plant(t, kept, wide("fine", "fine.example.com", 1, 1, 1))
	s := over(t, kept)
	await.Until(t, "discovery is there", func() bool { return s.documents.Load() != nil })
	if d := s.documents.Load(); d == nil || !d.Serves("/apis/bomb.example.com/v500") || d.Serves("/apis/bomb.example.com/v400") || !d.Serves("/apis/fine.example.com/v1") {
		t.Error("discovery does not have exactly the first versions")
	}
	if n := s.totals().size; n > 2<<20 {
		t.Errorf("discovery takes %d bytes", n)
	}
	for name, reason := range map[string]string{"vers.bomb.example.com": "TooManyVersions", "cats.bomb2.example.com": "TooManyShortNames"} {
		await.Until(t, name+" has the condition", func() bool {
			c := condition(s.must(t, "GET", definitionPath+"/"+name, "", ""), "DiscoveryTruncated")
			return c["status"] == "True" && c["reason"] == reason
		})
		s.must(t, "PATCH", definitionPath+"/"+name, mergePatch, `{"metadata":{"labels":{"a":"b"}}}`)
	}
	crd := wide("vers", "bomb.example.com", 501, 0, 0)
	if a := s.send(t, "PATCH", definitionPath+"/vers.bomb.example.com", mergePatch, `{"spec":`+jsonOf(t, crd.Spec)+`}`); a.code != http.StatusUnprocessableEntity {
		t.Errorf("it grows: %d %.300s", a.code, a.body)
	}
	s.must(t, "PATCH", definitionPath+"/vers.bomb.example.com", mergePatch, `{"spec":`+jsonOf(t, wide("vers", "bomb.example.com", 50, 0, 0).Spec)+`}`)
	await.Until(t, "the condition is removed", func() bool {
		return condition(s.must(t, "GET", definitionPath+"/vers.bomb.example.com", "", ""), "DiscoveryTruncated") == nil
	})
	for _, name := range []string{"vers.bomb.example.com", "cats.bomb2.example.com"} {
		s.must(t, "DELETE", definitionPath+"/"+name, "", "")
		await.Until(t, name+" is gone", func() bool { return s.send(t, "GET", definitionPath+"/"+name, "", "").code == 404 })
	}
}

// The group/versions of all definitions together are bounded: a definition that would exceed
// the bound is rejected; stored ones beyond it are omitted from discovery and can be deleted.
// The API of definitions itself is always in discovery.
func TestDefinitionsBeyondTheTotal(t *testing.T) {
	t.Parallel()
	kept := memstore.New()
	groups := maxGroupVersions/maxVersions + 2
	for i := range groups {
		plant(t, kept, wide("things", fmt.Sprintf("g%03d.example.com", i), maxVersions, 0, 0))
	}
	s := over(t, kept)
	await.Until(t, "discovery is there", func() bool { return s.documents.Load() != nil })
	all := s.totals()
	if all.groupVersions > maxGroupVersions || all.omitted != 2*maxVersions {
		t.Errorf("%d group/versions in discovery, %d left out", all.groupVersions, all.omitted)
	}
	if d := s.documents.Load(); !d.Serves("/apis/apiextensions.k8s.io/v1") || !d.Serves("/apis/g000.example.com/v1") {
		t.Error("discovery lacks what is within the bounds")
	}
	a := s.send(t, "POST", definitionPath, "application/json", jsonOf(t, wide("more", "more.example.com", maxVersions, 0, 0)))
	if st := a.status(t); a.code != http.StatusUnprocessableEntity || !strings.Contains(st.Message, "spec.versions: Forbidden: all definitions together would have 16400 group/versions") {
		t.Errorf("beyond the total: %d %.300s", a.code, a.body)
	}
	await.Until(t, "the last group has the condition", func() bool {
		return condition(s.must(t, "GET", fmt.Sprintf("%s/things.g%03d.example.com", definitionPath, groups-1), "", ""), "DiscoveryTruncated")["reason"] == reasonOmitted
	})
	// Another kind in existing versions adds no group/version.
	s.install(t, jsonOf(t, wide("others", "g000.example.com", maxVersions, 0, 0)))
	last := fmt.Sprintf("%s/things.g%03d.example.com", definitionPath, groups-1)
	s.must(t, "DELETE", last, "", "")
	await.Until(t, "the last one is gone", func() bool { return s.send(t, "GET", last, "", "").code == 404 })
	await.Until(t, "it is no longer counted", func() bool { return s.omitted.Load() == maxVersions })
}

// A definition with patterns that take much memory once compiled is rejected; one that is stored can be changed.
func TestPatternsAreBounded(t *testing.T) {
	t.Parallel()
	for pattern, want := range map[string]int{"": 0, "abc": 3, "a{1000}": 1000, "[a-z]{2,10}": 10, "(ab{3,}){5}": 20, "a{": 2, "(a{30}){30}": 900, "(": 1} {
		if got := prevalidate.Instructions(pattern); got < want || got > 2*want+3 {
			t.Errorf("%q takes about %d instructions, and is counted as %d", pattern, want, got)
		}
	}
	large := wide("large", "large.example.com", 2, 0, 0)
	for i := range large.Spec.Versions {
		large.Spec.Versions[i].Schema = &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
			Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"a": {Type: "string", Pattern: strings.Repeat("a{1000}", maxPatterns/1000/2+1)}},
		}}
	}
	kept := memstore.New()
	plant(t, kept, large)
	s := over(t, kept)
	s.must(t, "PATCH", definitionPath+"/large.large.example.com", mergePatch, `{"spec":{"names":{"categories":["all"]}}}`)
	large.Name, large.Spec.Group = "large.other.example.com", "other.example.com"
	a := s.send(t, "POST", definitionPath, "application/json", jsonOf(t, large))
	if st := a.status(t); a.code != http.StatusUnprocessableEntity || !strings.Contains(st.Message, "spec.versions: Forbidden: the patterns of all schemas together") {
		t.Errorf("beyond the bound: %d %.300s", a.code, a.body)
	}
	large.Spec.Versions = large.Spec.Versions[:1]
	s.install(t, jsonOf(t, large))
}
