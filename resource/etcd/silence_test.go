package etcd

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"portico/internal/testing/await"
	"portico/internal/testing/storetest"
	"portico/resource"
)

const (
	// prompt is much longer than a rejection, or an answer after etcd is back, takes on a
	// busy machine.
	prompt = 3 * time.Second
	// often is the interval of checks in these tests, and soonSilent the time after which
	// etcd then counts as silent.
	often      = 200 * time.Millisecond
	soonSilent = (silentChecks + 1) * often
)

func checkedOften(cfg *Config) { cfg.checkEvery = often }

// refusedNow checks that a call fails at once, with 503 and Retry-After.
func refusedNow(t *testing.T, what string, call func() error) {
	t.Helper()
	began := time.Now()
	err := call()
	if code, retry := outcome(err); code != http.StatusServiceUnavailable || !retry || !strings.Contains(err.Error(), "etcd is not available: no answer since ") {
		t.Errorf("%s: %v (retry %t)", what, err, retry)
	}
	await.Bar(t, what, time.Since(began), prompt)
}

// etcd becomes silent with many requests in progress: all of them end in time, later ones at
// once, and each error says correctly whether it may have been executed. When etcd is back,
// everything works again.
func TestSilence(t *testing.T) {
	t.Parallel()
	const many = 200 // of each kind
	s := newServer(t)
	c := s.client(t, checkedOften)
	c.timeout = 2 * soonSilent
	store := c.Store(storetest.Namespaced())
	mustCreate(t, store, "x")
	replica := follow(t, c.Feed())
	ctx := t.Context()
	create := func(name string, ttl time.Duration) error {
		obj := setting(t, name, "1")
		_, err := store.Create(ctx, obj.Key(), obj, ttl)
		return err
	}
	s.Pause()
	began := time.Now()
	var calls sync.WaitGroup
	for i := range many {
		for what, call := range map[string]func() error{
			"get":                func() error { _, err := store.Get(ctx, keyX, resource.At{}); return err },
			"list":               func() error { _, err := store.List(ctx, resource.ListOptions{}); return err },
			"current":            func() error { _, err := c.Feed().Current(ctx); return err },
			"create for a while": func() error { return create(fmt.Sprint("leased", i), time.Hour) },
		} {
			calls.Go(func() {
				err := call()
				if code, retry := outcome(err); code != http.StatusServiceUnavailable || !retry {
					t.Errorf("%s: %v (retry %t)", what, err, retry)
				}
				await.Bar(t, what, time.Since(began), soonSilent+prompt)
			})
		}
		calls.Go(func() {
			err := create(fmt.Sprint("unknown", i), 0)
			if code, retry := outcome(err); code != http.StatusGatewayTimeout || retry || !strings.Contains(err.Error(), "not known") {
				t.Errorf("create: %v (retry %t)", err, retry)
			}
			await.Bar(t, "create", time.Since(began), c.timeout+prompt)
		})
	}
	eventually(t, "etcd is found to be silent", func(context.Context) error {
		if c.breaker.silent() {
			return nil
		}
		time.Sleep(10 * time.Millisecond)
		return fmt.Errorf("not after %v", time.Since(began))
	})
	if took := time.Since(began); took < soonSilent-2*often {
		t.Errorf("etcd was held to be silent after %v", took)
	}
	docs := c.Documents("test")
	for i := range many {
		refusedNow(t, "get", func() error { _, err := store.Get(ctx, keyX, resource.At{}); return err })
		refusedNow(t, "list", func() error { _, err := store.List(ctx, resource.ListOptions{}); return err })
		refusedNow(t, "create", func() error { return create(fmt.Sprint("refused", i), 0) })
		refusedNow(t, "create for a while", func() error { return create(fmt.Sprint("refused", i), time.Hour) })
		refusedNow(t, "update", func() error { _, err := store.Update(ctx, keyX, plusOne(t, "x")); return err })
		refusedNow(t, "delete", func() error { _, err := store.Delete(ctx, keyX, nil); return err })
		refusedNow(t, "read of documents", func() error { _, err := docs.Read(ctx); return err })
		refusedNow(t, "write of a document", func() error { _, err := docs.Write(ctx, "x", nil, 0); return err })
		refusedNow(t, "health", func() error { return c.Healthy(ctx) })
	}
	if got := shown(t, c); got["portico_etcd_silent"] != 1 || got["portico_etcd_refused_requests_total"] < 9*many {
		t.Errorf("metrics: %v", got)
	}
	calls.Wait()
	if n := c.breaker.pending.Load(); n > maxProbes {
		t.Errorf("%d requests still wait", n)
	}
	s.Resume()
	back := time.Now()
	eventually(t, "writes are taken", func(context.Context) error { return create("after"+strconv.FormatInt(time.Now().UnixNano(), 36), 0) })
	await.Bar(t, "the first write", time.Since(back), 3*prompt)
	list, err := store.List(ctx, resource.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range list.Items {
		if name := o.Key().Name; strings.HasPrefix(name, "refused") || strings.HasPrefix(name, "leased") {
			t.Errorf("%s was refused, and is there", name)
		}
	}
	checkResumed(t, replica, store, list.Revision)
}

// Neither a slow page nor the responses behind it on the connection open the breaker.
func TestSlowPageIsNoSilence(t *testing.T) {
	t.Parallel()
	const keys, size = firstChunk, 64 << 10
	s := newServer(t)
	fill(t, s.beside(t, under("/slow")).Store(storetest.Namespaced()), keys, size)
	c := s.client(t, under("/slow"), checkedOften)
	store := c.Store(storetest.Namespaced())
	if err := c.Healthy(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.Rate.Store(keys * size * int64(time.Second) / int64(soonSilent+5*often))
	began := time.Now()
	if list, err := store.List(t.Context(), resource.ListOptions{}); err != nil || len(list.Items) != keys {
		t.Errorf("list: %v", err)
	}
	if took := time.Since(began); took < soonSilent {
		t.Errorf("the list took %v, want more than %v", took, soonSilent)
	}
	if got := shown(t, c); got["portico_etcd_refused_requests_total"] > 0 {
		t.Errorf("metrics: %v", got)
	}
}

// While a member hangs, reads go to the others, and a write that it has received ends with a
// timeout.
func TestHungMember(t *testing.T) {
	t.Parallel()
	members, c := newCluster(t)
	store := c.Store(storetest.Namespaced())
	mustCreate(t, store, "x")
	ctx := t.Context()
	// Without a connection to the others, all attempts would go to the member that hangs.
	eventually(t, "requests are sent to each member", func(ctx context.Context) error {
		var before [3]int64
		for i, m := range members {
			before[i] = m.Received.Load()
		}
		for range members {
			if _, err := store.Get(ctx, keyX, resource.At{}); err != nil {
				return err
			}
		}
		for i, m := range members {
			if m.Received.Load() == before[i] {
				return fmt.Errorf("member %d received nothing", i)
			}
		}
		return nil
	})
	members[0].Pause()
	defer members[0].Resume()
	c.timeout = 10 * time.Second
	var writing sync.WaitGroup
	for i := range 9 { // a third of them is sent to the member that hangs
		writing.Go(func() {
			obj := setting(t, fmt.Sprint("w", i), "1")
			if _, err := store.Create(ctx, obj.Key(), obj, 0); err != nil && !apierrors.IsTimeout(err) {
				t.Error(err)
			}
		})
	}
	for range 3 { // so that each read is sent to each member first
		for what, read := range map[string]func() error{
			"revision":  func() error { return c.Healthy(ctx) },
			"get":       func() error { _, err := store.Get(ctx, keyX, resource.At{}); return err },
			"list":      func() error { _, err := store.List(ctx, resource.ListOptions{}); return err },
			"documents": func() error { _, err := c.Documents("x").Read(ctx); return err },
		} {
			if err := read(); err != nil {
				t.Errorf("%s: %v", what, err)
			}
		}
	}
	writing.Wait()
}
