package ha

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"portico/cmd/e2e"
)

const (
	definitionsPath = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	aggregated      = "Accept: application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
	// perGroup is the number of definitions in each group, and creators is how many clients create them.
	perGroup, creators = 3, 4
)

// establishing is a test of definitions at two gateways and two CRD servers.
type establishing struct {
	*installation
	client *http.Client
	doors  []string
	count  int
	// established are the definitions that a watch has shown as such, by door.
	established []atomic.Int64
	checks      sync.WaitGroup
	slots       chan struct{}
	refused     atomic.Int64
}

// A definition that says Established is served and discovered through every gateway: a client that reads so from a watch of
// any gateway creates, lists and discovers at another one. The same holds for a version that was added, once the
// change is answered. PORTICO_TEST_DEFINITIONS is the number of definitions.
func TestEstablishedIsServedByEveryGateway(t *testing.T) {
	t.Parallel()
	e := &establishing{count: 60, slots: make(chan struct{}, 8)}
	if text := os.Getenv("PORTICO_TEST_DEFINITIONS"); text != "" {
		count, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		e.count = count
	}
	e.installation = prepare(t, shutdownDelay, func(in *installation, address string) { balance(t, in, address) })
	e.start(t, "core-0", "crd-0", "crd-1", "gateway-0", "gateway-1")
	e.client = e2e.HTTPClient(t, e.Config(t))
	for _, name := range gateways[:2] {
		e.doors = append(e.doors, "https://"+e.address(name))
		e.serves(t, "https://"+e.address(name))
	}
	e.established = make([]atomic.Int64, len(e.doors))
	ctx, cancel := context.WithCancel(t.Context())
	var followers sync.WaitGroup
	defer followers.Wait()
	defer cancel()
	for i := range e.doors {
		watching := make(chan struct{})
		followers.Go(func() { e.follow(ctx, t, i, watching) })
		<-watching
	}
	for _, door := range e.doors {
		followers.Go(func() { e.load(ctx, door) })
	}
	began := time.Now()
	var made sync.WaitGroup
	for first := range creators {
		made.Go(func() {
			for n := first; n < e.count; n += creators {
				e.create(ctx, t, n)
			}
		})
	}
	made.Wait()
	t.Logf("%d definitions were created and changed in %v", e.count, time.Since(began))
	for i := range e.doors {
		for ctx.Err() == nil && e.established[i].Load() < int64(e.count) {
			select {
			case <-t.Context().Done():
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
	}
	t.Logf("all are established after %v", time.Since(began))
	e.checks.Wait()
	t.Logf("all checks ended after %v; %d of them failed", time.Since(began), e.refused.Load())
}

// groupOf returns the group and the plural of a definition.
func (e *establishing) groupOf(n int) (group, plural string) {
	return fmt.Sprintf("est%d.example.net", n/perGroup), fmt.Sprint("things", n%perGroup)
}

func versionOf(name string, storage bool) string {
	return fmt.Sprintf(`{"name":%q,"served":true,"storage":%t,"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}`, name, storage)
}

// create makes a definition through one of the gateways. Once it is established it gets a second version.
func (e *establishing) create(ctx context.Context, t *testing.T, n int) {
	group, plural := e.groupOf(n)
	door := e.doors[n%len(e.doors)]
	body := fmt.Sprintf(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"%[2]s.%[1]s"},"spec":{"group":%[1]q,
		"scope":"Namespaced","names":{"plural":%[2]q,"kind":"Thing%[3]d"},"versions":[%[4]s]}}`, group, plural, n%perGroup, versionOf("v1", true))
	resp, answer, err := e2e.Ask(ctx, e.client, http.MethodPost, door+definitionsPath, body)
	if err != nil || resp.StatusCode != http.StatusCreated {
		t.Errorf("create %s.%s: %v %.300s", plural, group, err, answer)
		return
	}
	if n%10 != 0 {
		return
	}
	for ctx.Err() == nil {
		_, answer, err = e2e.Ask(ctx, e.client, http.MethodGet, door+definitionsPath+"/"+plural+"."+group, "")
		if err == nil && saysEstablished([]byte(answer)) {
			break
		}
	}
	patch := `{"spec":{"versions":[` + versionOf("v1", true) + `,` + versionOf("v2", false) + `]}}`
	resp, answer, err = e2e.Ask(ctx, e.client, http.MethodPatch, door+definitionsPath+"/"+plural+"."+group, patch, "Content-Type: application/merge-patch+json")
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("add a version to %s.%s: %v %.300s", plural, group, err, answer)
		return
	}
	for _, door := range e.doors {
		e.check(ctx, t, door, n, "v2", "the answer to its change")
	}
}

func saysEstablished(text []byte) bool {
	var crd apiextensionsv1.CustomResourceDefinition
	if json.Unmarshal(text, &crd) != nil {
		return false
	}
	for _, c := range crd.Status.Conditions {
		if c.Type == apiextensionsv1.Established {
			return c.Status == apiextensionsv1.ConditionTrue
		}
	}
	return false
}

// follow watches the definitions through one gateway, and checks each that is established at all of them.
func (e *establishing) follow(ctx context.Context, t *testing.T, i int, watching chan struct{}) {
	long := *e.client
	long.Timeout = 0
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, e.doors[i]+definitionsPath+"?watch=true", nil)
	if err != nil {
		t.Error(err)
		close(watching)
		return
	}
	resp, err := long.Do(req)
	close(watching)
	if err != nil {
		t.Error(err)
		return
	}
	defer resp.Body.Close()
	seen := map[string]bool{}
	lines := bufio.NewReader(resp.Body)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			if ctx.Err() == nil {
				t.Errorf("the watch at %s ended: %v", e.doors[i], err)
			}
			return
		}
		var event struct {
			Object struct{ Metadata struct{ Name string } }
		}
		var raw struct{ Object json.RawMessage }
		if err := errors.Join(json.Unmarshal(line, &event), json.Unmarshal(line, &raw)); err != nil {
			t.Error(err)
			return
		}
		name := event.Object.Metadata.Name
		if seen[name] || !strings.HasSuffix(name, ".example.net") || !saysEstablished(raw.Object) {
			continue
		}
		seen[name] = true
		var group, kind int
		if _, err := fmt.Sscanf(name, "things%d.est%d.example.net", &kind, &group); err != nil {
			t.Error(err)
			return
		}
		e.slots <- struct{}{}
		e.checks.Go(func() {
			defer func() { <-e.slots }()
			for _, door := range e.doors {
				e.check(ctx, t, door, group*perGroup+kind, "v1", "a watch at "+e.doors[i])
			}
			e.established[i].Add(1)
		})
	}
}

// check looks for a version of a definition at a gateway: its objects, and all documents of discovery that name it. The
// documents of all groups are left out for most of a large number of definitions.
func (e *establishing) check(ctx context.Context, t *testing.T, door string, n int, version, told string) {
	group, plural := e.groupOf(n)
	of := "/apis/" + group + "/" + version
	for _, one := range []struct {
		path, shows string
		large       bool
		header      []string
	}{
		{path: of + "/" + plural, shows: "Thing"},
		{path: of, shows: `"name":"` + plural + `"`},
		{path: "/apis/" + group, shows: group + "/" + version},
		{path: "/apis", shows: group + "/" + version, large: true},
		{path: "/apis", shows: `{"name":"` + group + `"`, large: true, header: []string{aggregated}},
		{path: "/openapi/v3", shows: `"apis/` + group + "/" + version + `"`, large: true},
	} {
		if one.large && e.count > 300 && n%20 != 0 {
			continue
		}
		resp, answer, err := e2e.Ask(ctx, e.client, http.MethodGet, door+one.path, "", one.header...)
		if ctx.Err() != nil {
			return
		}
		if err != nil || resp.StatusCode != http.StatusOK || !strings.Contains(answer, one.shows) {
			e.refused.Add(1)
			t.Errorf("%s.%s is established by %s, and GET %s%s answers %v %.100s", plural, group, told, door, one.path, err, answer)
		}
	}
}

// load reads until ctx ends.
func (e *establishing) load(ctx context.Context, door string) {
	for ctx.Err() == nil {
		for _, path := range []string{"/api/v1/namespaces", definitionsPath + "?limit=50", "/apis"} {
			_, _, _ = e2e.Ask(ctx, e.client, http.MethodGet, door+path, "") // only its cost matters
		}
	}
}
