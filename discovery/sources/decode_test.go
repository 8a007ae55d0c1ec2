package sources

import (
	"net/http"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

const typeAggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

// JSON that is not discovery fails the check and removes nothing.
func TestAnswersThatAreNoDiscovery(t *testing.T) {
	const (
		groups   = `{"kind":"APIGroupList","apiVersion":"v1","groups":[]}`
		groupsV2 = `{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","items":[]}`
	)
	widget := schema.GroupVersion{Group: "widgets.example.com", Version: "v1"}
	for name, c := range map[string]struct {
		path, contentType, body string
		only                    []schema.GroupVersion
		wants                   string
	}{
		"nothing":                  {"/apis", acceptLegacy, `{}`, nil, "answer of "},
		"null":                     {"/apis", acceptLegacy, `null`, nil, "is no APIGroupList"},
		"a message":                {"/apis", acceptLegacy, `{"message":"maintenance"}`, nil, "is no APIGroupList"},
		"another's kind":           {"/apis", acceptLegacy, `{"kind":"Secret<b>","groups":[]}`, nil, "is no APIGroupList"},
		"a Status":                 {"/apis", acceptLegacy, `{"kind":"Status","apiVersion":"v1","status":"Failure"}`, nil, "is no APIGroupList but of kind Status"},
		"nothing of v2":            {"/apis", typeAggregated, `{}`, nil, "is no APIGroupDiscoveryList"},
		"null of v2":               {"/apis", typeAggregated, `null`, nil, "is no APIGroupDiscoveryList"},
		"the older list as v2":     {"/apis", typeAggregated, groups, nil, "is no APIGroupDiscoveryList but of kind APIGroupList"},
		"v2 as the older list":     {"/apis", acceptLegacy, groupsV2, nil, "is no APIGroupList but of kind APIGroupDiscoveryList"},
		"nothing of core":          {"/api", acceptLegacy, `{}`, nil, "is no APIVersions"},
		"a Status of core":         {"/api", acceptLegacy, `{"kind":"Status"}`, nil, "is no APIVersions but of kind Status"},
		"nothing of v2 of core":    {"/api", typeAggregated, `{"kind":"Status"}`, nil, "is no APIGroupDiscoveryList but of kind Status"},
		"nothing of one":           {"/apis/widgets.example.com/v1", acceptLegacy, `{}`, []schema.GroupVersion{widget}, "is no APIResourceList"},
		"only the name of one":     {"/apis/widgets.example.com/v1", acceptLegacy, `{"groupVersion":"widgets.example.com/v1"}`, []schema.GroupVersion{widget}, "is no APIResourceList"},
		"another document for one": {"/apis/widgets.example.com/v1", acceptLegacy, groups, []schema.GroupVersion{widget}, "is no APIResourceList but of kind APIGroupList"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBackend(t, described("", "v1", "pods"), described("widgets.example.com", "v1", "widgets"))
			s := b.source(c.only...)
			defer s.Close()
			if err := s.Check(t.Context()); err != nil {
				t.Fatal(err)
			}
			before, whole := s.Served()
			b.answer(c.path, http.StatusOK, c.contentType, c.body)
			for range 2 {
				err := s.Check(t.Context())
				if err == nil || !strings.Contains(err.Error(), c.wants) || strings.Contains(err.Error(), "Secret") {
					t.Errorf("the error is %v, want one with %q", err, c.wants)
				}
			}
			if after, still := s.Served(); len(after) != len(before) || whole != still {
				t.Errorf("known are %d of %d group/versions, all: %v", len(after), len(before), still)
			}
			b.heal()
			if err := s.Check(t.Context()); err != nil {
				t.Errorf("after it is well: %v", err)
			}
		})
	}
}

// A document without kind is accepted with the array of its kind, and one with kind may be empty.
func TestAnswersWithoutKind(t *testing.T) {
	for name, c := range map[string]struct {
		apis, api string
		group     string
		n         int
	}{
		"by hand":     {`{"groups":[{"name":"widgets.example.com","versions":[{"groupVersion":"widgets.example.com/v1","version":"v1"}]}]}`, `{"versions":["v1"]}`, `{"groupVersion":"widgets.example.com/v1","resources":[]}`, 2},
		"empty lists": {`{"kind":"APIGroupList","groups":null}`, `{"kind":"APIVersions"}`, ``, 0},
	} {
		b := newBackend(t, described("", "v1", "pods"))
		b.answer("/apis", http.StatusOK, acceptLegacy, c.apis)
		b.answer("/api", http.StatusOK, acceptLegacy, c.api)
		b.answer("/apis/widgets.example.com/v1", http.StatusOK, acceptLegacy, c.group)
		s := b.source()
		if err := s.Check(t.Context()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if gvs, whole := s.Served(); len(gvs) != c.n || !whole || len(s.Unread()) > 0 {
			t.Errorf("%s: known are %v, all: %v", name, gvs, whole)
		}
		s.Close()
	}
}
