package etcd

import (
	"bytes"
	"crypto/sha256"
	"maps"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Keys are counted by resource, at a revision.
func TestCount(t *testing.T) {
	t.Parallel()
	c := newServer(t).client(t)
	var revision int64
	for _, key := range []string{
		"pods/default/a", "pods/default/b", "podtemplates/default/a", "example.com/widgets/default/a", "example.com/gadgets/a",
		"ranges/serviceips", "services/specs/default/a", "services/endpoints/default/a",
	} {
		resp, err := c.etcd.Put(t.Context(), c.prefix+key, "x")
		if err != nil {
			t.Fatal(err)
		}
		revision = resp.Header.Revision
	}
	for _, op := range []clientv3.Op{clientv3.OpPut("/other/x", "x"), clientv3.OpPut("compact_rev_key", "1"), clientv3.OpDelete(c.prefix+"p", clientv3.WithPrefix())} {
		if _, err := c.etcd.Do(t.Context(), op); err != nil {
			t.Fatal(err)
		}
	}
	want := map[string]int64{"pods": 2, "podtemplates": 1, "example.com/widgets": 1, "example.com/gadgets": 1, "ranges": 1, "services": 2}
	if got, err := c.Count(t.Context(), revision); err != nil || !maps.Equal(got, want) {
		t.Errorf("got %v %v, want %v", got, err, want)
	}
	delete(want, "pods")
	delete(want, "podtemplates")
	if got, err := c.Count(t.Context(), 0); err != nil || !maps.Equal(got, want) {
		t.Errorf("now: got %v %v, want %v", got, err, want)
	}
}

// A snapshot ends with its hash. The status of etcd names the revision and the size.
func TestSnapshot(t *testing.T) {
	t.Parallel()
	c := newServer(t).client(t)
	resp, err := c.etcd.Put(t.Context(), c.prefix+"pods/default/a", "x")
	if err != nil {
		t.Fatal(err)
	}
	status, err := c.Status(t.Context())
	if err != nil || status.Revision != resp.Header.Revision || status.ClusterID == 0 || status.Size == 0 || status.Version == "" {
		t.Errorf("status %+v %v", status, err)
	}
	var out bytes.Buffer
	if err := c.Snapshot(t.Context(), &out); err != nil {
		t.Fatal(err)
	}
	body := out.Bytes()[:out.Len()-sha256.Size]
	if sum := sha256.Sum256(body); !bytes.Equal(sum[:], out.Bytes()[len(body):]) {
		t.Error("the hash at the end is another one")
	}
}
