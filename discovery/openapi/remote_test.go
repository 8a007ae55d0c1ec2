package openapi

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// Documents are cached by owner, within bounds of number and bytes. Requests for those that cannot be
// fetched go to the server.
func TestRemoteBounds(t *testing.T) {
	const budget = 100_000
	m := NewRemote(Config{Budget: budget})
	fetched := 0
	serve := func(owner string, i int, err error) bool {
		link := fmt.Sprintf("/openapi/v3/apis/g%d/v1?hash=1", i)
		return m.Serve(httptest.NewRecorder(), httptest.NewRequest("GET", link, nil), owner, fmt.Sprintf("apis/g%d/v1", i), link, func() ([]byte, error) {
			fetched++
			return fmt.Appendf(nil, `{"openapi":"3.0.0","x":"%0970d"}`, i), err
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
	if _, bytes := m.documents.cache.built.Size(); bytes > budget || bytes < budget/2 {
		t.Errorf("%d bytes are kept", bytes)
	}
	last := fmt.Sprintf("apis/g%d/v1", maxRemote)
	m.Keep(func(key string) (owner, link string) {
		if key == last {
			return "a", "/openapi/v3/" + key + "?hash=1"
		}
		return "a", "/openapi/v3/" + key + "?hash=2"
	})
	if n, _ := m.documents.cache.built.Size(); n != 1 || m.known.Len() != 1 {
		t.Errorf("%d documents are kept, and %d known, of those that are not in the index", n, m.known.Len())
	}
}

// A request for an invalid document gets the reason, which Broken returns until a valid document is
// fetched. The document of an unavailable server is not broken.
func TestRemoteNamesBrokenDocuments(t *testing.T) {
	const key, link = "apis/g/v1", "/openapi/v3/apis/g/v1?hash=1"
	m := NewRemote(Config{})
	links := map[string]string{key: link, "apis/h/v1": "/openapi/v3/apis/h/v1?hash=1"}
	serve := func(body string, err error) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		if !m.Serve(w, httptest.NewRequest("GET", link, nil), "a", key, link, func() ([]byte, error) { return []byte(body), err }) {
			return nil
		}
		return w
	}
	if serve("", errors.New("connection refused")) != nil || m.Broken("a", links) != nil {
		t.Errorf("while its server is away: %v", m.Broken("a", links))
	}
	for body, want := range map[string]string{"<html>": "decode", "[]": "decode", "{}": "no field openapi", `{"openapi":"3.0.0","paths":7}`: "decode"} {
		w := serve(body, nil)
		if w == nil || w.Code != http.StatusBadGateway || !strings.Contains(w.Body.String(), key) || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s: %+v", body, w)
		}
		if all := m.Broken("a", links); len(all) != 1 || all[0].Key != key || !strings.Contains(all[0].Message, want) {
			t.Errorf("%s: %+v", body, all)
		}
	}
	if all := m.Broken("b", links); all != nil {
		t.Errorf("of another server: %v", all)
	}
	serve("", &BrokenError{errors.New(strings.Repeat("x\n", 999))})
	if all := m.Broken("a", links); len(all) != 1 || len(all[0].Message) > maxMessage+3 || strings.Contains(all[0].Message, "\n") {
		t.Errorf("a long reason: %+v", all)
	}
	if w := serve(`{"openapi":"3.0.0","paths":{}}`, nil); w == nil || w.Code != http.StatusOK || m.Broken("a", links) != nil {
		t.Errorf("after a good one: %+v %v", w, m.Broken("a", links))
	}
}

// A converted document is always answered by the gateway.
func TestServeConverted(t *testing.T) {
	const key, link = "apis/g/v1", "/openapi/v3/apis/g/v1?hash=1"
	m := NewRemote(Config{})
	for _, tc := range []struct {
		url, accept string
		err         error
		code        int
	}{
		{link, "", errors.New("connection refused"), http.StatusServiceUnavailable},
		{link, "", nil, http.StatusOK},
		{"/openapi/v3/apis/g/v1", "", nil, http.StatusOK},
		{"/openapi/v3/apis/g/v1?hash=2", "", nil, http.StatusMovedPermanently},
		{link, "text/html", nil, http.StatusNotAcceptable},
	} {
		w, r := httptest.NewRecorder(), httptest.NewRequest("GET", tc.url, nil)
		if tc.accept != "" {
			r.Header.Set("Accept", tc.accept)
		}
		m.ServeConverted(w, r, "a", key, link, func() ([]byte, error) { return []byte(`{"openapi":"3.0.0","paths":{}}`), tc.err })
		if w.Code != tc.code || tc.code == http.StatusMovedPermanently && w.Header().Get("Location") != link {
			t.Errorf("%+v: %d %v", tc, w.Code, w.Header())
		}
	}
}
