package conversion

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"portico/cmd/e2e"
)

// Every verb works in every version, whichever is stored, and the result is right in all of them.
func TestEveryVersion(t *testing.T) {
	t.Parallel()
	up, hook := e2e.SharedInstallation(t), newWebhook(t)
	hook.StartTLS()
	s := define(t, up, "versions.example.com", hook)
	for i, stored := range []string{"v1beta1", "v1", "v1alpha1"} {
		s.store(t, stored)
		ctx, end := context.WithCancel(t.Context())
		events := map[string]<-chan host{}
		for _, v := range versions {
			events[v] = s.watch(t, ctx, v)
		}
		for _, v := range versions {
			name := "of-" + v + "-while-" + stored
			for _, want := range s.writes(t, v, name) {
				for _, watched := range versions {
					if got := <-events[watched]; got != want {
						t.Errorf("%s is stored, written in %s, watched in %s: got %v, want %v", stored, v, watched, got, want)
					}
				}
			}
		}
		end()
		s.lists(t, (i+1)*len(versions))
	}
	s.migrate(t)
	s.must(t, http.MethodDelete, definitions+"/hosts."+s.group, "")
	e2e.Eventually(t, "the definition is gone", func() error {
		if code, body := up.Do(t, http.MethodGet, definitions+"/hosts."+s.group, ""); code != http.StatusNotFound {
			return fmt.Errorf("%d %s", code, body)
		}
		return nil
	})
	t.Logf("%d calls for %d objects", hook.calls.Load(), hook.objects.Load())
}

// writes writes an object in a version by each verb, checks it in all versions after each write,
// and returns its states.
func (s *hosts) writes(t *testing.T, version, name string) (states []host) {
	t.Helper()
	path := s.path(version, name)
	did := func(what string, want host) {
		t.Helper()
		states = append(states, want)
		s.expect(t, what+" in "+version, name, want)
	}
	h := host{"a.example.org", 80, 1}
	s.must(t, http.MethodPost, s.path(version, ""), s.body(version, name, h))
	did("POST", h)

	var put map[string]any
	if err := json.Unmarshal([]byte(s.must(t, http.MethodGet, path, "")), &put); err != nil {
		t.Fatal(err)
	}
	h.port = 81
	put["spec"] = json.RawMessage(h.spec(version))
	data, err := json.Marshal(put)
	if err != nil {
		t.Fatal(err)
	}
	s.must(t, http.MethodPut, path, string(data))
	did("PUT", h)

	h.port = 82
	s.must(t, http.MethodPatch, path, `{"spec":`+h.spec(version)+`}`, "Content-Type: application/merge-patch+json")
	did("merge patch", h)

	h.name = "b.example.org"
	s.must(t, http.MethodPatch, path+"?fieldManager=m&force=true", s.body(version, name, h), "Content-Type: application/apply-patch+yaml")
	did("apply", h)

	h.replicas = 3
	s.must(t, http.MethodPatch, path+"/scale", `{"spec":{"replicas":3}}`, "Content-Type: application/merge-patch+json")
	did("scale", h)

	s.must(t, http.MethodPatch, path+"/status", `{"status":{"replicas":2}}`, "Content-Type: application/merge-patch+json")
	did("status", h)
	for _, v := range versions {
		if scale := s.must(t, http.MethodGet, s.path(v, name)+"/scale", ""); !strings.Contains(scale, `"spec":{"replicas":3},"status":{"replicas":2}`) {
			t.Errorf("the scale in %s: %s", v, scale)
		}
	}
	return states
}

// lists checks that a list has all objects in every version, whole and in pages, and by a field.
func (s *hosts) lists(t *testing.T, want int) {
	t.Helper()
	for _, v := range versions {
		for _, limit := range []int{0, 2} {
			found, next := 0, ""
			for more := true; more; more = next != "" {
				var page struct {
					Metadata struct{ Continue string }
					Items    []json.RawMessage
				}
				if err := json.Unmarshal([]byte(s.must(t, http.MethodGet, fmt.Sprintf("%s?limit=%d&continue=%s", s.path(v, ""), limit, next), "")), &page); err != nil {
					t.Fatal(err)
				}
				for _, o := range page.Items {
					if got, err := hostOf(o); err != nil || got != (host{"b.example.org", 82, 3}) || !strings.Contains(string(o), s.group+"/"+v) {
						t.Errorf("a list in %s with limit %d: %v %s", v, limit, err, o)
					}
				}
				found, next = found+len(page.Items), page.Metadata.Continue
			}
			if found != want {
				t.Errorf("a list in %s with limit %d has %d objects, want %d", v, limit, found, want)
			}
		}
	}
	list := s.must(t, http.MethodGet, s.path("v1", "")+"?fieldSelector=spec.host%3Db.example.org", "")
	if found := strings.Count(list, `"kind":"Host"`); found != want {
		t.Errorf("%d objects by a field, want %d", found, want)
	}
}

