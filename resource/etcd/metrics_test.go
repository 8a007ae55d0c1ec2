package etcd

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"portico/internal/testing/storetest"
	"portico/resource"
)

// shown returns the metrics of a client by name and labels; for histograms the number of
// observations.
func shown(t *testing.T, c *Client) map[string]float64 {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(c.Metrics())
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, family := range families {
		for _, m := range family.Metric {
			name := family.GetName()
			for _, l := range m.Label {
				name += "," + l.GetValue()
			}
			out[name] = m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return out
}

// Every request is counted by operation and resource, and failures in a second counter.
func TestMetrics(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	c := s.client(t)
	ctx, key := t.Context(), resource.Key{Namespace: "a", Name: "x"}
	info := storetest.Namespaced()
	st := c.Store(info)
	mustCreate(t, st, "x")
	_, err := st.Create(ctx, key, setting(t, "x", "1"), 0)
	if err == nil {
		t.Error("it was created twice")
	}
	for _, do := range []func() error{
		func() error { _, err := st.Get(ctx, key, resource.At{}); return err },
		func() error { _, err := st.List(ctx, resource.ListOptions{}); return err },
		func() error {
			_, err := st.Update(ctx, key, func(*resource.Object) (resource.Mutation, error) {
				return resource.Mutation{Object: setting(t, "x", "2")}, nil
			})
			return err
		},
		func() error { _, err := st.Delete(ctx, key, nil); return err },
		func() error { return c.Healthy(ctx) },
	} {
		if err := do(); err != nil {
			t.Fatal(err)
		}
	}
	for range leaseKeys + 1 {
		if _, err := c.leases.take(ctx, 2*time.Hour); err != nil {
			t.Fatal(err)
		}
	}
	of := "," + info.Group + ","
	ofThis := "," + info.Resource
	want := map[string]float64{"etcd_lease_object_counts": 1, "etcd_bookmark_total,,": 0, "portico_etcd_silent": 0, "portico_etcd_refused_requests_total": 0}
	for op, n := range map[string]float64{"create": 2, "get": 3, "list": 1, "update": 1, "delete": 1} {
		want["etcd_requests_total"+of+op+ofThis] = n
		want["etcd_request_duration_seconds"+of+op+ofThis] = n
	}
	want["etcd_requests_total,,getCurrentResourceVersion,"] = 1
	want["etcd_request_duration_seconds,,getCurrentResourceVersion,"] = 1
	got := shown(t, c)
	for _, name := range []string{"apiserver_storage_size_bytes,etcd-0", "portico_etcd_quota_bytes"} {
		if got[name] < 1<<12 {
			t.Errorf("%s is %v", name, got[name])
		}
		delete(got, name)
	}
	for name, n := range want {
		if g, ok := got[name]; !ok || g != n {
			t.Errorf("%s is %v, want %v", name, g, n)
		}
		delete(got, name)
	}
	if len(got) > 0 {
		t.Errorf("unexpected metrics %v", got)
	}

	s.Pause()
	c.timeout = 50 * time.Millisecond
	if _, err := st.Get(ctx, key, resource.At{}); err == nil {
		t.Error("an etcd that is away answered")
	}
	if got := shown(t, c); got["etcd_request_errors_total"+of+"get"+ofThis] != 1 || got["etcd_requests_total"+of+"get"+ofThis] != 4 {
		t.Errorf("after a failure: %v", got)
	}
	s.Resume()
}

// The size of the database is known while a member of etcd does not answer.
func TestSizeWithoutFirstMember(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	c := s.client(t, func(c *Config) {
		c.Endpoints = append([]string{"unix://" + filepath.Join(t.TempDir(), "away")}, c.Endpoints...)
	})
	eventually(t, "the size is known", func(context.Context) error {
		if got := shown(t, c); got["apiserver_storage_size_bytes,etcd-0"] < 1<<12 {
			return fmt.Errorf("the metrics are %v", got)
		}
		return nil
	})
}
