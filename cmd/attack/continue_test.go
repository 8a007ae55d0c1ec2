package attack

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// A continue token does not leave the authorized namespace, whatever key it contains.
func TestForgedContinueTokens(t *testing.T) {
	t.Parallel()
	i := target
	for namespace, names := range map[string][]string{"listed": {"c1", "c2", "c3"}, "listed-too": {"c0", "c9"}} {
		i.namespace(t, namespace)
		of := map[string]string{"listed": "own", "listed-too": mark}[namespace]
		for _, name := range names {
			i.must(t, "POST", "/api/v1/namespaces/"+namespace+"/configmaps", fmt.Sprintf(`{"metadata":{"name":%q},"data":{"of":%q}}`, name, of))
		}
	}
	i.grant(t, "lister", "listed", policyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"list"}})
	lister := i.client(i.user(t, "lister"))
	const path = "/api/v1/namespaces/listed/configmaps?limit=2"
	list := func(more string) (int, string) {
		code, body, err := i.ask(lister, "GET", path+more, "")
		if err != nil {
			t.Fatal(err)
		}
		return code, body
	}
	code, first := list("")
	var page struct {
		Metadata struct{ Continue, ResourceVersion string }
	}
	if err := json.Unmarshal([]byte(first), &page); err != nil || code != http.StatusOK || page.Metadata.Continue == "" {
		t.Fatalf("control: the first page: %d %s %v", code, first, err)
	}
	decoded, err := base64.RawURLEncoding.DecodeString(page.Metadata.Continue)
	if err != nil {
		t.Fatal(err)
	}
	var token claims
	if err := json.Unmarshal(decoded, &token); err != nil {
		t.Fatalf("%s: %v", decoded, err)
	}
	if code, body := list("&continue=" + page.Metadata.Continue); code != http.StatusOK || !strings.Contains(body, `"of":`) {
		t.Errorf("control: the next page: %d %s", code, body)
	}
	if code, body, err := i.ask(i.admin, "GET", "/api/v1/configmaps", ""); err != nil || code != http.StatusOK || !strings.Contains(body, mark) {
		t.Errorf("control: everything: %d %s %v", code, body, err)
	}
	check := func(name, text string) {
		code, body := list("&continue=" + url.QueryEscape(text))
		if code != http.StatusOK && code != http.StatusBadRequest && code != http.StatusGone && code != http.StatusGatewayTimeout {
			t.Errorf("%s: %d %.300s", name, code, body)
		}
		if strings.Contains(body, mark) || code == http.StatusOK && strings.Count(body, `"namespace"`) != strings.Count(compact(body), `"namespace":"listed"`) {
			t.Errorf("%s: %d %s", name, code, body)
		}
	}
	for _, start := range []any{
		nil, "", "/", "..", "../listed-too/c0", "../listed-too/", "/../listed-too/c0", "listed-too/c0", "/registry/configmaps/listed-too/c0", "c1/../../listed-too/c0",
		"\x00", "c1\x00", "%2e%2e/listed-too", `..\listed-too\c0`, "\xff", "zzz", "-", strings.Repeat("z", 10_000), 7, []string{"c1"}, claims{},
	} {
		check(fmt.Sprintf("from %.30q", fmt.Sprint(start)), b64(encoded(token.with("start", start))))
	}
	for _, revision := range []any{nil, 0, -1, 1, 1 << 40, json.Number("9223372036854775808"), "1", 1.5} {
		check(fmt.Sprintf("at revision %v", revision), b64(encoded(token.with("rv", revision))))
	}
	for name, text := range map[string]string{
		"another version": b64(encoded(token.with("v", "meta.k8s.io/v2"))), "no version": b64(encoded(token.with("v", nil))), "nothing": b64(nil), "no JSON": b64([]byte("{")),
		"no base64": "!!", "null": b64([]byte("null")), "two": page.Metadata.Continue + page.Metadata.Continue, "padded": page.Metadata.Continue + "==",
	} {
		check(name, text)
	}
}

// encoded returns claims as JSON.
func encoded(c claims) []byte {
	data, err := json.Marshal(c)
	if err != nil {
		panic(err) // of values that the tests write themselves
	}
	return data
}