// watch sends the hosts of the events from now on of a watch in a version.
func (s *hosts) watch(t *testing.T, ctx context.Context, version string) <-chan host {
	t.Helper()
	var list struct {
		Metadata struct{ ResourceVersion string }
	}
	if err := json.Unmarshal([]byte(s.must(t, http.MethodGet, s.path(version, "")+"?limit=1", "")), &list); err != nil {
		t.Fatal(err)
	}
	url := s.Endpoint + s.path(version, "") + "?watch=true&resourceVersion=" + list.Metadata.ResourceVersion
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	client := *s.client
	client.Timeout = 0
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	all := make(chan host, 1000)
	go func() {
		defer close(all)
		defer resp.Body.Close()
		lines := bufio.NewReader(resp.Body)
		for {
			line, err := lines.ReadBytes('\n')
			if err != nil {
				return
			}
			var event struct{ Object json.RawMessage }
			h := host{name: string(line)} // in the message of a test that fails
			if json.Unmarshal(line, &event) == nil {
				h, _ = hostOf(event.Object)
			}
			all <- h
		}
	}()
	return all
}

// store makes a version the stored one, and waits until it is.
func (s *hosts) store(t *testing.T, version string) {
	t.Helper()
	var patch []string
	for i, v := range versions {
		patch = append(patch, fmt.Sprintf(`{"op":"replace","path":"/spec/versions/%d/storage","value":%t}`, i, v == version))
	}
	before := s.storageHash(t)
	s.must(t, http.MethodPatch, definitions+"/hosts."+s.group, "["+strings.Join(patch, ",")+"]", "Content-Type: application/json-patch+json")
	if version == "v1beta1" {
		return // as created
	}
	e2e.Eventually(t, version+" is stored", func() error {
		if s.storageHash(t) == before {
			return errors.New("the version is another")
		}
		return nil
	})
}

// storageHash returns the hash of the stored version, of the discovery document.
func (s *hosts) storageHash(t *testing.T) string {
	t.Helper()
	var list struct {
		Resources []struct{ Name, StorageVersionHash string }
	}
	if err := json.Unmarshal([]byte(s.must(t, http.MethodGet, "/apis/"+s.group+"/v1", "")), &list); err != nil {
		t.Fatal(err)
	}
	for _, r := range list.Resources {
		if r.Name == "hosts" && r.StorageVersionHash != "" {
			return r.StorageVersionHash
		}
	}
	t.Fatalf("hosts have no hash of the stored version: %v", list)
	return ""
}

// migrate writes every object, so that the last version alone is stored, and removes the others.
func (s *hosts) migrate(t *testing.T) {
	t.Helper()
	var list struct {
		Items []struct{ Metadata struct{ Name string } }
	}
	if err := json.Unmarshal([]byte(s.must(t, http.MethodGet, s.path("v1", ""), "")), &list); err != nil {
		t.Fatal(err)
	}
	for _, o := range list.Items {
		s.must(t, http.MethodPatch, s.path("v1", o.Metadata.Name), `{}`, "Content-Type: application/merge-patch+json")
	}
	path := definitions + "/hosts." + s.group
	if d := s.must(t, http.MethodGet, path, ""); !strings.Contains(d, `"storedVersions":["v1beta1","v1","v1alpha1"]`) {
		t.Errorf("storedVersions: %s", d)
	}
	s.must(t, http.MethodPatch, path+"/status", `{"status":{"storedVersions":["v1alpha1"]}}`, "Content-Type: application/merge-patch+json")
	s.must(t, http.MethodPatch, path, `[{"op":"remove","path":"/spec/versions/1"}]`, "Content-Type: application/json-patch+json")
	e2e.Eventually(t, "v1beta1 is not served", func() error {
		if code, body := s.Do(t, http.MethodGet, s.path("v1beta1", ""), ""); code != http.StatusNotFound {
			return fmt.Errorf("%d %s", code, body)
		}
		return nil
	})
	for _, o := range list.Items {
		object := s.must(t, http.MethodGet, s.path("v1", o.Metadata.Name), "")
		if got, err := hostOf([]byte(object)); err != nil || got != (host{"b.example.org", 82, 3}) {
			t.Errorf("after the removal of a version: %v %s", err, object)
		}
	}
}
