package crd

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"portico/internal/testing/await"
)

const byHost = "?fieldSelector=spec.host%3Da.example.org"

// installHosts creates n hosts in v1beta1, every second with the host a.example.org.
func (s *Server) installHosts(t *testing.T, n int) {
	t.Helper()
	for i := range n {
		s.must(t, "POST", hostsBeta, "", hostBody("v1beta1", fmt.Sprintf("h-%d", i), fmt.Sprintf("{address: '%c.example.org:80'}", 'a'+i%2)))
	}
}

// Objects are converted many at a time for a selector by a field of another version, and their
// fields are kept.
func TestConversionsForFieldSelectorsAreBatched(t *testing.T) {
	t.Parallel()
	s, hook := convertingHosts(t)
	const objects = 120
	s.installHosts(t, objects)
	hook.calls.Store(0)
	for range 3 {
		if list := s.must(t, "GET", hostsV1+byHost, "", ""); len(at(list, "items").([]any)) != objects/2 {
			t.Fatalf("got %d objects", len(at(list, "items").([]any)))
		}
	}
	found := 0
	for next := ""; ; {
		page := s.must(t, "GET", hostsV1+byHost+"&limit=25&continue="+next, "", "")
		found += len(at(page, "items").([]any))
		if next, _ = at(page, "metadata", "continue").(string); next == "" {
			break
		}
	}
	if found != objects/2 {
		t.Errorf("got %d objects in pages", found)
	}
	if calls, converted := hook.calls.Load(), hook.objects.Load(); calls != 1 || converted != objects {
		t.Errorf("%d calls for %d objects, want 1 for %d", calls, converted, objects)
	}
	s.must(t, "DELETE", hostsV1+byHost, "", "")
	if left := at(s.must(t, "GET", hostsBeta, "", ""), "items").([]any); len(left) != objects/2 {
		t.Errorf("%d objects are left", len(left))
	}
	if calls := hook.calls.Load(); calls != 1 {
		t.Errorf("%d more calls to delete what was converted before", calls-1)
	}
}

// A read by a field of another version fails while the webhook does, and nothing is deleted by
// fields that are not known.
func TestFieldSelectorsWhileConversionFails(t *testing.T) {
	t.Parallel()
	s, hook := convertingHosts(t)
	const objects = 6
	s.installHosts(t, objects)
	hook.reply(func(w http.ResponseWriter, _ *apiextensionsv1.ConversionReview) { http.Error(w, "out of order", 500) })
	const byOther = "?fieldSelector=spec.host%21%3Da.example.org"
	for _, query := range []string{byHost, byOther, byHost + "&limit=1", byHost + ",metadata.name%3Dh-0"} {
		for _, method := range []string{"GET", "DELETE"} {
			if a := s.send(t, method, hostsV1+query, "", ""); a.code != 500 {
				t.Errorf("%s %s: %d %s", method, query, a.code, a.body)
			}
		}
	}
	if code := s.watchError(t, hostsV1+byHost+"&watch=true"); code != 500 {
		t.Errorf("a watch ends with %d", code)
	}
	s.must(t, "GET", hostsV1+"?fieldSelector=metadata.name%3Dnone", "", "")
	hook.reply(nil)
	if list := s.must(t, "GET", hostsV1+byHost, "", ""); len(at(list, "items").([]any)) != objects/2 {
		t.Errorf("once the webhook works again: %v", list)
	}
}

// watchError returns the code of the Status with which a watch begins.
func (s *Server) watchError(t *testing.T, path string) int32 {
	t.Helper()
	web := httptest.NewServer(http.HandlerFunc(s.asAdmin))
	t.Cleanup(web.Close)
	client := &http.Client{Timeout: await.Patience()}
	res, err := client.Get(web.URL + path)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var event struct {
		Type   string
		Object struct{ Code int32 }
	}
	if err := json.NewDecoder(res.Body).Decode(&event); err != nil || event.Type != "ERROR" {
		t.Fatalf("got %+v, %v", event, err)
	}
	return event.Object.Code
}
