package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apireg "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico/apiservice"
)

// stores answers for a gateway that stores whatever it is sent, and takes down
// what was written.
type stores struct {
	objects map[string]string
	writes  []string
	bodies  map[string][]byte // what was written last, by path
	// faster has the first PUT of an object answered with that status, by path.
	faster map[string]int
}

func (s *stores) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if r.Method != http.MethodGet {
		s.writes = append(s.writes, r.Method+" "+r.URL.Path)
		if code := s.faster[r.URL.Path]; code != 0 && r.Method == http.MethodPut {
			delete(s.faster, r.URL.Path)
			reason := metav1.StatusReasonConflict
			if code == http.StatusNotFound {
				reason = metav1.StatusReasonNotFound
				delete(s.objects, r.URL.Path)
			}
			w.WriteHeader(code)
			_ = json.NewEncoder(w).Encode(metav1.Status{Status: metav1.StatusFailure, Reason: reason, Code: int32(code)})
			return
		}
		if s.bodies == nil {
			s.bodies = map[string][]byte{}
		}
		s.bodies[r.URL.Path], _ = io.ReadAll(r.Body)
		_, _ = w.Write([]byte("{}"))
		return
	}
	o, ok := s.objects[r.URL.Path]
	if !ok && r.URL.Path == apiServicesPath {
		o, ok = `{"items":[]}`, true
	}
	if ok {
		_, _ = w.Write([]byte(o))
		return
	}
	w.WriteHeader(http.StatusNotFound)
	_ = json.NewEncoder(w).Encode(metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure,
		Reason: metav1.StatusReasonNotFound, Code: http.StatusNotFound, Details: &metav1.StatusDetails{Name: "x"},
	})
}

// What leads to a Backend that is there is written before the Backend, of which
// less may be asked; and one that the gateway starts with is left alone.
func TestRegisterWrites(t *testing.T) {
	const (
		automanaged = `{"metadata":{"name":"x","labels":{"` + apiservice.AutomanagedLabel + `":"`
		toX         = `"},"annotations":{"` + apiservice.BackendAnnotation + `":"x"}},"spec":{"group":"g","version":"v1"}}`
		apiService  = apiServicesPath + "/v1.g"
	)
	for _, tc := range []struct {
		name    string
		objects map[string]string
		writes  string
		err     string
	}{
		{"a new one", nil, "POST " + backendsPath + ", POST " + apiServicesPath, ""},
		{"one that is there", map[string]string{
			backendPath("x"): `{"metadata":{"name":"x"},"spec":{"autoRegister":{"groups":["g"]}}}`, apiService: automanaged + apiservice.Managed + toX,
		}, "PUT " + apiService + ", PUT " + backendPath("x"), ""},
		{"one of the gateway's own priorities", map[string]string{
			backendPath("x"): `{"metadata":{"name":"x"},"spec":{"autoRegister":{"groups":["g"]}}}`,
			apiService:       automanaged + apiservice.Managed + strings.TrimSuffix(toX, "}}") + `,"groupPriorityMinimum":1000,"versionPriority":15}}`,
		}, "PUT " + apiService + ", PUT " + backendPath("x"), ""},
		{"of the gateway", map[string]string{backendPath("x"): automanaged + apiservice.OnStart + `"}}}`},
			"", "kubectl label backend x " + apiservice.AutomanagedLabel + "-"},
		{"of another", map[string]string{apiService: `{"metadata":{"annotations":{"` + apiservice.BackendAnnotation + `":"y"}}}`}, "", "answers for it already"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			gateway := &stores{objects: tc.objects}
			front := httptest.NewServer(gateway)
			defer front.Close()
			c := &gatewayClient{host: front.URL, timeout: time.Minute, transport: http.DefaultTransport}
			r := registration{name: "x", urls: []string{"https://h:1"}, groups: []string{"g"}, versions: []string{"v1"}}
			if err := r.complete(); err != nil {
				t.Fatal(err)
			}
			err := c.register(t.Context(), &r, new(bytes.Buffer))
			if (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
				t.Errorf("got %v, want %q", err, tc.err)
			}
			if got := strings.Join(gateway.writes, ", "); got != tc.writes {
				t.Errorf("wrote %q, want %q", got, tc.writes)
			}
		})
	}
}

