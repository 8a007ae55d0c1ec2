package etcd

import (
	"net/http"
	"testing"

	"portico/internal/testing/await"
	"portico/internal/testing/storetest"
	"portico/resource"
)

// The connection breaks before a write is answered. An update and a deletion are sent again, and
// executed once. They are acknowledged with the revision at which that was, also if another client has
// written since; if the other one was first, the write is made anew on what is stored. The outcome of an
// update stays unknown if its value is stored, which may be by another client. A creation is not sent
// again: its outcome is known if its object is stored.
func TestLostAnswer(t *testing.T) {
	t.Parallel()
	store := func(c *Client) resource.Store { return c.Store(storetest.Namespaced()) }
	for name, tt := range map[string]struct {
		write func(t *testing.T, s resource.Store, made *resource.Object) (*resource.Object, error)
		// other writes between the attempts.
		other func(t *testing.T, s resource.Store)
		// requests: the first attempt is not executed, instead of executed without an answer.
		requests bool
		// writes is how many there are in the end; at is that of the acknowledged one, 0 for an
		// unknown outcome.
		writes, at int64
	}{
		"create":                    {write: createY, writes: 1, at: 1},
		"create, then deleted":      {write: createY, other: deleteY, writes: 2},
		"create that was not heard": {write: createY, requests: true},
		"update":                    {write: addOne, writes: 1},
		"delete":                    {write: deleteX, writes: 1, at: 1},
		"delete, then another":      {write: deleteX, other: func(t *testing.T, s resource.Store) { mustCreate(t, s, "x") }, writes: 2, at: 1},
		"another, then the update":  {write: addOne, other: another, requests: true, writes: 2, at: 2},
		"the same, then the update": {write: addOne, other: same, requests: true, writes: 1},
		"update that was not heard": {write: addOne, requests: true, writes: 1, at: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t)
			beside := store(s.beside(t, under("/one")))
			made := mustCreate(t, beside, "x")
			c := s.client(t, under("/one"))
			if err := c.Healthy(t.Context()); err != nil {
				t.Fatal(err)
			}
			gate := &s.Responses
			if tt.requests {
				gate = &s.Requests
			}
			gate.Shut()
			received := s.Received.Load()
			type result struct {
				o   *resource.Object
				err error
			}
			done := make(chan result, 1)
			go func() {
				o, err := tt.write(t, store(c), made)
				done <- result{o, err}
			}()
			await.Until(t, "the write was sent", func() bool {
				return s.Received.Load() > received && (tt.requests || s.Etcd.Server.KV().Rev() > made.Revision)
			})
			if tt.other != nil {
				tt.other(t, beside)
			}
			s.Cut()
			s.Mend()
			got := <-done
			if tt.at == 0 {
				if code, retry := outcome(got.err); code != http.StatusGatewayTimeout || retry {
					t.Errorf("got %v", got.err)
				}
				if all := s.Etcd.Server.KV().Rev() - made.Revision; all != tt.writes {
					t.Errorf("%d writes, want %d", all, tt.writes)
				}
				return
			}
			if got.err != nil {
				t.Fatal(got.err)
			}
			if at, all := got.o.Revision-made.Revision, s.Etcd.Server.KV().Rev()-made.Revision; at != tt.at || all != tt.writes {
				t.Errorf("acknowledged as write %d of %d, want %d of %d", at, all, tt.at, tt.writes)
			}
		})
	}
}

func createY(t *testing.T, s resource.Store, _ *resource.Object) (*resource.Object, error) {
	o := setting(t, "y", "1")
	return s.Create(t.Context(), o.Key(), o, 0)
}

func addOne(t *testing.T, s resource.Store, made *resource.Object) (*resource.Object, error) {
	return s.(resource.Hinted).UpdateFrom(t.Context(), keyX, made, plusOne(t, "x"))
}

func deleteX(t *testing.T, s resource.Store, made *resource.Object) (*resource.Object, error) {
	return s.(resource.Hinted).DeleteFrom(t.Context(), keyX, made, nil)
}

func deleteY(t *testing.T, s resource.Store) {
	if _, err := s.Delete(t.Context(), setting(t, "y", "1").Key(), nil); err != nil {
		t.Error(err)
	}
}

// another writes a value that addOne does not.
func another(t *testing.T, s resource.Store) {
	if _, err := s.Update(t.Context(), keyX, asSetting(t, "x", "10")); err != nil {
		t.Error(err)
	}
}

// same writes the value that addOne writes.
func same(t *testing.T, s resource.Store) {
	if _, err := s.Update(t.Context(), keyX, plusOne(t, "x")); err != nil {
		t.Error(err)
	}
}
