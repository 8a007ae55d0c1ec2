package definitions

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"portico/cmd/e2e"
	"portico/internal/testing/await"
)

const (
	// churnGroup ends the names of the groups that come and go.
	churnGroup = ".churn.example.com"
	// churnWorkers is how many definitions there are at a time, and churnObjects how many objects each has.
	churnWorkers, churnObjects = 4, 5
	// forgetting bounds the time until changes that watches could ask for are dropped: 75 s, and a margin.
	forgetting = 3 * time.Minute
)

// churnSchema returns a schema with a rule, a pattern, a default and a description of so many bytes.
func churnSchema(bytes int) string {
	return `{"type":"object","description":"` + strings.Repeat("x", bytes) + `","properties":{"size":{"type":"integer","default":3},
		"name":{"type":"string","pattern":"^[a-z0-9]*$"},"list":{"type":"array","maxItems":10,"items":{"type":"string","maxLength":20}}},
		"x-kubernetes-validations":[{"rule":"!has(self.size) || self.size < 100"}]}`
}

// cycle creates a definition, fills it, watches its objects, and deletes it. The watch gets each object once as ADDED, once
// as DELETED, and then ends.
func (c *client) cycle(ctx context.Context, group, schema string) error {
	gadgets := "/apis/" + group + "/v1/namespaces/default/gadgets"
	if err := c.must(ctx, http.StatusCreated, "POST", definitionsPath, definition(group, "Namespaced", "Gadget", schema, "v1 served storage", "v1beta1 served")); err != nil {
		return err
	}
	if err := errors.Join(c.served(ctx, gadgets), c.served(ctx, strings.Replace(gadgets, "/v1/", "/v1beta1/", 1))); err != nil {
		return err
	}
	watched := make(chan error, 1)
	counts := map[string]int{}
	go func() {
		watched <- c.watch(ctx, gadgets+"?watch=true&resourceVersion=0&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true", func(e event) error {
			counts[e.Type]++
			return nil
		})
	}()
	for i := range churnObjects {
		name := fmt.Sprint("g", i)
		object := gadgets + "/" + name
		if err := errors.Join(
			c.must(ctx, http.StatusCreated, "POST", gadgets, gadget(group, "v1", "Gadget", name, `{"name":"a"}`)),
			c.must(ctx, http.StatusOK, "PATCH", object, `{"spec":{"size":5}}`, mergePatch),
			c.must(ctx, http.StatusOK, "PATCH", object+"/status", `{"status":{"ready":true}}`, mergePatch),
			c.must(ctx, http.StatusOK, "PATCH", object+"?fieldManager=churn&force=true", gadget(group, "v1", "Gadget", name, `{"list":["a"]}`), "Content-Type: application/apply-patch+yaml"),
			c.must(ctx, http.StatusUnprocessableEntity, "PATCH", object, `{"spec":{"size":500}}`, mergePatch),
			c.must(ctx, http.StatusOK, "GET", strings.Replace(object, "/v1/", "/v1beta1/", 1), ""),
		); err != nil {
			return err
		}
	}
	if err := errors.Join(
		c.must(ctx, http.StatusOK, "GET", gadgets, "", "Accept: application/json;as=Table;g=meta.k8s.io;v=v1"),
		c.must(ctx, http.StatusOK, "GET", "/openapi/v3/apis/"+group+"/v1", ""),
		c.must(ctx, http.StatusOK, "DELETE", definitionsPath+"/gadgets."+group, ""),
	); err != nil {
		return err
	}
	if err := c.gone(ctx, definitionsPath+"/gadgets."+group); err != nil {
		return err
	}
	if err := <-watched; err != nil {
		return err
	}
	if counts["ADDED"] != churnObjects || counts["DELETED"] != churnObjects || counts["ERROR"] != 0 {
		return fmt.Errorf("the watch of %s had %v", gadgets, counts)
	}
	return nil
}

