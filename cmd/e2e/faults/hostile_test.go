package faults

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico/cmd/e2e"
	"portico/resource"
	"portico/resource/etcd"
)

// hostileSeeds is how many seeds the test runs; the environment variable
// PORTICO_TEST_HOSTILE_SEEDS asks for more.
func hostileSeeds(t *testing.T) int {
	t.Helper()
	text := os.Getenv("PORTICO_TEST_HOSTILE_SEEDS")
	if text == "" {
		return 1
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("PORTICO_TEST_HOSTILE_SEEDS: %v", err)
	}
	return n
}

// Whatever definitions and registrations are stored, also some that the servers would refuse,
// the installation starts, serves the APIs of others, keeps the preferred versions of the groups
// of Kubernetes, and can delete everything that is stored.
func TestHostileDefinitionsAndRegistrations(t *testing.T) {
	t.Parallel()
	for seed := range hostileSeeds(t) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			dir, began := t.TempDir(), time.Now()
			up := e2e.Install(t, dir)
			h := &hostile{rnd: rand.New(rand.NewPCG(uint64(seed), 2)), paths: map[string]bool{}}
			h.up = up
			before := h.preferred(t)
			for range 12 {
				h.define(t)
			}
			for range 8 {
				h.register(t)
				h.standIn(t)
			}
			wide := 1 // 100 group/versions
			if hostileSeeds(t) > 1 {
				wide = 170 // more than the CRD server takes itself
			}
			h.plant(t, up.Etcd, wide)
			t.Log("stored", time.Since(began))
			if err := up.Stop(); err != nil {
				t.Fatal(err)
			}
			up = e2e.Install(t, dir)
			h.up = up
			t.Log("started again", time.Since(began))
			h.demand(t, up, before)
			t.Log("done", time.Since(began))
		})
	}
}

// hostile stores objects that are meant to do harm.
type hostile struct {
	rnd *rand.Rand
	up  *e2e.Installation
	// paths are those of the stored objects.
	paths map[string]bool
	n     int
}

// remove deletes an object.
func (h *hostile) remove(t *testing.T, path string) {
	t.Helper()
	code, answer := h.ask(t, http.MethodDelete, path, nil)
	if code != http.StatusOK && code != http.StatusNotFound {
		t.Errorf("delete %s: %d %.300s", path, code, answer)
	}
}

func (h *hostile) ask(t *testing.T, method, path string, body any) (code int, answer string) {
	t.Helper()
	data, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	return h.up.Do(t, method, path, string(data))
}

// store creates an object, which may be refused.
func (h *hostile) store(t *testing.T, collection, name string, object any) {
	t.Helper()
	switch code, answer := h.ask(t, http.MethodPost, collection, object); code {
	case http.StatusCreated:
		h.paths[collection+"/"+name] = true
	case http.StatusForbidden, http.StatusConflict, http.StatusUnprocessableEntity, http.StatusRequestEntityTooLarge:
	default:
		t.Errorf("create %s: %d %.300s", name, code, answer)
	}
}

func pick[T any](h *hostile, from ...T) T { return from[h.rnd.IntN(len(from))] }

const (
	hostileDefinitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	hostileServices    = "/apis/apiregistration.k8s.io/v1/apiservices"
	hostileBackends    = "/apis/gateway.portico.dev/v1alpha1/backends"
)

func (h *hostile) group() string {
	h.n++
	return pick(h, fmt.Sprintf("h%d.example.com", h.n), fmt.Sprintf("h%d.example.com", h.n), "shared.example.com", "apiextensions.k8s.io", "networking.k8s.io",
		"coordination.k8s.io", "events.k8s.io", "apps", "rbac.authorization.k8s.io", "apiregistration.k8s.io", "gateway.portico.dev", "0.k8s.io")
}

func (h *hostile) define(t *testing.T) {
	t.Helper()
	plural := pick(h, "widgets", "customresourcedefinitions", "leases", "events", "apiservices", "ingresses", fmt.Sprint("things", h.n))
	crd := definitionOf(plural, h.group(), pick(h, 1, 1, 2, 60, 100, 101, 5000), pick(h, 0, 1, 100, 101), pick(h, 0, 1, 100, 20000), pick(h, "v", "v9", "v1beta"))
	h.store(t, hostileDefinitions, crd["metadata"].(map[string]any)["name"].(string), crd)
}

