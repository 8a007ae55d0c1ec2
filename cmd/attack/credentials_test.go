package attack

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"portico/cmd/e2e"
)

// A token is accepted in certain places only, and one of two credentials decides.
func TestWhereTokensCount(t *testing.T) {
	t.Parallel()
	i := target
	f := newForge(t, "a", "carried")
	const user = "system:serviceaccount:a:carried"
	good, bad := "Bearer "+f.good, "Bearer "+f.good+"x"
	jane, expired := i.user(t, "jane"), i.clients.issue(t, subject{name: "jane", from: -2 * time.Hour, until: -time.Hour})
	nobody, asJane, asExpired := i.client(nil), i.client(jane), i.client(expired)
	for _, tc := range []struct {
		name   string
		client *http.Client
		header []string
		code   int
		user   string
	}{
		{"control: a token", nobody, []string{"Authorization: " + good}, 201, user},
		{"another case of the scheme", nobody, []string{"authorization: bEaReR " + f.good}, 201, user},
		{"spaces around it", nobody, []string{"Authorization:   Bearer   " + f.good + "  "}, 201, user},
		{"another scheme", nobody, []string{"Authorization: Token " + f.good}, 403, ""},
		{"no scheme", nobody, []string{"Authorization: " + f.good}, 403, ""},
		{"in a cookie", nobody, []string{"Cookie: token=" + f.good}, 403, ""},
		{"for proxies", nobody, []string{"Proxy-Authorization: " + good}, 403, ""},
		{"a user's certificate and a bad token", asJane, []string{"Authorization: " + bad}, 201, "jane"},
		{"a user's certificate and a good token", asJane, []string{"Authorization: " + good}, 201, "jane"},
		{"an expired certificate and a good token", asExpired, []string{"Authorization: " + good}, 201, user},
		{"an expired certificate and a bad token", asExpired, []string{"Authorization: " + bad}, 401, ""},
		{"a good token and another user", nobody, []string{"Authorization: " + good, "X-Remote-User: mallory", "X-Remote-Group: system:masters"}, 201, user},
	} {
		code, got, _, err := i.review(tc.client, tc.header...)
		if err != nil || code != tc.code || got != tc.user {
			t.Errorf("%s: %d as %q, %v; want %d as %q", tc.name, code, got, err, tc.code, tc.user)
		}
	}
	for _, parameter := range []string{"access_token", "token", "bearer"} {
		if code, body, err := i.ask(nobody, "GET", "/api/v1/namespaces?"+parameter+"="+f.good, ""); err != nil || code != http.StatusForbidden || !strings.Contains(body, "system:anonymous") {
			t.Errorf("a token in the query as %s: %d %s %v", parameter, code, body, err)
		}
	}
}

// keyLines returns a line of each private key of the installation.
func keyLines(t *testing.T, dir string) (out []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "pki", "*.key"))
	if err != nil || len(files) < 5 {
		t.Fatalf("the keys are %v, %v", files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(string(text), "\n")
		out = append(out, lines[len(lines)/2])
	}
	return out
}

// At the highest verbosity no log, audit event, trace, command line and environment of a process contains a credential,
// wherever a client sends it, the value of a Secret, or a private key.
func TestCredentialsInLogs(t *testing.T) {
	t.Parallel()
	i := target
	f := newForge(t, "a", "logged")
	const password, stored = "mallorys-password", "value-of-a-secret"
	const trace = "6c6f67676564206c6f67676564206c6f"
	traced := "Traceparent: 00-" + trace + "-0123456789abcdef-01"
	protocol := "base64url.bearer.authorization.k8s.io." + b64([]byte(f.good))
	nobody := i.client(nil)
	for _, r := range []struct{ path, header string }{
		{"/api/v1/namespaces?access_token=" + f.good, ""},
		{"/api/v1/namespaces?token=" + f.good, ""},
		{"/api/v1/namespaces?client_secret=" + password + "&x=1", ""},
		{"/api/v1/namespaces?password=" + password, ""},
		{"/api/v1/namespaces?watch=0&sig=" + password + "&pwd=" + password + "&jwt=" + f.good + "&auth=" + password + "&key=" + password, ""},
		{"/api/v1/namespaces?code=" + password + ";sessionid=" + password + "&%63ode=" + password + "&" + password, ""},
		{"/api/v1/namespaces?X-Amz-Signature=" + password + "&limit=1&whatever=" + password, ""},
		{"/api/v1/namespaces", "Authorization: Bearer " + f.good},
		{"/api/v1/namespaces", "Authorization: Bearer " + f.good + "x"},
		{"/api/v1/namespaces", "Authorization: Basic " + base64Of([]byte("mallory:"+password))},
		{"/api/v1/namespaces?watch=1", "Sec-WebSocket-Protocol: " + protocol + ", x"},
		{"/api/v1/namespaces/logged-last", ""},
	} {
		if _, _, err := i.ask(nobody, "GET", r.path, "", r.header, traced); err != nil {
			t.Fatal(err)
		}
	}
	const secrets = "/api/v1/namespaces/a/secrets"
	for _, r := range []struct{ method, path, body string }{
		{"POST", secrets, `{"metadata":{"name":"logged"},"type":"a","stringData":{"key":"` + stored + `"}}`},
		{"GET", secrets + "?limit=500", ""},
		{"GET", secrets + "/logged", ""},
		{"PUT", secrets + "/logged", `{"metadata":{"name":"logged"},"type":"b","stringData":{"key":"` + stored + `"}}`},
		{"POST", "/apis/authentication.k8s.io/v1/tokenreviews", `{"spec":{"token":"` + f.good + `"}}`},
		{"DELETE", secrets + "/logged", ""},
	} {
		if _, _, err := i.ask(i.admin, r.method, r.path, r.body, traced); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the access log and the audit log have the requests", func() error {
		for _, name := range []string{accessLog, auditLog} {
			text, err := os.ReadFile(filepath.Join(i.Dir, name))
			if err != nil || !strings.Contains(string(text), "namespaces/logged-last") {
				return fmt.Errorf("%s has %d bytes, %w", name, len(text), err)
			}
		}
		return nil
	})
	for _, process := range []string{"gateway", "core"} {
		eventually(t, "the "+process+" has sent spans of the requests", func() error {
			if n := len(i.traces.Of("portico-"+process, trace)); n < 4 {
				return fmt.Errorf("there are %d", n)
			}
			return nil
		})
	}
	signature := strings.Split(f.good, ".")[2]
	credentials := append(keyLines(t, i.Dir), signature, password, stored, base64Of([]byte(stored)), base64Of([]byte("mallory:"+password)), b64([]byte(f.good))[:100])
	processes := &e2e.Installation{Installation: i.Installation}
	for _, child := range []string{"gateway", "core", "crd", "etcd"} {
		for _, name := range []string{"cmdline", "environ"} {
			text, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", processes.Child(t, child), name))
			if err != nil || name == "cmdline" && !strings.Contains(string(text), child) {
				t.Errorf("%s of %s: %q, %v", name, child, text, err)
			}
			for _, secret := range credentials {
				if strings.Contains(string(text), secret) {
					t.Errorf("%s of %s has a credential", name, child)
				}
			}
		}
	}
	for service, text := range i.traces.Text() {
		for _, secret := range credentials {
			if strings.Contains(text, secret) {
				t.Errorf("a trace of %s has a credential", service)
			}
		}
	}
	err := filepath.WalkDir(i.Dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".log") || !entry.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(path)
		for _, secret := range credentials {
			if strings.Contains(string(text), secret) {
				t.Errorf("%s has a credential", filepath.Base(path))
			}
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}
