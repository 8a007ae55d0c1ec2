package e2e

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"portico/cmd/internal/pki"
	"portico/internal/testing/await"
)

// HTTPClient returns a client with the credentials of cfg and a time-out of Patience.
func HTTPClient(t *testing.T, cfg *rest.Config) *http.Client {
	t.Helper()
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	client.Timeout = await.Patience()
	return client
}

// Ask sends one request and returns the response and its body, which is closed. Unlike client-go
// it does not retry. The Content-Type is JSON; header lines "Name: value" replace the default or
// are added. If the body breaks off, the response, the body until then, and an error are returned.
func Ask(ctx context.Context, client *http.Client, method, url, body string, header ...string) (*http.Response, string, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return nil, "", err
	}
	req.Header.Set("Content-Type", "application/json")
	for _, line := range header {
		if name, value, _ := strings.Cut(line, ": "); value != "" {
			req.Header.Set(name, value)
		}
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, "", err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	return resp, string(data), err
}

// Get sends a GET and returns the status code and the body; accept may be "".
func Get(t *testing.T, client *http.Client, url, accept string) (code int, body string) {
	t.Helper()
	resp, body, err := Ask(t.Context(), client, http.MethodGet, url, "", "Accept: "+accept)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, body
}

// UserConfig returns the configuration of a client with a certificate of its own.
func (up *Installation) UserConfig(t *testing.T, user string) *rest.Config {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if _, err := pki.IssueKubeconfig(filepath.Join(up.Dir, "pki"), file, up.Endpoint, pki.Request{User: user, ValidFor: time.Hour}); err != nil {
		t.Fatal(err)
	}
	cfg, err := clientcmd.BuildConfigFromFlags("", file)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// Do sends one request as the administrator, as [Ask] does, and returns the status code and the
// body of the response.
func (up *Installation) Do(t *testing.T, method, path, body string, header ...string) (code int, answer string) {
	t.Helper()
	resp, answer, err := Ask(t.Context(), HTTPClient(t, up.Config(t)), method, up.Endpoint+path, body, header...)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, answer
}

// Post creates an object as the administrator.
func (up *Installation) Post(t *testing.T, path, body string) {
	t.Helper()
	if code, answer := up.Do(t, http.MethodPost, path, body); code != http.StatusCreated {
		t.Fatalf("POST %s: %d %s", path, code, answer)
	}
}

// Shows polls path until the response is 200 and its body contains text.
func (up *Installation) Shows(t *testing.T, path, text string) {
	t.Helper()
	Eventually(t, fmt.Sprintf("%s shows %q", path, text), func() error {
		resp, body, err := Ask(t.Context(), HTTPClient(t, up.Config(t)), http.MethodGet, up.Endpoint+path, "")
		if err == nil && (resp.StatusCode != http.StatusOK || !strings.Contains(body, text)) {
			err = fmt.Errorf("%s %s", resp.Status, body)
		}
		return err
	})
}

// Metrics returns the metrics of a server behind the gateway.
func (up *Installation) Metrics(t *testing.T, server string) string {
	t.Helper()
	return up.Read(t, server, "/metrics")
}

// Read returns the answer of a server behind the gateway to a GET that is sent to itself.
func (up *Installation) Read(t *testing.T, server, path string) string {
	t.Helper()
	run, err := filepath.EvalSymlinks(filepath.Join(up.Dir, "run"))
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(run, server+".sock")
	client := &http.Client{Timeout: await.Patience(), Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		},
	}}
	resp, text, err := Ask(t.Context(), client, http.MethodGet, "http://"+server+path, "", "X-Remote-User: admin", "X-Remote-Group: system:masters")
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s of %s: %.500s %v", path, server, text, err)
	}
	return text
}

// Kill9 ends a child by SIGKILL; the supervisor starts it again.
func (up *Installation) Kill9(t *testing.T, child string) {
	t.Helper()
	pid := up.Child(t, child)
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	Eventually(t, child+" is another process", func() error {
		if up.Child(t, child) == pid {
			return fmt.Errorf("it is still process %d", pid)
		}
		return nil
	})
}
