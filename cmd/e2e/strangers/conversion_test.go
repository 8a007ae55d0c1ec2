//go:build strangers

package strangers

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"portico/cmd/e2e"
	"portico/cmd/internal/pki"
	"portico/cmd/internal/testtools"
	"portico/internal/testing/await"
)

// hostsPath is the path of hosts in a version.
func hostsPath(version string) string {
	return "/apis/hosts.example.com/" + version + "/namespaces/default/hosts"
}

// hostSpec is the spec of a host in each version.
var hostSpec = map[string]func(name string, port int) string{
	"v1":       func(name string, port int) string { return fmt.Sprintf(`{"host":%q,"port":"%d"}`, name, port) },
	"v1beta1":  func(name string, port int) string { return fmt.Sprintf(`{"address":"%s:%d"}`, name, port) },
	"v1alpha1": func(name string, port int) string { return fmt.Sprintf(`{"url":"http://%s:%d"}`, name, port) },
}

// A controller made with controller-runtime reconciles a resource in three versions, which its own
// webhook converts, while processes are killed. Objects written in any version are right in all of
// them at the end, and each was reconciled in all.
func TestConversionWithControllerRuntime(t *testing.T) {
	t.Parallel()
	up := e2e.Install(t, t.TempDir())
	client := e2e.HTTPClient(t, up.Config(t))
	calls := startHosts(t, up)

	versions := []string{"v1", "v1beta1", "v1alpha1"}
	ports := map[string]int{} // of each host
	write := func(version, name string, port int) {
		apply(t, up, client, hostsPath(version), "Host", name, hostSpec[version](name, port))
		ports[name] = port
	}
	writes := 0
	underRestarts(t, up, func(round int) {
		for i, version := range versions {
			write(version, fmt.Sprintf("h-%d-%d", round, i), 1000+round)
			writes++
			if round > 0 { // in another version than it was written in before
				write(version, fmt.Sprintf("h-%d-%d", round-1, (i+1)%3), 2000+round)
				writes++
			}
		}
	}, func(round int) {
		for name, port := range ports {
			if strings.HasPrefix(name, fmt.Sprintf("h-%d-", round)) || strings.HasPrefix(name, fmt.Sprintf("h-%d-", round-1)) {
				expectHost(t, up, client, name, port)
			}
		}
	})
	for name, port := range ports {
		expectHost(t, up, client, name, port)
	}
	for _, v := range versions {
		list := request(t, up, client, http.MethodGet, hostsPath(v), "")
		if n := strings.Count(list, `"kind":"Host"`); n != len(ports) {
			t.Errorf("%d hosts in a list of %s, want %d", n, v, len(ports))
		}
	}
	// Each of the three reconcilers writes the status after a write.
	t.Logf("%d hosts, %d writes of the test: %d calls of the webhook", len(ports), writes, calls())
	if n := calls(); n < writes || n > 80*writes {
		t.Errorf("%d calls of the webhook for %d writes", n, writes)
	}
}

// startHosts creates the definition of hosts and starts their controller, of cmd/tools/hosts. It
// returns a function that returns the number of calls of its webhook.
func startHosts(t *testing.T, up *e2e.Installation) (calls func() int) {
	t.Helper()
	program := e2e.Program(t, testtools.Hosts)
	files, err := pki.Ensure(pki.Config{Dir: filepath.Join(t.TempDir(), "pki"), Hosts: []string{"127.0.0.1"}})
	if err != nil {
		t.Fatal(err)
	}
	certificates := t.TempDir()
	e2e.WriteFile(t, filepath.Join(certificates, "tls.crt"), read(t, files.Serving.CertFile))
	e2e.WriteFile(t, filepath.Join(certificates, "tls.key"), read(t, files.Serving.KeyFile))
	port := e2e.FreePort(t, "127.0.0.1")
	url := "https://127.0.0.1:" + port
	definition := strings.NewReplacer("url: URL", "url: "+url+"/convert",
		"caBundle: CA", "caBundle: "+base64.StdEncoding.EncodeToString([]byte(read(t, files.ServingCAFile)))).Replace(read(t, "testdata/hosts.yaml"))
	file := filepath.Join(t.TempDir(), "hosts.yaml")
	e2e.WriteFile(t, file, definition)
	up.MustKubectl(t, "apply", "-f", file)
	kubectlWait(t, up, "--for=condition=Established", "crd/hosts.hosts.example.com")
	start(t, []string{kubeconfig(up)}, program, "--port="+port, "--cert-dir="+certificates)
	authorities := x509.NewCertPool()
	authorities.AppendCertsFromPEM([]byte(read(t, files.ServingCAFile)))
	client := &http.Client{Timeout: await.Patience(), Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: authorities}}}
	return func() int {
		_, text := e2e.Get(t, client, url+"/calls", "")
		return atoi(text)
	}
}

// expectHost waits until a host is right in every version, and seen so by every reconciler.
func expectHost(t *testing.T, up *e2e.Installation, client *http.Client, name string, port int) {
	t.Helper()
	address := fmt.Sprintf("%s:%d", name, port)
	for version, spec := range hostSpec {
		e2e.Eventually(t, name+" is right in "+version, func() error {
			object := request(t, up, client, http.MethodGet, hostsPath(version)+"/"+name, "")
			var got struct {
				APIVersion string
				Spec       json.RawMessage
				Status     struct{ Seen map[string]string }
			}
			if err := json.Unmarshal([]byte(object), &got); err != nil {
				return err
			}
			seen := got.Status.Seen
			if got.APIVersion != "hosts.example.com/"+version || string(got.Spec) != spec(name, port) ||
				seen["v1"] != address || seen["v1beta1"] != address || seen["v1alpha1"] != address {
				return fmt.Errorf("want %s: %s", spec(name, port), object)
			}
			return nil
		})
	}
}