// served polls a collection until it is served.
func (c *client) served(ctx context.Context, path string) error {
	return poll(ctx, func() error { return c.must(ctx, http.StatusOK, "GET", path+"?limit=1", "") })
}

// gone polls an object until there is none.
func (c *client) gone(ctx context.Context, path string) error {
	return poll(ctx, func() error { return c.must(ctx, http.StatusNotFound, "GET", path, "") })
}

// established returns an error unless a definition is Established: then its status is not written any more.
func (c *client) established(ctx context.Context, path string) error {
	if _, now := c.ask(ctx, "GET", path, ""); !strings.Contains(now, `"type":"Established","status":"True"`) {
		return fmt.Errorf("%s is not Established: %.2000s", path, now)
	}
	return nil
}

// poll calls ok until its error is nil.
func poll(ctx context.Context, ok func() error) error {
	deadline := time.Now().Add(await.Patience())
	for {
		err := ok()
		if err == nil || ctx.Err() != nil || time.Now().After(deadline) {
			return err
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// churn is a load of definitions that come and go.
type churn struct {
	*client
	schema string
	made   atomic.Int64
}

// run makes n definitions, each in a group of its own, over at least the given time.
func (c *churn) run(t *testing.T, n int, lasts time.Duration) {
	t.Helper()
	began, first := time.Now(), c.made.Load()
	var wg sync.WaitGroup
	for range churnWorkers {
		wg.Go(func() {
			for !t.Failed() {
				made := c.made.Add(1)
				if made > first+int64(n) {
					return
				}
				time.Sleep(time.Until(began.Add(lasts * time.Duration(made-first) / time.Duration(n)))) // the pace of the load
				if err := c.cycle(t.Context(), fmt.Sprint("g", made, churnGroup), c.schema); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	t.Logf("%d definitions in %v", n, time.Since(began).Round(time.Millisecond))
}

// Definitions that are created, filled and deleted leave nothing behind: no key in etcd, no goroutine, no series of metrics,
// no group in discovery, and memory of bounded caches only. The environment variable PORTICO_TEST_CHURN asks for 1,000 large ones
// over that time.
func TestDefinitionsComeAndGo(t *testing.T) {
	t.Parallel()
	up := e2e.Install(t, t.TempDir(), "--profiling")
	c := &churn{client: newClient(t, up), schema: churnSchema(1000)}
	first, rest, lasts := 20, 40, time.Duration(0)
	if text := os.Getenv("PORTICO_TEST_CHURN"); text != "" {
		var err error
		if lasts, err = time.ParseDuration(text); err != nil {
			t.Fatalf("PORTICO_TEST_CHURN: %v", err)
		}
		first, rest, c.schema = 100, 1000, churnSchema(100_000)
	}
	c.run(t, first, 0)
	before := footprintsOf(t, up, c.client)
	c.run(t, rest, lasts)
	e2e.Eventually(t, "etcd has nothing of them", func() error {
		if left := keysWith(t, up, churnGroup); len(left) > 0 {
			return fmt.Errorf("%d keys: %.1000s", len(left), left)
		}
		return nil
	})
	e2e.Eventually(t, "discovery has no such group", func() error {
		for _, path := range []string{"/apis", "/openapi/v3", "/apis/apiregistration.k8s.io/v1/apiservices"} {
			if code, answer := c.ask(t.Context(), "GET", path, "", "Accept: application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"); code != http.StatusOK || strings.Contains(answer, churnGroup) {
				return fmt.Errorf("%s: %d %.2000s", path, code, answer)
			}
		}
		return nil
	})
	var now map[string]footprint
	e2e.Within(t, forgetting, "the processes are as they were", func() error {
		now = footprintsOf(t, up, c.client)
		return compare(before, now)
	})
	for _, process := range processes {
		t.Logf("%s: %d KB in use, was %d; %d goroutines, were %d", process, now[process].heap>>10, before[process].heap>>10, now[process].goroutines, before[process].goroutines)
	}
}
