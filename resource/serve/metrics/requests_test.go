package metrics

import (
	"fmt"
	"net/http/httptest"
	"testing"

	"portico/resource"
)

// User names other than a few well-known ones share two label values.
func TestUserLabel(t *testing.T) {
	for name, want := range map[string]string{"admin": "admin", "kubelet": "kubelet", "jane@example.com": "email_id", "jane": "other", "": "other"} {
		if got := userLabel(name); got != want {
			t.Errorf("%q has the label %s, want %s", name, got, want)
		}
	}
}

// A client that invents names, verbs and parameters makes a bounded number of series, even
// if the server accepts all of them.
func TestSeriesAreBounded(t *testing.T) {
	m := New()
	send := func(i int) {
		path := fmt.Sprintf("/apis/g%d/v%d/namespaces/n%d/r%d/o%d/s%d", i, i, i, i, i, i)
		method := [...]string{"GET", fmt.Sprintf("VERB%d", i), "POST", "GET"}[i%4]
		r := httptest.NewRequest(method, path+fmt.Sprintf([...]string{"?watch=%d", "?x=%d", "?dryRun=%d", "?y=%d"}[i%4], i), nil)
		r.Header.Set("Content-Type", fmt.Sprint(i))
		a := resource.ParseAction(r)
		switch i % 4 {
		case 0:
			m.LongRunning(r, a)()
		case 1:
			m.Aborted(r, a)
		case 2:
			m.Terminated(r, a, 504)
		}
		m.Answered(r, a, Response{Code: 200})
	}
	// count returns the number of series, and of those of durations.
	count := func() (all, durations int) {
		families, err := m.Registry().Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			all += len(f.GetMetric())
			if f.GetName() == "apiserver_request_duration_seconds" {
				durations = len(f.GetMetric())
			}
		}
		return all, durations
	}
	for i := range 2 * maxSeries {
		send(i)
	}
	before, n := count()
	if n < maxSeries || n > maxSeries+16 { // those without a resource come on top
		t.Errorf("%d series, want about %d", n, maxSeries)
	}
	for i := range 400 {
		send(2*maxSeries + i)
	}
	if after, _ := count(); after != before {
		t.Errorf("%d series became %d", before, after)
	}
}

// A resource that is no longer served leaves no series, also when a request for it ends later.
func TestSeriesOfAForgottenResource(t *testing.T) {
	m := New()
	exists := true
	m.SetExists(func(_, resource string) bool { return exists || resource == "others" })
	send := func(name string) (end func()) {
		r := httptest.NewRequest("GET", "/apis/example.com/v1/"+name+"?watch=1", nil)
		a := resource.ParseAction(r)
		done := m.LongRunning(r, a)
		for _, code := range []int{200, 404} {
			m.Answered(r, a, Response{Code: code, Component: "webhook"})
			m.Answered(r, a, Response{Code: code})
		}
		m.Terminated(r, a, 504)
		m.Aborted(r, a)
		return func() { done(); m.Answered(r, a, Response{Code: 200}); m.Aborted(r, a) }
	}
	named := func(name string) (n int) {
		families, err := m.Registry().Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			for _, m := range f.GetMetric() {
				for _, l := range m.GetLabel() {
					if l.GetName() == "resource" && l.GetValue() == name {
						n++
					}
				}
			}
		}
		return n
	}
	ended := send("things")
	send("others")()
	others := named("others")
	if named("things") != others || others < 8 {
		t.Fatalf("%d and %d series", named("things"), others)
	}
	exists = false
	m.Forget(&resource.Info{Group: "example.com", Resource: "things"})
	ended()
	if named("things") != 0 || named("others") != others {
		t.Errorf("%d series are left, and %d of %d of another resource", named("things"), named("others"), others)
	}
}

func BenchmarkAnswered(b *testing.B) {
	m := New()
	r := httptest.NewRequest("GET", "/api/v1/namespaces/ns/pods/p", nil)
	a := resource.ParseAction(r)
	b.ReportAllocs()
	for b.Loop() {
		m.Answered(r, a, Response{Code: 200, Took: 1})
	}
}
