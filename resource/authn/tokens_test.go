package authn

import (
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"portico/resource"
)

// Tokens of the file are users, and a changed file is read again, unless it is invalid.
func TestTokenFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens.csv")
	writeFile(t, path, []byte("secret,jane,u-1,\"dev, ops\"\nother,joe,\n"))
	file, err := TokenFile(path)
	if err != nil {
		t.Fatal(err)
	}
	alwaysCheck(file.users)
	ask := func(header string) (*resource.User, bool, error) {
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set("Authorization", header)
		return Bearer(file).Authenticate(r)
	}
	for _, c := range []struct {
		header string
		user   string
		bad    bool
	}{
		{"", "", false}, {"Basic x", "", false}, {"Bearer ", "", false},
		{"Bearer secret", "jane", false}, {"bearer  secret ", "jane", false}, {"Bearer other", "joe", false},
		{"Bearer wrong", "", true}, {"Bearer secret extra", "", true},
	} {
		user, claimed, err := ask(c.header)
		if claimed != (c.user != "") || (err != nil) != c.bad || claimed && user.Name != c.user {
			t.Errorf("%q: got %+v, %v, %v", c.header, user, claimed, err)
		}
	}
	user, _, _ := ask("Bearer secret")
	if want := []string{"dev", "ops", resource.GroupAuthenticated}; user.UID != "u-1" || !reflect.DeepEqual(user.Groups, want) {
		t.Errorf("got %+v", user)
	}

	writeFile(t, path, []byte("secret,jane\n"))
	if _, claimed, _ := ask("Bearer secret"); !claimed {
		t.Error("a broken file replaced a good one")
	}
	writeFile(t, path, []byte("secret,janet,\n"))
	if user, _, _ := ask("Bearer secret"); user == nil || user.Name != "janet" {
		t.Errorf("the file was not read again: %+v", user)
	}
}

// Errors of a token file name the line.
func TestParseTokensErrors(t *testing.T) {
	for in, want := range map[string]string{
		"a,b":              "line 1",
		",b,c":             "line 1",
		"a,b,c\na,d,e":     "line 2: duplicate token",
		"a,\"b,c":          "quote",
		"a,,c":             "line 1",
		"x,y,z\n\n\na,b\n": "line 4",
	} {
		if _, err := parseTokens(strings.NewReader(in)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", in, err, want)
		}
	}
}

// A WebSocket protocol with a token is a credential if another protocol is offered too.
func TestWebSocketToken(t *testing.T) {
	const prefix = "base64url.bearer.authorization.k8s.io."
	tokens := fixedToken("secret")
	for _, c := range []struct {
		name      string
		protocols []string
		upgrade   bool
		claimed   bool
		bad       bool
	}{
		{"good", []string{prefix + "c2VjcmV0, v4.channel.k8s.io"}, true, true, false},
		{"two lines", []string{"v4.channel.k8s.io", prefix + "c2VjcmV0"}, true, true, false},
		{"alone", []string{prefix + "c2VjcmV0"}, true, false, true},
		{"twice", []string{prefix + "c2VjcmV0," + prefix + "c2VjcmV0, x"}, true, false, true},
		{"padded", []string{prefix + "c2VjcmV0Cg==, x"}, true, false, true},
		{"wrong", []string{prefix + "eA, x"}, true, false, true},
		{"empty", []string{prefix + ", x"}, true, false, false},
		{"no token", []string{"x"}, true, false, false},
		{"no upgrade", []string{prefix + "c2VjcmV0, x"}, false, false, false},
	} {
		r := httptest.NewRequest("GET", "/", nil)
		r.Header["Sec-Websocket-Protocol"] = c.protocols
		if c.upgrade {
			r.Header.Set("Connection", "keep-alive, Upgrade")
			r.Header.Set("Upgrade", "websocket")
		}
		_, claimed, err := Bearer(tokens).Authenticate(r)
		if claimed != c.claimed || (err != nil) != c.bad {
			t.Errorf("%s: claimed %v, err %v", c.name, claimed, err)
		}
	}
}

func fixedToken(token string) *StaticTokens {
	users, err := parseTokens(strings.NewReader(token + ",jane,"))
	if err != nil {
		panic(err)
	}
	r, err := newReloaded(func() (staticUsers, error) { return users, nil })
	if err != nil {
		panic(err)
	}
	return &StaticTokens{users: r}
}

func bearerRequest(token string) *http.Request {
	r := httptest.NewRequest("GET", "/", nil)
	r.Header.Set("Authorization", "Bearer "+token)
	return r
}
