package etcd

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"errors"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico/internal/testing/await"
	"portico/internal/testing/storetest"
	"portico/resource"
)

// sealer encrypts with AES-GCM in the envelope of kube-apiserver. It writes with its first
// key and reads with all of them.
type sealer struct {
	names []string
	keys  map[string]cipher.AEAD
}

func newSealer(t *testing.T, names ...string) sealer {
	s := sealer{names: names, keys: map[string]cipher.AEAD{}}
	for _, name := range names {
		block, err := aes.NewCipher([]byte((strings.Repeat(name, 16))[:16]))
		if err != nil {
			t.Fatal(err)
		}
		if s.keys[name], err = cipher.NewGCM(block); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func (s sealer) head(name string) []byte { return []byte(encryptedPrefix + "aesgcm:v1:" + name + ":") }

func (s sealer) ToStorage(_ schema.GroupResource, data, aad []byte) ([]byte, error) {
	nonce := make([]byte, 12)
	if _, err := rand.Read(nonce); err != nil {
		return nil, err
	}
	name := s.names[0]
	return s.keys[name].Seal(append(s.head(name), nonce...), nonce, data, aad), nil
}

func (s sealer) FromStorage(_ schema.GroupResource, data, aad []byte) ([]byte, bool, error) {
	for i, name := range s.names {
		if sealed, ok := bytes.CutPrefix(data, s.head(name)); ok && len(sealed) > 12 {
			plain, err := s.keys[name].Open(nil, sealed[:12], sealed[12:], aad)
			return plain, i > 0, err
		}
	}
	if bytes.HasPrefix(data, []byte(encryptedPrefix)) {
		return nil, false, errors.New("no key of that name")
	}
	return data, true, nil // written before there was encryption
}

// encrypted sets a transformer.
func encrypted(t *testing.T, names ...string) func(*Config) {
	return func(c *Config) { c.Transformer = newSealer(t, names...) }
}

func isUnreadable(err error) bool {
	return err != nil && resource.AsStatus(err).Code == 500 && resource.AsStatus(err).Reason == metav1.StatusReasonStoreReadError
}

// raw returns the stored value of a key.
func raw(t *testing.T, c *Client, path string) string {
	t.Helper()
	resp, err := c.etcd.Get(t.Context(), c.prefix+path)
	if err != nil || len(resp.Kvs) != 1 {
		t.Fatalf("%s: %v, %v", path, resp, err)
	}
	return string(resp.Kvs[0].Value)
}

const pathX = "storetest.portico.dev/settings/a/x"

// An update without a change writes if the value is plain or sealed with a key that is not
// the newest.
func TestStaleValuesAreRewritten(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	plain, first := s.client(t, under("/enc")), s.client(t, under("/enc"), encrypted(t, "one"))
	second := s.client(t, under("/enc"), encrypted(t, "two", "one"))
	made := mustCreate(t, plain.Store(storetest.Namespaced()), "x")
	same := func(cur *resource.Object) (resource.Mutation, error) { return resource.Mutation{Object: cur}, nil }
	for i, tt := range []struct {
		client *Client
		hinted bool
		writes bool
		head   string
	}{
		{first, false, true, "k8s:enc:aesgcm:v1:one:"},
		{first, true, false, "k8s:enc:aesgcm:v1:one:"},
		{second, true, true, "k8s:enc:aesgcm:v1:two:"},
		{second, false, false, "k8s:enc:aesgcm:v1:two:"},
	} {
		var hint *resource.Object
		if tt.hinted {
			hint = made
		}
		got, err := tt.client.Store(storetest.Namespaced()).(resource.Hinted).UpdateFrom(t.Context(), made.Key(), hint, same)
		if err != nil {
			t.Fatal(err)
		}
		if wrote := got.Revision != made.Revision; wrote != tt.writes {
			t.Errorf("update %d without a change: wrote is %t, want %t", i, wrote, tt.writes)
		}
		if v := raw(t, second, pathX); !strings.HasPrefix(v, tt.head) {
			t.Errorf("after update %d etcd holds %q", i, v)
		}
		made = got
	}
}

// A value that was copied to another key, or sealed with a removed key, is unreadable: it is
// neither another object nor none.
func TestValuesThatCannotBeDecrypted(t *testing.T) {
	t.Parallel()
	c := newServer(t).client(t, encrypted(t, "one"))
	direct, through := c.Store(storetest.Namespaced()), cached(t, c).Store(storetest.Namespaced())
	mustCreate(t, direct, "x")
	readable, err := resource.Parse([]byte(`{"apiVersion":"storetest.portico.dev/v1","kind":"Setting","metadata":{"namespace":"b","name":"z"}}`))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := direct.Create(t.Context(), readable.Key(), readable, 0); err != nil {
		t.Fatal(err)
	}
	w, err := through.Watch(t.Context(), resource.WatchOptions{InitialEvents: true})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	value := raw(t, c, pathX)
	for _, name := range []string{"y", "x"} { // x is replaced by what another key sealed
		if _, err := c.etcd.Put(t.Context(), c.prefix+"storetest.portico.dev/settings/a/"+name, value); err != nil {
			t.Fatal(err)
		}
		value = raw(t, c, pathX)[:60] + "tampered"
	}
	for what, store := range map[string]resource.Store{"etcd": direct, "cache": through} {
		for _, name := range []string{"x", "y"} {
			key := resource.Key{Namespace: "a", Name: name}
			_, err := store.Get(t.Context(), key, resource.At{})
			if !isUnreadable(err) || !strings.Contains(err.Error(), name) {
				t.Errorf("%s: get %s: %v", what, name, err)
			}
			if _, err := store.Update(t.Context(), key, plusOne(t, name)); !isUnreadable(err) {
				t.Errorf("%s: update %s: %v", what, name, err)
			}
			if _, err := store.Delete(t.Context(), key, nil); !isUnreadable(err) {
				t.Errorf("%s: delete %s: %v", what, name, err)
			}
		}
		_, err := store.List(t.Context(), resource.ListOptions{})
		if !isUnreadable(err) || !strings.HasPrefix(err.Error(), "failed to read one or more settings.storetest.portico.dev from the storage: ") || !strings.HasSuffix(err.Error(), " (and 1 more)") {
			t.Errorf("%s: list: %v", what, err)
		} else if causes := resource.AsStatus(err).Details.Causes; len(causes) != 2 || causes[0].Field != c.prefix+pathX || causes[1].Field != c.prefix+"storetest.portico.dev/settings/a/y" {
			t.Errorf("%s: list: causes %v", what, causes)
		}
		if l, err := store.List(t.Context(), resource.ListOptions{Namespace: "b"}); err != nil || len(l.Items) != 1 {
			t.Errorf("%s: list of another namespace: %v, %v", what, l, err)
		}
	}
	if _, err := through.Watch(t.Context(), resource.WatchOptions{InitialEvents: true}); !isUnreadable(err) {
		t.Errorf("watch with initial events: %v, want a StoreReadError", err)
	}
	// The running watch ends with Expired, without a deletion.
	ctx, cancel := context.WithTimeout(t.Context(), await.Patience())
	defer cancel()
	for err = nil; err == nil; {
		var events []resource.Event
		events, err = w.Next(ctx)
		for _, e := range events {
			if e.Type == resource.Deleted {
				t.Errorf("the watch sent a deletion")
			}
		}
	}
	if !apierrors.IsResourceExpired(err) {
		t.Errorf("the watch ended with %v", err)
	}
	discardAll(t, direct, through.(resource.Discarder))
}

// A value that is encrypted is unreadable without a configuration, and the error says with what.
func TestEncryptedValuesOfAnotherServer(t *testing.T) {
	t.Parallel()
	c := newServer(t).client(t)
	for value, want := range map[string]string{
		"k8s:enc:aescbc:v1:key1:\x00:\xff": `it is encrypted by provider aescbc (v1) with key "key1": name the configuration with --encryption-provider-config`,
		"k8s:enc:kms:v2:vault:\x0a":        `it is encrypted by provider kms (v2) with key "vault": name the configuration with --encryption-provider-config`,
		"k8s:enc:":                         "it is encrypted",
	} {
		if _, err := c.etcd.Put(t.Context(), c.prefix+pathX, value); err != nil {
			t.Fatal(err)
		}
		_, err := c.Store(storetest.Namespaced()).Get(t.Context(), keyX, resource.At{})
		if full := `unable to read the stored object at key "` + c.prefix + pathX + `": ` + want; !isUnreadable(err) || err.Error() != full {
			t.Errorf("got %v, want %s", err, full)
		}
	}
}

// discardAll removes x and y, which cannot be read.
func discardAll(t *testing.T, direct resource.Store, d resource.Discarder) {
	for _, dryRun := range []bool{true, false} {
		if err := d.Discard(t.Context(), keyX, dryRun); err != nil {
			t.Fatalf("discard (dry run %t): %v", dryRun, err)
		}
	}
	if err := d.Discard(t.Context(), keyX, false); !apierrors.IsNotFound(err) {
		t.Errorf("discard again: %v", err)
	}
	if _, err := direct.Get(t.Context(), keyX, resource.At{}); !apierrors.IsNotFound(err) {
		t.Errorf("after discard: %v", err)
	}
	if err := d.Discard(t.Context(), resource.Key{Namespace: "a", Name: "y"}, false); err != nil {
		t.Error(err)
	}
	readable := mustCreate(t, direct, "z")
	if err := d.Discard(t.Context(), readable.Key(), false); !apierrors.IsConflict(err) {
		t.Errorf("discard of what can be read: %v", err)
	}
	l, err := d.List(t.Context(), resource.ListOptions{Namespace: "a"})
	if err != nil || len(l.Items) != 1 {
		t.Errorf("list once all can be read: %v, %v", l, err)
	}
}
