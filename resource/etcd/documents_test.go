package etcd

import (
	"errors"
	"testing"
)

func TestDocuments(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	at := func(prefix, family string) *Documents {
		return s.client(t, func(c *Config) { c.Prefix = prefix }).Documents(family)
	}
	one, other := at("/here", "a"), at("/here", "a")
	apart := []*Documents{at("/here", "ab"), at("/elsewhere", "a")}
	first, err := one.Write(t.Context(), "x/y", []byte("1"), 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.Write(t.Context(), "x/y", []byte("2"), 0); !errors.Is(err, ErrDocumentChanged) {
		t.Errorf("written over what is there: %v", err)
	}
	second, err := other.Write(t.Context(), "x/y", []byte("2"), first)
	if err != nil || second <= first {
		t.Errorf("written at %d after %d: %v", second, first, err)
	}
	if err := one.Delete(t.Context(), "x/y", first); !errors.Is(err, ErrDocumentChanged) {
		t.Errorf("deleted after somebody wrote: %v", err)
	}
	read, err := one.Read(t.Context())
	if err != nil || len(read) != 1 || string(read["x/y"].Data) != "2" || read["x/y"].Revision != second {
		t.Errorf("read %v, %v", read, err)
	}
	for _, d := range apart {
		if read, err := d.Read(t.Context()); err != nil || len(read) != 0 {
			t.Errorf("another family reads %v, %v", read, err)
		}
	}
	if err := one.Delete(t.Context(), "x/y", second); err != nil {
		t.Error(err)
	}
	if read, err := one.Read(t.Context()); err != nil || len(read) != 0 {
		t.Errorf("after the deletion: %v, %v", read, err)
	}
}
