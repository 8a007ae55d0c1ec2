package storetest

import (
	"fmt"
	"slices"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"portico/resource"
)

func (s *subject) mustList(opts resource.ListOptions) *resource.List {
	s.Helper()
	l, err := s.List(s.ctx, opts)
	if err != nil {
		s.Fatalf("list %+v: %v", opts, err)
	}
	return l
}

// names gives the keys of objects, each with its value.
func (s *subject) names(objects []*resource.Object) []string {
	s.Helper()
	out := []string{}
	for _, o := range objects {
		out = append(out, o.Key().String()+"="+s.value(o))
	}
	return out
}

func (s *subject) wantNames(what string, objects []*resource.Object, want ...string) {
	s.Helper()
	if got := s.names(objects); !slices.Equal(got, append([]string{}, want...)) {
		s.Errorf("%s: got %q, want %q", what, got, want)
	}
}

func byLabel(t *testing.T, text string) resource.Selector {
	t.Helper()
	sel, err := labels.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return resource.Selector{Labels: sel}
}

func byField(text string) resource.Selector {
	return resource.Selector{Fields: fields.ParseSelectorOrDie(text)}
}

var listTests = []test{
	{"Empty", func(t *testing.T, s *subject) {
		s.on(Namespaced())
		l := s.mustList(resource.ListOptions{})
		if len(l.Items) != 0 || l.Revision <= 0 || l.Continue != "" || (l.Remaining != nil && *l.Remaining != 0) {
			t.Errorf("empty list is %+v", l)
		}
	}},
	{"KeyOrder", func(t *testing.T, s *subject) {
		s.on(Namespaced())
		// '-' sorts before the '/' between namespace and name, '0' behind it.
		for _, k := range []resource.Key{key("b", "a"), key("a", "b"), key("a0", "a"), key("a", "a"), key("a-b", "a")} {
			s.mustCreate(k, "1")
		}
		s.wantNames("all", s.mustList(resource.ListOptions{}).Items, "a-b/a=1", "a/a=1", "a/b=1", "a0/a=1", "b/a=1")
	}},
	{"NamespacesThatShareAPrefix", func(t *testing.T, s *subject) {
		s.on(Namespaced())
		for _, ns := range []string{"a", "ab", "a-b", "b"} {
			s.mustCreate(key(ns, "x"), ns)
		}
		for _, ns := range []string{"a", "ab", "a-b", "b"} {
			s.wantNames(ns, s.mustList(resource.ListOptions{Namespace: ns}).Items, ns+"/x="+ns)
		}
		s.wantNames("no such", s.mustList(resource.ListOptions{Namespace: "c"}).Items)
	}},
	{"ClusterScoped", func(t *testing.T, s *subject) {
		s.on(ClusterScoped())
		s.mustCreate(key("", "y"), "2")
		s.mustCreate(key("", "x"), "1")
		s.wantNames("all", s.mustList(resource.ListOptions{}).Items, "x=1", "y=2")
	}},
	{"Selectors", func(t *testing.T, s *subject) {
		s.on(Namespaced())
		s.mustCreate(key("a", "x"), "1", "color", "red")
		s.mustCreate(key("a", "y"), "2", "color", "blue")
		s.mustCreate(key("b", "x"), "3", "color", "red")
		for _, tt := range []struct {
			ns   string
			sel  resource.Selector
			want []string
		}{
			{"", byLabel(t, "color=red"), []string{"a/x=1", "b/x=3"}},
			{"a", byLabel(t, "color=red"), []string{"a/x=1"}},
			{"", byLabel(t, "color!=red"), []string{"a/y=2"}},
			{"", byLabel(t, "!color"), nil},
			{"", byField("metadata.name=x"), []string{"a/x=1", "b/x=3"}},
			{"a", byField("metadata.name=x"), []string{"a/x=1"}},
			{"a", byField("metadata.name=none"), nil},
			{"", byField("metadata.namespace=b"), []string{"b/x=3"}},
		} {
			l := s.mustList(resource.ListOptions{Namespace: tt.ns, Selector: tt.sel})
			s.wantNames(fmt.Sprintf("namespace %q %v %v", tt.ns, tt.sel.Labels, tt.sel.Fields), l.Items, tt.want...)
		}
	}},
	{"LatestSeesEveryWrite", func(t *testing.T, s *subject) {
		s.on(Namespaced())
		for i := range 2 * rounds() {
			made := s.mustCreate(key("a", fmt.Sprintf("x%02d", i)), "1")
			l := s.mustList(resource.ListOptions{})
			if len(l.Items) != i+1 || l.Revision < made.Revision {
				t.Fatalf("list has %d items at %d after write %d at %d", len(l.Items), l.Revision, i+1, made.Revision)
			}
		}
	}},
	{"NotOlderThan", func(t *testing.T, s *subject) {
		s.on(Namespaced())
		made := s.mustCreate(key("a", "x"), "1")
		l := s.mustList(resource.ListOptions{At: resource.At{Freshness: resource.NotOlderThan, Revision: made.Revision}})
		s.wantNames("not older", l.Items, "a/x=1")
		_, err := s.List(s.ctx, resource.ListOptions{At: resource.At{Freshness: resource.NotOlderThan, Revision: made.Revision + 1_000_000}})
		s.wantError("list from the future", err, isTooLarge)
	}},
	{"Exact", func(t *testing.T, s *subject) {
		s.on(Namespaced())
		first := s.mustCreate(key("a", "x"), "1")
		second := s.mustSet(key("a", "x"), "2")
		s.mustCreate(key("a", "y"), "3")
		third := s.mustDelete(key("a", "x"))
		for rev, want := range map[int64][]string{
			first.Revision:  {"a/x=1"},
			second.Revision: {"a/x=2"},
			third.Revision:  {"a/y=3"},
		} {
			l := s.mustList(resource.ListOptions{At: resource.At{Freshness: resource.Exact, Revision: rev}})
			s.wantNames(fmt.Sprint("exactly ", rev), l.Items, want...)
			if l.Revision != rev {
				t.Errorf("exact list of %d says %d", rev, l.Revision)
			}
		}
		_, err := s.List(s.ctx, resource.ListOptions{At: resource.At{Freshness: resource.Exact, Revision: third.Revision + 1_000_000}})
		s.wantError("exact list of the future", err, isTooLarge)
	}},
	{"BadContinue", func(t *testing.T, s *subject) {
		s.on(Namespaced())
		for _, token := range []string{"%%%", "e30", resource.EncodeContinue(5, "../../other/x")} {
			_, err := s.List(s.ctx, resource.ListOptions{Limit: 1, Continue: token})
			s.wantError("list with token "+token, err, apierrors.IsBadRequest)
		}
	}},
}
