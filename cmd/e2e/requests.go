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
)

// HTTPClient returns a client with the credentials of cfg and a time-out of Patience.
func HTTPClient(t *testing.T, cfg *rest.Config) *http.Client {
	t.Helper()
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	client.Timeout = Patience
	return client
}

// Get sends a GET and returns the status code and the body; accept may be "".
func Get(t *testing.T, client *http.Client, url, accept string) (code int, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if accept != "" {
		req.Header.Set("Accept", accept)
	}
	return Send(t, client, req)
}

// Send sends a request and returns the status code and the body.
func Send(t *testing.T, client *http.Client, req *http.Request) (code int, body string) {
	t.Helper()
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(data)
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

// Do sends one request as the administrator and returns the status code and the body of the
// response. Unlike client-go it does not retry. The Content-Type is JSON; header lines are
// "Name: value".
func (up *Installation) Do(t *testing.T, method, path, body string, header ...string) (code int, answer string) {
	t.Helper()
	code, answer, err := up.try(t, method, path, body, header...)
	if err != nil {
		t.Fatal(err)
	}
	return code, answer
}

func (up *Installation) try(t *testing.T, method, path, body string, header ...string) (code int, answer string, err error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, up.Endpoint+path, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	req.Header.Set("Content-Type", "application/json")
	for _, line := range header {
		name, value, _ := strings.Cut(line, ": ")
		req.Header.Set(name, value)
	}
	resp, err := HTTPClient(t, up.Config(t)).Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(data), err
}

// Shows polls path until the response is 200 and its body contains text.
func (up *Installation) Shows(t *testing.T, path, text string) {
	t.Helper()
	Eventually(t, fmt.Sprintf("%s shows %q", path, text), func() error {
		code, body, err := up.try(t, http.MethodGet, path, "")
		if err == nil && (code != http.StatusOK || !strings.Contains(body, text)) {
			err = fmt.Errorf("%d %s", code, body)
		}
		return err
	})
}

// Metrics returns the metrics of a server behind the gateway.
func (up *Installation) Metrics(t *testing.T, server string) string {
	t.Helper()
	run, err := filepath.EvalSymlinks(filepath.Join(up.Dir, "run"))
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(run, server+".sock")
	client := &http.Client{Timeout: Patience, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		},
	}}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+server+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Remote-User", "admin")
	req.Header.Set("X-Remote-Group", "system:masters")
	code, text := Send(t, client, req)
	if code != http.StatusOK {
		t.Fatalf("metrics of %s: %d %s", server, code, text)
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
