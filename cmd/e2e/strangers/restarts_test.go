//go:build strangers

package strangers

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"portico/cmd/e2e"
)

// recovery is how long a controller may take after a process was killed: the reflectors of client-go wait for up to
// a minute between two attempts while their watches fail more often than every two minutes.
const recovery = 3 * time.Minute

// lasts returns how long a controller works while processes are killed. 0: until each process
// was killed once.
func lasts(t *testing.T) time.Duration {
	t.Helper()
	d, err := time.ParseDuration("0" + os.Getenv("PORTICO_TEST_STRANGERS_LAST"))
	if err != nil {
		t.Fatalf("PORTICO_TEST_STRANGERS_LAST: %v", err)
	}
	return d
}

// underRestarts gives a controller work by begin, kills a process of the installation, in turn
// each of them, and awaits by finish that the work is done; round after round.
func underRestarts(t *testing.T, up *e2e.Installation, begin, finish func(round int)) {
	t.Helper()
	processes := []string{"crd", "core", "gateway", "etcd"}
	round := 0
	for began := time.Now(); round < len(processes) || time.Since(began) < lasts(t); round++ {
		begin(round)
		up.Kill9(t, processes[round%len(processes)])
		finish(round)
		if t.Failed() {
			t.FailNow()
		}
	}
	t.Logf("%d rounds, each with a killed process", round)
}

// insist runs kubectl until it succeeds: processes are being restarted.
func insist(t *testing.T, up *e2e.Installation, args ...string) {
	t.Helper()
	e2e.Eventually(t, fmt.Sprintf("kubectl %q", args), func() error {
		_, err := up.Kubectl(t, args...)
		return err
	})
}

// settles awaits what kubectl wait awaits, though processes are being restarted.
func settles(t *testing.T, up *e2e.Installation, args ...string) {
	t.Helper()
	insist(t, up, append([]string{"wait", "--timeout=15s"}, args...)...)
}

// request sends an idempotent request until it is answered and done.
func request(t *testing.T, up *e2e.Installation, client *http.Client, method, path, body string, header ...string) string {
	t.Helper()
	var answer string
	e2e.Eventually(t, method+" "+path, func() error {
		resp, text, err := e2e.Ask(t.Context(), client, method, up.Endpoint+path, body, header...)
		if err == nil && resp.StatusCode >= http.StatusMultipleChoices {
			err = errors.New(resp.Status + " " + text)
		}
		answer = text
		return err
	})
	return answer
}

// apply applies an object with a spec to the path of a collection, until that is done.
func apply(t *testing.T, up *e2e.Installation, client *http.Client, collection, kind, name, spec string) {
	t.Helper()
	version, _, _ := strings.Cut(strings.TrimPrefix(collection, "/apis/"), "/namespaces/")
	request(t, up, client, http.MethodPatch, collection+"/"+name+"?fieldManager=test&force=true",
		fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"name":%q},"spec":%s}`, version, kind, name, spec), "Content-Type: application/apply-patch+yaml")
}
