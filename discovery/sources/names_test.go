package sources

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// A group/version with an invalid name is reported and not requested, in both forms of the index,
// and the others are complete.
func TestInvalidNames(t *testing.T) {
	names := []string{"UPPER.io", "", "sl/ash", strings.Repeat("a", 1<<20)}
	var old, v2 []string
	for _, name := range append([]string{"widgets.example.com"}, names...) {
		old = append(old, fmt.Sprintf(`{"name":%q,"versions":[{"version":"v1"}]}`, name))
		v2 = append(v2, fmt.Sprintf(`{"metadata":{"name":%q},"versions":[{"version":"v1","resources":[]}]}`, name))
	}
	old = append(old, `{"name":"widgets.example.com","versions":[{"version":"V1"}]}`)
	v2 = append(v2, `{"metadata":{"name":"widgets.example.com"},"versions":[{"version":"V1","resources":[]}]}`)
	for form, c := range map[string][2]string{
		"older": {acceptLegacy, `{"kind":"APIGroupList","groups":[` + strings.Join(old, ",") + `]}`},
		"v2":    {typeAggregated, `{"kind":"APIGroupDiscoveryList","items":[` + strings.Join(v2, ",") + `]}`},
	} {
		t.Run(form, func(t *testing.T) {
			b := newBackend(t, described("", "v1", "pods"), described("widgets.example.com", "v1", "widgets"))
			b.answer("/apis", http.StatusOK, c[0], c[1])
			s := b.source()
			defer s.Close()
			for range 2 {
				if err := s.Check(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if gvs, whole := s.Served(); len(gvs) != 2 || !whole {
				t.Errorf("known are %d group/versions, all: %v", len(gvs), whole)
			}
			reported := map[string]bool{}
			for _, u := range s.Unread() {
				if !errors.Is(u.Err, ErrInvalidName) || len(u.Name()) > maxNameKept+10 {
					t.Errorf("%.200s: %v", u.Name(), u.Err)
				}
				reported[u.Name()] = true
			}
			for _, want := range []string{`"UPPER.io/v1"`, `"/v1"`, `"sl/ash/v1"`, `"widgets.example.com/V1"`} {
				if !reported[want] {
					t.Errorf("%s is not reported", want)
				}
			}
			if asked := b.forget(); strings.Contains(asked, "UPPER") || strings.Contains(asked, "sl/ash") || strings.Contains(asked, "V1") {
				t.Errorf("asked for %s", asked)
			}
		})
	}
}

// The first of two entries for one group/version counts.
func TestListedTwice(t *testing.T) {
	b := newBackend(t, described("", "v1", "pods"))
	b.answer("/apis", http.StatusOK, acceptLegacy, `{"kind":"APIGroupList","groups":[{"name":"widgets.example.com","versions":[{"version":"v1"},{"version":"v1"}]},{"name":"widgets.example.com","versions":[{"version":"v1"}]}]}`)
	b.answer("/apis/widgets.example.com/v1", http.StatusOK, acceptLegacy, `{"kind":"APIResourceList","groupVersion":"widgets.example.com/v1","resources":[
		{"name":"widgets","kind":"First","verbs":["get"]},{"name":"gadgets","kind":"Gadget","verbs":["get"]},{"name":"widgets","kind":"Second","verbs":["list"]}]}`)
	s := b.source()
	defer s.Close()
	if err := s.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	gvs, _ := s.Served()
	if len(gvs) != 2 || len(gvs[1].Legacy) != 2 || gvs[1].Legacy[1].Kind != "First" || len(gvs[1].Aggregated) != 2 {
		t.Errorf("known are %+v", gvs)
	}
}
