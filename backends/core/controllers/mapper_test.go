package controllers

import (
	"cmp"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientrest "k8s.io/client-go/rest"
)

// roundTrip is a function as an http.RoundTripper.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// A mapper reads discovery again for a kind that it lacks, also when 20 callers look for one, at
// most once in rereadInterval; a reading that takes longer than that is one as well.
func TestMapper(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		kind, reads, takes := "ConfigMap", 0, time.Duration(0)
		mapper, err := NewMapper(&clientrest.Config{Host: "http://gateway", Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
			body := `{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","items":[]}`
			if r.URL.Path == "/api" {
				reads++
				time.Sleep(takes)
				body = `{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","items":[{"metadata":{},"versions":[{"version":"v1","resources":[` +
					`{"resource":"things","scope":"Namespaced","verbs":["get"],"responseKind":{"group":"","version":"v1","kind":"` + kind + `"}}]}]}]}`
			}
			return &http.Response{
				StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(body)),
				Header: http.Header{"Content-Type": {"application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"}},
			}, nil
		})})
		if err != nil {
			t.Fatal(err)
		}
		for _, step := range []struct {
			name    string
			after   time.Duration // since the last step
			takes   time.Duration // a reading
			kind    string        // in discovery from now on
			asked   string
			callers int
			found   bool
			reads   int // so far
		}{
			{name: "a known kind", asked: "ConfigMap", callers: 20, found: true, reads: 1},
			{name: "an absent kind, right after a reading", asked: "Secret", callers: 20, reads: 1},
			{name: "a new kind, within the interval", after: rereadInterval - time.Second, kind: "Secret", asked: "Secret", callers: 1, reads: 1},
			{name: "a new kind, after the interval", after: 2 * time.Second, asked: "Secret", callers: 20, found: true, reads: 2},
			{name: "a known kind, later", after: time.Hour, asked: "Secret", callers: 1, found: true, reads: 2},
			{name: "an absent kind", asked: "Pod", callers: 20, reads: 3},
			{name: "an absent kind, read slowly", after: time.Hour, takes: 2 * rereadInterval, asked: "Pod", callers: 1, reads: 4},
		} {
			time.Sleep(step.after)
			takes, kind = step.takes, cmp.Or(step.kind, kind)
			var wg sync.WaitGroup
			for range step.callers {
				wg.Go(func() {
					_, err := mapper.RESTMapping(schema.GroupKind{Kind: step.asked}, "v1")
					if err != nil && !meta.IsNoMatchError(err) || (err == nil) != step.found && step.callers == 1 {
						t.Errorf("%s: error %v", step.name, err)
					}
				})
			}
			wg.Wait()
			if _, err := mapper.RESTMapping(schema.GroupKind{Kind: step.asked}, "v1"); (err == nil) != step.found || reads != step.reads {
				t.Errorf("%s: error %v after %d readings, want found %v after %d", step.name, err, reads, step.found, step.reads)
			}
		}
	})
}