// definitionOf returns a definition with so many versions, short names and categories.
func definitionOf(plural, group string, versions, shortNames, categories int, prefix string) map[string]any {
	list := func(n int, prefix string) []string {
		out := make([]string, n)
		for i := range out {
			out[i] = prefix + strconv.Itoa(i+1)
		}
		return out
	}
	var all []any
	for i, name := range list(versions, prefix) {
		all = append(all, map[string]any{
			"name": name, "served": true, "storage": i == 0, "schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object"}},
		})
	}
	return map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": plural + "." + group, "annotations": map[string]any{"api-approved.kubernetes.io": "unapproved, a test"}},
		"spec": map[string]any{
			"group": group, "scope": "Namespaced", "versions": all,
			"names": map[string]any{
				"plural": plural, "singular": plural, "kind": "K" + plural, "listKind": "K" + plural + "List",
				"shortNames": list(shortNames, "s"+plural), "categories": list(categories, "c"),
			},
		},
	}
}

// register stores an APIService without a server, or with one that does not serve it.
func (h *hostile) register(t *testing.T) {
	t.Helper()
	group, version := h.group(), pick(h, "v1", "v9", "v2beta1")
	spec := map[string]any{"group": group, "version": version, "groupPriorityMinimum": pick(h, 1, 1000, 20000), "versionPriority": pick(h, 1, 15, 1000)}
	metadata := map[string]any{"name": version + "." + group}
	switch pick(h, 1, 2, 3) {
	case 1:
		spec["service"], spec["insecureSkipTLSVerify"] = map[string]any{"namespace": "nowhere", "name": "nothing"}, true
	case 2:
		metadata["annotations"] = map[string]any{"gateway.portico.dev/backend": pick(h, "crd", "core", "missing")}
	case 3:
		metadata["labels"] = map[string]any{"kube-aggregator.kubernetes.io/automanaged": pick(h, "true", "onstart")}
	}
	h.store(t, hostileServices, version+"."+group, map[string]any{
		"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": metadata, "spec": spec,
	})
}

// standIn stores a Backend for a server with excessive discovery documents, or those of another server, or none.
func (h *hostile) standIn(t *testing.T) {
	t.Helper()
	h.n++
	name, url := fmt.Sprint("hostile", h.n), "https://127.0.0.1:1"
	if pick(h, true, true, false) {
		server := httptest.NewTLSServer(talker(pick(h, "stream", "groups", "builtin")))
		t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
		url = server.URL
	}
	h.store(t, hostileBackends, name, map[string]any{
		"apiVersion": "gateway.portico.dev/v1alpha1", "kind": "Backend", "metadata": map[string]any{"name": name},
		"spec": map[string]any{
			"endpoints":    []any{map[string]any{"url": url}},
			"tls":          map[string]any{"insecureSkipVerify": true, "clientCertificate": "None"},
			"autoRegister": map[string]any{"groups": []string{"*"}, "groupPriorityMinimum": 20000, "versionPriority": 1000},
		},
	})
}

// talker returns the handler of such a server.
func talker(sort string) http.HandlerFunc {
	group := func(name string, versions ...string) string {
		for i, v := range versions {
			versions[i] = `{"version":"` + v + `","resources":[{"resource":"things","responseKind":{"kind":"Thing"},"scope":"Cluster","verbs":["get"]}]}`
		}
		return `{"metadata":{"name":"` + name + `"},"versions":[` + strings.Join(versions, ",") + `]}`
	}
	const v2 = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
	return func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/apis" || r.URL.RawQuery != "" && sort != "stream" {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", v2)
		var items []string
		switch sort {
		case "stream":
			if r.URL.RawQuery != "" {
				w.Header().Set("Content-Type", v2+";stream=watch")
				line := []byte(`{"type":"ADDED","object":{"metadata":{"name":"h.example.com"},"versions":[]}}` + "\n")
				for err := error(nil); err == nil; {
					_, err = w.Write(line)
				}
				return
			}
		case "groups":
			for i := range 6000 {
				items = append(items, group(fmt.Sprintf("g%d.example.com", i), "v1"))
			}
		case "builtin":
			for _, name := range []string{"apiextensions.k8s.io", "coordination.k8s.io", "events.k8s.io", "rbac.authorization.k8s.io"} {
				items = append(items, group(name, "v1", "v9"))
			}
		}
		io.WriteString(w, `{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","items":[`+strings.Join(items, ",")+`]}`)
	}
}

