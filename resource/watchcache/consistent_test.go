package watchcache_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"portico/internal/testing/await"
	"portico/internal/testing/etcdtest"
	"portico/resource"
	"portico/resource/etcd"
	"portico/resource/watchcache"
)

// cell is written through one server and read through the others.
var cell = resource.Key{Namespace: "default", Name: "cell"}

// eventually calls f until it succeeds, for 30 s at most, and returns its last error.
func eventually(f func() error) error {
	for deadline := time.Now().Add(await.Patience()); ; {
		if err := f(); err == nil || time.Now().After(deadline) {
			return err
		}
	}
}

// acknowledged writes a value to the cell and returns when it is acknowledged. During an
// election the outcome of a write may be unknown; it is repeated.
func acknowledged(t *testing.T, s resource.Store, value int) {
	t.Helper()
	o, err := resource.Parse(fmt.Appendf(nil, `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"cell","namespace":"default","labels":{"n":"%d"}}}`, value))
	if err != nil {
		t.Fatal(err)
	}
	err = eventually(func() error {
		_, err := s.Update(t.Context(), cell, func(*resource.Object) (resource.Mutation, error) { return resource.Mutation{Object: o}, nil })
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// reader is a server with its own members.
type reader struct {
	name  string
	store resource.Store
	// served is set if it has a member that is not partitioned: its reads succeed.
	served bool
}

// check reads the cell by Get and by List, and compares it with a value. Errors are
// StatusErrors, and are returned.
func (r reader) check(t *testing.T, want int) error {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	o, getErr := r.store.Get(ctx, cell, resource.At{})
	if getErr == nil && valueOf(o) != want {
		t.Errorf("%s: get shows %d after %d was acknowledged", r.name, valueOf(o), want)
	}
	l, listErr := r.store.List(ctx, resource.ListOptions{Namespace: cell.Namespace})
	if listErr == nil && (len(l.Items) != 1 || valueOf(l.Items[0]) != want) {
		t.Errorf("%s: list shows %v after %d was acknowledged", r.name, l.Items, want)
	}
	for _, err := range []error{getErr, listErr} {
		if status := apierrors.APIStatus(nil); err != nil && !errors.As(err, &status) {
			t.Errorf("%s: %v is not a StatusError", r.name, err)
		}
	}
	return errors.Join(getErr, listErr)
}

func valueOf(o *resource.Object) int {
	n, _ := strconv.Atoi(o.Labels.Get("n"))
	return n
}

// Every read through one server shows the writes acknowledged before through another one,
// also while its member is partitioned from the others, and afterwards. Progress proves
// nothing: such a member reports its old revision.
func TestNoAcknowledgedWriteIsMissed(t *testing.T) {
	t.Parallel()
	members := etcdtest.StartCluster(t, 3)
	alone, others := members[0], members[1:]
	on := func(members ...*etcdtest.Server) *etcd.Client {
		var endpoints []string
		for _, m := range members {
			endpoints = append(endpoints, m.DirectEndpoint())
		}
		return openEtcd(t, "/cluster", endpoints...)
	}
	open := func(name string, feed, store *etcd.Client, served bool) reader {
		c := running(t, watchcache.Config{Feed: feed.Feed(), Store: store.Store, FreshTimeout: 500 * time.Millisecond})
		return reader{name, c.Store(&configMaps().Info), served}
	}
	first, all, partitioned := on(others[0]), on(members...), on(alone)
	readers := []reader{
		open("on another member", first, first, true),
		open("on the partitioned member", partitioned, partitioned, false),
		open("with the feed of the partitioned member and reads of all", partitioned, all, true),
		open("on all members", all, all, true),
	}
	n := 0
	round := func(what string, partition bool) {
		n++
		acknowledged(t, readers[0].store, n)
		var reading sync.WaitGroup
		for _, r := range readers {
			reading.Go(func() {
				if partition && !r.served {
					_ = r.check(t, n) // it may fail
				} else if err := eventually(func() error { return r.check(t, n) }); err != nil {
					t.Errorf("%s: %s: %v", r.name, what, err)
				}
			})
		}
		reading.Wait()
	}
	for range 5 {
		round("before", false)
	}
	alone.Partition(others, true)
	acknowledged(t, readers[0].store, n) // past the election, if the member was the leader
	round("partitioned", true)
	alone.Partition(others, false)
	for range 5 {
		round("joined again", false)
	}
}