// APIServices that this command made before, and that are not asked for any more, are
// left to the gateway. What is of anybody else stays.
func TestRegisterGivesBack(t *testing.T) {
	made := func(name, backend, manager string, more ...string) string {
		return `{"metadata":{"name":"` + name + `","annotations":{"` + apiservice.BackendAnnotation + `":"` + backend + `"},"managedFields":[{"manager":"` + manager +
			`","operation":"Update"},{"manager":"gateway","operation":"Update","subresource":"status"}` + strings.Join(more, "") + `]},"spec":{"group":"g","version":"v1"}}`
	}
	objects := map[string]string{backendPath("x"): `{"metadata":{"name":"x"},"spec":{"endpoints":[{"url":"https://h:1"}]}}`}
	var items []string
	for _, o := range []struct{ name, text string }{
		{"v1.g", made("v1.g", "x", userAgent)}, {"v2.g", made("v2.g", "x", userAgent)}, {"v1.other", made("v1.other", "y", userAgent)},
		{"v1.applied", made("v1.applied", "x", "kubectl")},
		{"v1.edited", made("v1.edited", "x", userAgent, `,{"manager":"kubectl-edit","operation":"Update"}`)},
	} {
		objects[apiServicesPath+"/"+o.name] = o.text
		items = append(items, o.text)
	}
	objects[apiServicesPath] = `{"items":[` + strings.Join(items, ",") + `]}`
	gateway := &stores{objects: objects}
	front := httptest.NewServer(gateway)
	defer front.Close()
	c := &gatewayClient{host: front.URL, timeout: time.Minute, transport: http.DefaultTransport}
	for flags, want := range map[string]string{"--group=g --version=v2": "v1.g", "--all-groups": "v1.g v2.g"} {
		// The gateway has just written its condition.
		gateway.bodies, gateway.faster = nil, map[string]int{apiServicesPath + "/v1.g": http.StatusConflict}
		var out bytes.Buffer
		if err := c.register(t.Context(), parsedRegistration(t, "--url=https://h:1 "+flags), &out); err != nil {
			t.Fatal(err)
		}
		var back []string
		for path, body := range gateway.bodies {
			var a apireg.APIService
			if err := json.Unmarshal(body, &a); err != nil {
				t.Fatal(err)
			}
			if name, ok := strings.CutPrefix(path, apiServicesPath+"/"); ok && apiservice.IsAutomanaged(&a) {
				back = append(back, name)
			}
		}
		slices.Sort(back)
		if got := strings.Join(back, " "); got != want || strings.Count(out.String(), "left to the gateway") != len(back) {
			t.Errorf("%s: gave back %q, want %q; said\n%s", flags, got, want, out.String())
		}
	}
}

// What is removed between being read and written is made.
func TestRegisterMakesWhatHasGone(t *testing.T) {
	const at = apiServicesPath + "/v1.g"
	gateway := &stores{faster: map[string]int{at: http.StatusNotFound}, objects: map[string]string{
		backendPath("x"): `{"metadata":{"name":"x"},"spec":{"endpoints":[{"url":"https://h:1"}]}}`,
		at:               `{"metadata":{"name":"v1.g","labels":{"` + apiservice.AutomanagedLabel + `":"` + apiservice.Managed + `"},"annotations":{"` + apiservice.BackendAnnotation + `":"x"}},"spec":{"group":"g","version":"v1"}}`,
	}}
	front := httptest.NewServer(gateway)
	defer front.Close()
	c := &gatewayClient{host: front.URL, timeout: time.Minute, transport: http.DefaultTransport}
	var out bytes.Buffer
	if err := c.register(t.Context(), parsedRegistration(t, "--url=https://h:1 --group=g --version=v1"), &out); err != nil {
		t.Fatal(err)
	}
	if want := []string{"PUT " + at, "POST " + apiServicesPath}; !slices.Equal(gateway.writes[:2], want) {
		t.Errorf("wrote %q, want first %q", gateway.writes, want)
	}
}

// The priorities of an APIService that is there stay, unless a flag says.
func TestRegisterKeepsPriorities(t *testing.T) {
	const at = apiServicesPath + "/v1.g.x"
	for flags, want := range map[string]string{
		"": "", "--group-priority=7": "", "--group-priority=1000": "1000 8", "--version-priority=15": "7 15",
	} {
		gateway := &stores{objects: map[string]string{
			backendPath("x"): `{"metadata":{"name":"x"},"spec":{"endpoints":[{"url":"https://h:1"}]}}`,
			at: `{"metadata":{"name":"v1.g.x","annotations":{"` + apiservice.BackendAnnotation + `":"x"}},` +
				`"spec":{"group":"g.x","version":"v1","groupPriorityMinimum":7,"versionPriority":8}}`,
		}}
		front := httptest.NewServer(gateway)
		c := &gatewayClient{host: front.URL, timeout: time.Minute, transport: http.DefaultTransport}
		err := c.register(t.Context(), parsedRegistration(t, "--url=https://h:1 --group=g.x --version=v1 "+flags), new(bytes.Buffer))
		front.Close()
		var wrote apireg.APIService
		if err == nil && gateway.bodies[at] != nil {
			err = json.Unmarshal(gateway.bodies[at], &wrote)
		}
		got := ""
		if wrote.Name != "" {
			got = fmt.Sprint(wrote.Spec.GroupPriorityMinimum, " ", wrote.Spec.VersionPriority)
		}
		if err != nil || got != want {
			t.Errorf("%s: wrote %q (%v), want %q", flags, got, err, want)
		}
	}
}

// What gateways start with is not deleted by accident: they would make it again.
func TestUnregister(t *testing.T) {
	started := map[string]string{backendPath("core"): `{"metadata":{"name":"core","labels":{"` + apiservice.AutomanagedLabel + `":"` + apiservice.OnStart + `"}}}`}
	for _, tc := range []struct {
		name    string
		force   bool
		objects map[string]string
		writes  string
		err     string
	}{
		{"a user's", false, map[string]string{backendPath("core"): `{"metadata":{"name":"core"}}`}, "DELETE " + backendPath("core"), ""},
		{"one that gateways start with", false, started, "", "repeat this with --force"},
		{"by force", true, started, "DELETE " + backendPath("core"), ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			objects := maps.Clone(tc.objects)
			objects[apiServicesPath] = `{"items":[]}`
			gateway := &stores{objects: objects}
			front := httptest.NewServer(gateway)
			defer front.Close()
			c := &gatewayClient{host: front.URL, timeout: time.Minute, transport: http.DefaultTransport}
			err := c.unregister(t.Context(), "core", tc.force, new(bytes.Buffer))
			if (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
				t.Errorf("got %v, want %q", err, tc.err)
			}
			if got := strings.Join(gateway.writes, ", "); got != tc.writes {
				t.Errorf("wrote %q, want %q", got, tc.writes)
			}
		})
	}
}
