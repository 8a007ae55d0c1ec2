package attack

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"portico/internal/testing/await"
)

// hostile is a server with invalid responses. asked counts the requests for them.
type hostile struct {
	group string
	asked atomic.Int64
	// elsewhere counts the requests that followed a redirect.
	elsewhere atomic.Int64
}

// endless repeats a piece until the gateway closes the connection, or for 256 MB.
func endless(w http.ResponseWriter, piece []byte) {
	w.Header().Set("Content-Type", "application/json")
	for sent := 0; sent < 256<<20; sent += len(piece) {
		if _, err := w.Write(piece); err != nil {
			return
		}
	}
}

// verdict is an expectation.
type verdict int

const (
	no verdict = iota
	yes
	// either allows both.
	either
)

// hostileKinds are the responses to /apis, to the resources of the group, to the index of
// OpenAPI and to a document of it; nil is a valid response.
var hostileKinds = []struct {
	name                                string
	groups, resources, index, documents func(h *hostile, w http.ResponseWriter, r *http.Request)
	// served is whether the group is available.
	served verdict
}{
	{name: "control: honest", served: yes},
	{name: "endless", groups: func(_ *hostile, w http.ResponseWriter, _ *http.Request) {
		endless(w, []byte(`{"kind":"APIGroupList","x":"`+strings.Repeat("a", 65000)))
	}},
	{name: "slow", groups: func(_ *hostile, w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "100000")
		for n := 0; n < 300; n++ {
			if _, err := io.WriteString(w, " "); err != nil {
				return
			}
			w.(http.Flusher).Flush()
			select {
			case <-r.Context().Done():
				return
			case <-time.After(100 * time.Millisecond):
			}
		}
	}},
	{name: "a header of 10 MB", groups: func(_ *hostile, w http.ResponseWriter, _ *http.Request) {
		for n := range 1000 {
			w.Header().Set(fmt.Sprint("X-", n), strings.Repeat("a", 10000))
		}
	}},
	{name: "five million brackets", groups: func(_ *hostile, w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, `{"kind":"APIGroupList","apiVersion":"v1","groups":`)
		w.Write(bytes.Repeat([]byte("["), 5_000_000))
		w.Write(bytes.Repeat([]byte("]"), 5_000_000))
		io.WriteString(w, "}")
	}},
	{name: "a redirect", groups: func(h *hostile, w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/elsewhere", http.StatusFound)
	}},
	{name: "no JSON", groups: func(_ *hostile, w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "<html>") }},
	{name: "a list of another kind", groups: func(_ *hostile, w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, `{"kind":"SecretList","apiVersion":"v1","items":[]}`)
	}},
	{name: "an answer that breaks off", groups: func(_ *hostile, w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "1000")
		io.WriteString(w, `{"kind":"APIGroupList"`)
	}},
	{name: "490,000 resources in the aggregated form", served: either, groups: func(h *hostile, w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
		fmt.Fprintf(w, `{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","items":[{"metadata":{"name":%q},"versions":[{"version":"v1","resources":[{"resource":"r"}%s]}]}]}`,
			h.group, strings.Repeat(`,{"resource":"r"}`, 489_999))
	}},
	{name: "160,000 resources", served: either, resources: func(h *hostile, w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"%s/v1","resources":[{"name":"r","kind":"R","verbs":["get"]}`, h.group)
		for n := range 160_000 {
			fmt.Fprintf(w, `,{"name":"r%d","kind":"R","verbs":["get"]}`, n)
		}
		io.WriteString(w, "]}")
	}},
	{name: "endless resources", served: either, resources: func(_ *hostile, w http.ResponseWriter, _ *http.Request) {
		endless(w, bytes.Repeat([]byte("a"), 65000))
	}},
	{name: "an index of 100,000 documents", served: yes, index: func(h *hostile, w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, `{"paths":{"apis/x/v1":{"serverRelativeURL":"/openapi/v3/x"}`)
		for n := range 100_000 {
			fmt.Fprintf(w, `,"apis/%s/v%d":{"serverRelativeURL":"/openapi/v3/apis/x?hash=%d"}`, h.group, n, n)
		}
		io.WriteString(w, "}}")
	}},
	{name: "an endless document", served: yes, index: oneDocument, documents: func(_ *hostile, w http.ResponseWriter, _ *http.Request) {
		endless(w, bytes.Repeat([]byte("a"), 65000))
	}},
	{name: "a deep document", served: yes, index: oneDocument, documents: func(_ *hostile, w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, `{"openapi":"3.0.0","paths":{},"components":{"schemas":{"a":`)
		io.WriteString(w, strings.Repeat(`{"properties":{"a":`, 200_000)+"{}"+strings.Repeat("}}", 200_000)+"}}}")
	}},
	{name: "a document of 9 MB of references", served: yes, index: oneDocument, documents: func(_ *hostile, w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, `{"openapi":"3.0.0","info":{"title":"t","version":"1"},"paths":{},"components":{"schemas":{"x":{}`)
		for n := range 90_000 {
			fmt.Fprintf(w, `,"s%d":{"type":"object","properties":{"a":{"$ref":"#/components/schemas/s%d"}}}`, n, (n+1)%90_000)
		}
		io.WriteString(w, "}}}")
	}},
	{name: "a document that redirects", served: yes, index: oneDocument, documents: func(_ *hostile, w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/elsewhere", http.StatusFound)
	}},
}

// oneDocument serves an index of OpenAPI with a new hash for each request.
func oneDocument(h *hostile, w http.ResponseWriter, _ *http.Request) {
	fmt.Fprintf(w, `{"paths":{"apis/%[1]s/v1":{"serverRelativeURL":"/openapi/v3/apis/%[1]s/v1?hash=%[2]d"}}}`, h.group, time.Now().UnixNano())
}

// A server with invalid responses affects its own group only: other requests are served
// within the time limit, and the gateway's memory is bounded.
func TestHostileServers(t *testing.T) {
	t.Parallel()
	for n, kind := range hostileKinds {
		t.Run(kind.name, func(t *testing.T) {
			h := &hostile{group: fmt.Sprintf("hostile-%d.example.com", n)}
			answer := func(own func(*hostile, http.ResponseWriter, *http.Request), honest string, w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				switch {
				case own != nil:
					h.asked.Add(1)
					own(h, w, r)
				case honest == "":
					http.NotFound(w, r)
				default:
					io.WriteString(w, honest)
				}
			}
			config := serving(t, http1)
			config.ClientAuth = tls.NoClientCert
			url := runServer(t, config, func(w http.ResponseWriter, r *http.Request) {
				switch path := r.URL.Path; {
				case r.URL.Query().Get("watch") == "true":
					http.NotFound(w, r)
				case path == "/elsewhere":
					h.elsewhere.Add(1)
				case path == "/apis":
					answer(kind.groups, groupList(h.group), w, r)
				case path == "/apis/"+h.group+"/v1":
					answer(kind.resources, resourceList(h.group), w, r)
				case path == "/openapi/v3":
					answer(kind.index, "", w, r)
				case strings.HasPrefix(path, "/openapi/v3/"):
					answer(kind.documents, "", w, r)
				case strings.HasPrefix(path, "/apis/"+h.group+"/v1/"):
					io.WriteString(w, `{"kind":"Echo"}`)
				default:
					http.NotFound(w, r)
				}
			})
			target.backend(t, h.group, discovered(url, h.group))
			if kind.groups != nil || kind.resources != nil || kind.index != nil {
				eventually(t, "the gateway has met what the server answers", func() error {
					if h.asked.Load() == 0 {
						return errors.New("it has not been asked")
					}
					return nil
				})
			}
			target.suffers(t, h, kind.served, kind.documents != nil)
			target.unharmed(t)
			if h.elsewhere.Load() > 0 {
				t.Error("the gateway followed a redirect of the server's")
			}
		})
	}
}

// suffers waits until the gateway has checked a hostile server, and requests its documents.
func (i *installation) suffers(t *testing.T, h *hostile, served verdict, documents bool) {
	t.Helper()
	thing := "/apis/" + h.group + "/v1/namespaces/a/things/x"
	eventually(t, "the server's group is judged", func() error {
		code, body, err := i.ask(i.admin, "GET", thing, "")
		if err != nil {
			return err
		}
		backend := i.must(t, "GET", "/apis/gateway.portico.dev/v1alpha1/backends/"+strings.ReplaceAll(h.group, ".", "-"), "")
		judged := strings.Contains(compact(backend), `"status":"False"`)
		if served == yes && code != http.StatusOK || served == no && (code == http.StatusOK || !judged) {
			return fmt.Errorf("%d %.200s; %s", code, body, backend)
		}
		return nil
	})
	if documents {
		if code, body, err := i.ask(i.admin, "GET", "/openapi/v3/apis/"+h.group+"/v1", ""); err != nil {
			t.Errorf("the server's document: %d %.200s %v", code, body, err)
		}
		// Version 2 is made in the background: it is a 503 until then.
		eventually(t, "OpenAPI version 2 is served", func() error {
			code, body, err := i.ask(i.admin, "GET", "/openapi/v2", "")
			if err == nil && code != http.StatusOK {
				err = fmt.Errorf("%d %.200s", code, body)
			}
			return err
		})
	}
}

// maxMemory is the maximum memory of a process of the installation, in bytes.
const maxMemory = 700 << 20

// unharmed checks that other requests are served in time and that no process exceeds its
// memory.
func (i *installation) unharmed(t *testing.T) {
	t.Helper()
	for path, want := range map[string]string{
		"/api/v1/namespaces/kube-system": "kube-system", rbac + "/clusterroles/view": "view", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions": "List",
		"/apis": "coordination.k8s.io", "/readyz": "ok",
	} {
		began := time.Now()
		code, body, err := i.ask(i.admin, "GET", path, "")
		if err != nil || code != http.StatusOK || !strings.Contains(body, want) {
			t.Errorf("%s: %d %.300s %v", path, code, body, err)
		}
		await.Bar(t, path, time.Since(began), 5*time.Second)
	}
	for name, peak := range i.peaks(t) {
		if peak > maxMemory {
			t.Errorf("%s has taken %d MB", name, peak>>20)
		}
	}
}

// peaks returns the peak memory of each process of the installation, in bytes.
func (i *installation) peaks(t *testing.T) map[string]int {
	t.Helper()
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", i.Cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	peaks := map[string]int{}
	for _, task := range tasks {
		children, _ := os.ReadFile(task) // a thread that has ended has none
		for _, pid := range strings.Fields(string(children)) {
			args, _ := os.ReadFile("/proc/" + pid + "/cmdline")
			status, _ := os.ReadFile("/proc/" + pid + "/status")
			name := strings.Split(string(args)+"\x00\x00", "\x00")[1]
			for line := range strings.SplitSeq(string(status), "\n") {
				if value, ok := strings.CutPrefix(line, "VmHWM:"); ok {
					kilobytes, _ := strconv.Atoi(strings.Fields(value)[0])
					peaks[name] = kilobytes << 10
				}
			}
		}
	}
	if len(peaks) < 3 {
		t.Fatalf("the processes of the installation are %v", peaks)
	}
	return peaks
}

// A server that lists 4,096 groups affects no other request. One of them is registered: each of
// the others would be a registration as well.
func TestServerWithManyGroups(t *testing.T) {
	t.Parallel()
	var groups []string
	for n := range 4096 {
		groups = append(groups, fmt.Sprintf(`{"name":"g%[1]d.many.example.com","versions":[{"groupVersion":"g%[1]d.many.example.com/v1","version":"v1"}]}`, n))
	}
	list := `{"kind":"APIGroupList","apiVersion":"v1","groups":[` + strings.Join(groups, ",") + `]}`
	url := runServer(t, serving(t, http1), func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.RequestURI == "/apis":
			io.WriteString(w, list)
		case strings.HasPrefix(r.URL.Path, "/apis/g"):
			io.WriteString(w, resourceList(strings.Split(r.URL.Path, "/")[2]))
		default:
			http.NotFound(w, r)
		}
	})
	target.backend(t, "many.example.com", discovered(url, "g7.many.example.com"))
	eventually(t, "the group that is registered is served", func() error { return target.answers("/apis/g7.many.example.com/v1", http.StatusOK, "") })
	target.unharmed(t)
}