// plant writes definitions beyond all bounds to etcd, and wide ones with 100 versions each.
func (h *hostile) plant(t *testing.T, endpoint string, wide int) {
	t.Helper()
	client, err := etcd.Open(etcd.Config{Endpoints: []string{endpoint}})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	store := client.Store(&resource.Info{
		Group: "apiextensions.k8s.io", Versions: []string{"v1"}, Kind: "CustomResourceDefinition", Resource: "customresourcedefinitions",
		Path: "apiextensions.k8s.io/customresourcedefinitions",
	})
	all := []map[string]any{
		definitionOf("vers", "planted1.example.com", 5000, 0, 0, "v"), definitionOf("cats", "planted2.example.com", 60, 0, 60000, "v"),
		definitionOf("shorts", "planted3.example.com", 1, 20000, 0, "v"), definitionOf("customresourcedefinitions", "apiextensions.k8s.io", 1, 0, 0, "v9"),
	}
	for i := range wide {
		all = append(all, definitionOf("many", fmt.Sprintf("many%d.example.com", i), 100, 0, 0, "v"))
	}
	for _, crd := range all {
		metadata, spec := crd["metadata"].(map[string]any), crd["spec"].(map[string]any)
		name := metadata["name"].(string)
		metadata["uid"], metadata["generation"], metadata["creationTimestamp"] = "uid-of-"+name, 1, "2026-01-02T03:04:05Z"
		condition := func(kind string) map[string]any {
			return map[string]any{"type": kind, "status": "True", "reason": "Planted", "message": "", "lastTransitionTime": "2026-01-02T03:04:05Z"}
		}
		crd["status"] = map[string]any{
			"acceptedNames": spec["names"], "storedVersions": []any{spec["versions"].([]any)[0].(map[string]any)["name"]},
			"conditions": []any{condition("NamesAccepted"), condition("Established")},
		}
		data, err := json.Marshal(crd)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := store.Create(t.Context(), resource.Key{Name: name}, &resource.Object{Header: resource.Header{Name: name, UID: "uid-of-" + name}, Data: data}, 0); err != nil {
			if h.paths[hostileDefinitions+"/"+name] {
				continue // it was stored through the API
			}
			t.Fatal(err)
		}
		h.paths[hostileDefinitions+"/"+name] = true
	}
}

// preferred returns the preferred version of each group.
func (h *hostile) preferred(t *testing.T) map[string]string {
	t.Helper()
	code, answer := h.ask(t, http.MethodGet, "/apis", nil)
	list := metav1.APIGroupList{}
	if err := json.Unmarshal([]byte(answer), &list); err != nil || code != http.StatusOK {
		t.Fatalf("/apis: %d %.300s", code, answer)
	}
	out := map[string]string{}
	for _, g := range list.Groups {
		out[g.Name] = g.PreferredVersion.Version
	}
	return out
}

// demand checks everything that must work whatever is stored.
func (h *hostile) demand(t *testing.T, up *e2e.Installation, before map[string]string) {
	t.Helper()
	if strings.Contains(up.Output.String(), "not served") {
		t.Errorf("up: %s", up.Output)
	}
	up.MustKubectl(t, "get", "namespaces")
	definition := definitionOf("latecomers", "late.example.com", 1, 0, 0, "v")
	h.store(t, hostileDefinitions, "latecomers.late.example.com", definition)
	if n := len(before); n < 5 {
		t.Fatalf("%d groups", n)
	}
	e2e.Eventually(t, "the groups of Kubernetes itself are as before", func() error {
		now := h.preferred(t)
		for group, version := range before {
			if now[group] != version {
				return fmt.Errorf("the preferred version of %s is %q, and was %q", group, now[group], version)
			}
		}
		return nil
	})
	for path := range h.paths {
		h.remove(t, path)
	}
	metric := `portico_discovery_dropped_group_versions{backend="crd"} 0`
	if _, metrics := h.ask(t, http.MethodGet, "/metrics", nil); !strings.Contains(metrics, metric) {
		t.Errorf("the gateway's metrics lack %s", metric)
	}
	for _, server := range []string{"gateway", "crd"} {
		status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", up.Child(t, server)))
		t.Logf("%s: %s", server, regexp.MustCompile(`VmHWM:.*`).Find(status))
	}
	e2e.Eventually(t, "everything is deleted", func() error {
		for path := range h.paths {
			code, answer := h.ask(t, http.MethodGet, path, nil)
			if code == http.StatusNotFound || strings.Contains(answer, `"kube-aggregator.kubernetes.io/automanaged"`) {
				delete(h.paths, path) // or the gateway's own object of that name
				continue
			}
			if !strings.Contains(answer, `"deletionTimestamp"`) {
				h.remove(t, path)
			}
			return fmt.Errorf("%s: %d %.500s", path, code, answer)
		}
		return nil
	})
	up.MustKubectl(t, "create", "namespace", "victim")
	up.MustKubectl(t, "delete", "namespace", "victim", "--wait=false")
	e2e.Eventually(t, "an empty namespace is deleted", func() error {
		code, answer := h.ask(t, http.MethodGet, "/api/v1/namespaces/victim", nil)
		if code != http.StatusNotFound {
			return fmt.Errorf("%d %s", code, answer)
		}
		return nil
	})
}
