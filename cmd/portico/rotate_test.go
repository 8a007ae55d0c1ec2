package main

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"portico/cmd/e2e"
)

// "portico certs rotate" has "portico up" replace its authorities. A client with the kubeconfig of before is served until the
// earlier authorities are retired, and one with the present kubeconfig goes on.
func TestCertsRotate(t *testing.T) {
	t.Parallel()
	e2e.NeedsInstallation(t)
	dir := t.TempDir()
	up := e2e.Install(t, dir, "--certificate-lifetime=150s", "--certificate-authority-lifetime=10m")
	key := func() []byte {
		data, err := os.ReadFile(filepath.Join(up.Dir, "pki", "serving-ca.key"))
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	rotate := func(args ...string) (string, error) {
		return command(t, append([]string{"certs", "rotate", "--data-dir=" + up.Dir}, args...)...)
	}
	before, old := up.Config(t), key()
	if err := get(before); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time it is under way
		if out, err := rotate(); err != nil || strings.Count(out, " in ") != 4 {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	if out, err := rotate("--retire"); err == nil || !strings.Contains(err.Error(), "a replacement is under way") {
		t.Errorf("retired: %v\n%s", err, out)
	}
	now := before
	e2e.Within(t, time.Minute, "the new authorities sign, and the kubeconfig is written again", func() error {
		if now = up.Config(t); bytes.Equal(key(), old) || bytes.Equal(now.CertData, before.CertData) {
			return fmt.Errorf("the key or the certificate is that of before")
		}
		return get(before)
	})
	e2e.Eventually(t, "the gateway has a certificate of the new authority", func() error {
		for _, config := range []*rest.Config{before, now} {
			if err := get(config); err != nil {
				return err
			}
		}
		return nil
	})
	if out, err := rotate("--retire"); err != nil || strings.Contains(out, " in ") {
		t.Fatalf("%v\n%s", err, out)
	}
	e2e.Eventually(t, "a client with the kubeconfig of before is refused", func() error {
		if err := get(up.Config(t)); err != nil {
			t.Fatal(err)
		}
		if get(before) == nil {
			return fmt.Errorf("it is served")
		}
		return nil
	})
}

// get sends a request on a new connection.
func get(config *rest.Config) error {
	tls, err := rest.TLSConfigFor(config)
	if err != nil {
		return err
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: tls, DisableKeepAlives: true}, Timeout: 10 * time.Second}
	res, err := client.Get(config.Host + "/api/v1/namespaces/default")
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("the gateway answers %s", res.Status)
	}
	return nil
}
