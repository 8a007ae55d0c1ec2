package storetest

import (
	"fmt"
	"testing"

	"portico/resource"
)

// pages reads a whole list page by page and checks each page.
func (s *subject) pages(opts resource.ListOptions) []*resource.Object {
	s.Helper()
	var out []*resource.Object
	var rev int64
	for {
		l := s.mustList(opts)
		if rev == 0 {
			rev = l.Revision
		}
		switch {
		case l.Revision != rev:
			s.Fatalf("page at revision %d of a list at %d", l.Revision, rev)
		case int64(len(l.Items)) > opts.Limit:
			s.Fatalf("page of %d items, limit is %d", len(l.Items), opts.Limit)
		case l.Continue != "" && int64(len(l.Items)) < opts.Limit:
			s.Fatalf("page of %d items before the end, limit is %d", len(l.Items), opts.Limit)
		case l.Remaining != nil && !opts.Selector.Empty():
			s.Error("remaining items are counted with a selector")
		}
		out = append(out, l.Items...)
		if l.Continue == "" {
			return out
		}
		opts.Continue = l.Continue
	}
}

// fill creates n objects in namespace a; every third one is red.
func (s *subject) fill(n int) (all, red []string) {
	for i := range n {
		k, color := key("a", fmt.Sprintf("x%04d", i)), "blue"
		if i%3 == 0 {
			color = "red"
			red = append(red, k.String()+"=1")
		}
		s.mustCreate(k, "1", "color", color)
		all = append(all, k.String()+"=1")
	}
	return all, red
}

var pageTests = []test{
	{"Everything", func(t *testing.T, s *subject) {
		s.on(Namespaced())
		all, _ := s.fill(10)
		for _, limit := range []int64{1, 3, 5, 9, 10, 11} {
			s.wantNames(fmt.Sprint("limit ", limit), s.pages(resource.ListOptions{Limit: limit}), all...)
		}
		s.wantNames("no limit", s.mustList(resource.ListOptions{}).Items, all...)
	}},
	{"InOneNamespace", func(t *testing.T, s *subject) {
		s.on(Namespaced())
		all, _ := s.fill(5)
		s.mustCreate(key("ab", "x"), "1")
		s.mustCreate(key("a-0", "x"), "1")
		s.wantNames("namespace a", s.pages(resource.ListOptions{Namespace: "a", Limit: 2}), all...)
	}},
	{"Remaining", func(t *testing.T, s *subject) {
		s.on(Namespaced())
		s.fill(10)
		first := s.mustList(resource.ListOptions{Limit: 4})
		second := s.mustList(resource.ListOptions{Limit: 4, Continue: first.Continue})
		third := s.mustList(resource.ListOptions{Limit: 4, Continue: second.Continue})
		for i, l := range []*resource.List{first, second} {
			if want := int64(6 - 4*i); l.Remaining == nil || *l.Remaining != want {
				t.Errorf("page %d: remaining is %v, want %d", i+1, l.Remaining, want)
			}
		}
		if third.Continue != "" || len(third.Items) != 2 {
			t.Errorf("last page is %+v", third)
		}
	}},
	{"WithSelector", func(t *testing.T, s *subject) {
		s.on(Namespaced())
		_, red := s.fill(40)
		for _, limit := range []int64{1, 4, 100} {
			got := s.pages(resource.ListOptions{Limit: limit, Selector: byLabel(t, "color=red")})
			s.wantNames(fmt.Sprint("limit ", limit), got, red...)
		}
		if got := s.pages(resource.ListOptions{Limit: 3, Selector: byLabel(t, "color=green")}); len(got) != 0 {
			t.Errorf("nothing is green, but %q", s.names(got))
		}
	}},
	{"AcrossChanges", func(t *testing.T, s *subject) {
		s.on(Namespaced())
		all, _ := s.fill(6)
		first := s.mustList(resource.ListOptions{Limit: 2})
		s.mustSet(key("a", "x0003"), "changed")
		s.mustDelete(key("a", "x0004"))
		s.mustCreate(key("a", "x00025"), "new")
		got := append([]*resource.Object{}, first.Items...)
		opts := resource.ListOptions{Limit: 2, Continue: first.Continue}
		for opts.Continue != "" {
			l := s.mustList(opts)
			if l.Revision != first.Revision {
				t.Errorf("page at %d of a list at %d", l.Revision, first.Revision)
			}
			got, opts.Continue = append(got, l.Items...), l.Continue
		}
		s.wantNames("pages of the past", got, all...)
		s.wantNames("the present", s.mustList(resource.ListOptions{}).Items,
			"a/x0000=1", "a/x0001=1", "a/x0002=1", "a/x00025=new", "a/x0003=changed", "a/x0005=1")
	}},
	{"ExactWithLimit", func(t *testing.T, s *subject) {
		s.on(Namespaced())
		all, _ := s.fill(5)
		at := s.mustList(resource.ListOptions{}).Revision
		s.mustDelete(key("a", "x0002"))
		got := s.pages(resource.ListOptions{Limit: 2, At: resource.At{Freshness: resource.Exact, Revision: at}})
		s.wantNames("exact pages", got, all...)
	}},
	{"Inconsistent", func(t *testing.T, s *subject) {
		s.on(Namespaced())
		s.fill(4)
		s.mustSet(key("a", "x0002"), "changed")
		token := resource.EncodeContinue(resource.InconsistentRevision, "a/x0001")
		l := s.mustList(resource.ListOptions{Limit: 1, Continue: token})
		s.wantNames("page", l.Items, "a/x0002=changed")
		s.mustSet(key("a", "x0003"), "later")
		rest := s.mustList(resource.ListOptions{Limit: 5, Continue: l.Continue})
		s.wantNames("next page", rest.Items, "a/x0003=1")
		if rest.Revision != l.Revision {
			t.Errorf("next page is at %d, not %d", rest.Revision, l.Revision)
		}
	}},
}
