package etcd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"portico/internal/testing/storetest"
	"portico/resource"
)

// Open rejects a configuration that cannot work, and does not wait for etcd.
func TestOpenChecksItsConfig(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing")
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		cfg  Config
		want string // in the error; "" for none
	}{
		{Config{Endpoints: []string{"unix:///tmp/x"}}, ""},
		{Config{Endpoints: []string{"http://127.0.0.1:1", "http://[::1]:2/"}}, ""},
		{Config{Endpoints: []string{"https://etcd:2379"}}, ""},
		{Config{}, "--etcd-servers is missing"},
		{Config{Endpoints: []string{"127.0.0.1:2379"}}, "endpoint"},
		{Config{Endpoints: []string{"ftp://x"}}, "must be https://host:port, http://host:port or unix:///path"},
		{Config{Endpoints: []string{"unix://rel/path"}}, "unix:///path"},
		{Config{Endpoints: []string{"http://a:1/v3"}}, "http://host:port"},
		{Config{Endpoints: []string{"http://a:1", "https://b:1"}}, "mix"},
		{Config{Endpoints: []string{"https://a:1"}, CAFile: missing}, "read CA file"},
		{Config{Endpoints: []string{"https://a:1"}, CAFile: empty}, "no certificate"},
		{Config{Endpoints: []string{"https://a:1"}, CertFile: missing, KeyFile: missing}, "client certificate"},
	} {
		c, err := Open(tt.cfg)
		if err == nil {
			c.Close()
		}
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("Open(%+v): %v, want %q", tt.cfg, err, tt.want)
		}
	}
}

// An object is stored at its path below the prefix, without its resourceVersion.
func TestKeyLayout(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	c := s.client(t, func(cfg *Config) { cfg.Prefix = "registry/" })
	made := mustCreate(t, c.Store(storetest.Namespaced()), "x")
	resp, err := c.etcd.Get(t.Context(), "/registry/storetest.portico.dev/settings/a/x")
	if err != nil || len(resp.Kvs) != 1 {
		t.Fatalf("key is not there: %v, %v", resp, err)
	}
	kv := resp.Kvs[0]
	if kv.ModRevision != made.Revision || bytes.Contains(kv.Value, []byte("resourceVersion")) {
		t.Errorf("stored at %d, object says %d: %s", kv.ModRevision, made.Revision, kv.Value)
	}
}

// Errors of etcd's client become Statuses; temporary ones have Retry-After.
func TestErrorsAsStatuses(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, tt := range []struct {
		ctx   context.Context
		err   error
		code  int32
		retry bool
	}{
		{t.Context(), rpctypes.ErrRequestTooLarge, 500, false},
		{t.Context(), status.Error(codes.ResourceExhausted, "grpc: received message larger than max (3 vs. 2)"), 500, false},
		{t.Context(), rpctypes.ErrNoSpace, 507, false},
		{t.Context(), rpctypes.ErrNoLeader, 503, true},
		{t.Context(), rpctypes.ErrGRPCNoLeader, 503, true},
		{t.Context(), rpctypes.ErrTooManyRequests, 503, true},
		{t.Context(), rpctypes.ErrTimeout, 504, true},
		{t.Context(), rpctypes.ErrTimeoutDueToLeaderFail, 504, true},
		{t.Context(), context.DeadlineExceeded, 504, true},
		{t.Context(), rpctypes.ErrPermissionDenied, 500, false},
		{t.Context(), errors.New("odd"), 500, false},
		{ended, rpctypes.ErrNoLeader, 504, false},
	} {
		err := asStatus(tt.ctx, tt.err)
		s := resource.AsStatus(err)
		retry, _ := apierrors.SuggestsClientDelay(err)
		if s.Code != tt.code || (retry > 0) != tt.retry || (s.Reason == "") != (tt.code == 500) {
			t.Errorf("%v becomes %d %s (retry after %d s): %s", tt.err, s.Code, s.Reason, retry, s.Message)
		}
	}
	if err := asStatus(ended, errors.New("any")); !errors.Is(err, context.Canceled) || !apierrors.IsTimeout(err) {
		t.Errorf("ended context becomes %v", err)
	}
	if err := asStatus(t.Context(), nil); err != nil {
		t.Errorf("nil becomes %v", err)
	}
}

// A value above etcd's limit, or above gRPC's, is a 500 with etcd's text.
func TestTooLargeAValue(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	store := s.client(t).Store(storetest.Namespaced())
	for _, size := range []int{1_800_000, 5_000_000} {
		obj := setting(t, "x", strings.Repeat("x", size))
		_, err := store.Create(t.Context(), obj.Key(), obj, 0)
		if got := resource.AsStatus(err); err == nil || got.Code != http.StatusInternalServerError || got.Message != tooLarge {
			t.Errorf("%d bytes: %v", size, err)
		}
	}
}

// A feed delivers a value that cannot be read as unreadable, not as a deletion.
func TestUnreadableValue(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	c := s.client(t)
	store := c.Store(storetest.Namespaced())
	mustCreate(t, store, "good")
	path := c.prefix + "storetest.portico.dev/settings/a/bad"
	if _, err := c.etcd.Put(t.Context(), path, "k8s:enc:aescbc:v1:key:abc"); err != nil {
		t.Fatal(err)
	}
	replica := follow(t, c.Feed())
	if got := replica.Unreadable(); !slices.Equal(got, []string{"storetest.portico.dev/settings/a/bad"}) {
		t.Errorf("got %v as unreadable, want only bad", got)
	}
	// A readable object becomes unreadable, the other one becomes readable, and the first is
	// deleted.
	for _, step := range []struct{ name, value, unreadable string }{
		{"good", "{", "[bad good]"},
		{"bad", string(setting(t, "bad", "2").Data), "[good]"},
		{"good", "", "[]"},
	} {
		key := c.prefix + "storetest.portico.dev/settings/a/" + step.name
		op := clientv3.OpPut(key, step.value)
		if step.value == "" {
			op = clientv3.OpDelete(key)
		}
		resp, err := c.etcd.Txn(t.Context()).Then(op).Commit()
		if err != nil {
			t.Fatal(err)
		}
		waitFor(t, replica, storetest.At(resp.Header.Revision))
		if got := fmt.Sprint(replica.Unreadable()); strings.ReplaceAll(got, "storetest.portico.dev/settings/a/", "") != step.unreadable {
			t.Errorf("got %v as unreadable, want %s", got, step.unreadable)
		}
	}
	replica.Compare(t.Context(), t, store)
}
