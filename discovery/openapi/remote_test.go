package openapi

import (
	"errors"
	"fmt"
	"net/http/httptest"
	"testing"
)

// Documents are kept within bounds of number and bytes, each under its owner;
// those that cannot be had are left to the server to answer.
func TestRemoteBounds(t *testing.T) {
	const budget = 100_000
	m := NewRemote(Config{Budget: budget})
	fetched := 0
	serve := func(owner string, i int, err error) bool {
		link := fmt.Sprintf("/openapi/v3/apis/g%d/v1?hash=1", i)
		return m.Serve(httptest.NewRecorder(), httptest.NewRequest("GET", link, nil), owner, fmt.Sprintf("apis/g%d/v1", i), link, func() ([]byte, error) {
			fetched++
			return make([]byte, 1000), err
		})
	}
	if serve("a", 0, errors.New("connection refused")) {
		t.Error("something was served of a server that is away")
	}
	if !serve("a", 0, nil) || !serve("a", 0, errors.New("connection refused")) || fetched != 2 {
		t.Errorf("after the server came back: fetched %d times", fetched)
	}
	if !serve("b", 0, nil) || fetched != 3 {
		t.Error("another server's document was taken for this one's")
	}
	for i := range maxRemote + 1 {
		if !serve("a", i, nil) {
			t.Fatal("not served")
		}
	}
	if n := m.known.Len(); n != maxRemote {
		t.Errorf("%d documents are known", n)
	}
	if m.documents.cache.bytes > budget || m.documents.cache.bytes < budget/2 {
		t.Errorf("%d bytes are kept", m.documents.cache.bytes)
	}
}
