package attack

import (
	"os/exec"
	"strings"
	"testing"
	"unicode"
)

// Text of objects reaches the terminal of an administrator as text: no control character and no
// line of it is printed. The object is a Lease, which takes a place among the processes.
func TestControlCharactersInCommands(t *testing.T) {
	t.Parallel()
	i := target
	const leases = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
	const hostile = `mark\u001b[31mRED\u001b]0;title\u0007\u009b2J\r\nHealthy      yes\u007f`
	i.must(t, "POST", leases, `{"metadata":{"name":"attack-terminal","labels":{"apiserver.kubernetes.io/identity":"portico-core"},`+
		`"annotations":{"portico.dev/address":"`+hostile+`","portico.dev/instance":"`+hostile+`","portico.dev/version":"`+hostile+`"}},`+
		`"spec":{"holderIdentity":"x","leaseDurationSeconds":3600,"renewTime":"2126-01-01T00:00:00.000000Z"}}`)
	t.Cleanup(func() { i.must(t, "DELETE", leases+"/attack-terminal", "") })
	for _, args := range [][]string{{"status"}, {"status", "-o", "wide"}, {"status", "-o", "json"}, {"status", "-o", "yaml"}, {"doctor"}, {"doctor", "-o", "wide"}} {
		// Both report problems by their exit code.
		out, _ := exec.CommandContext(t.Context(), i.Cmd.Path, append(args, "--data-dir="+i.Dir)...).CombinedOutput()
		text := string(out)
		if !strings.Contains(text, "mark") {
			t.Errorf("control: %v does not show the object: %.2000s", args, text)
		}
		for line := range strings.Lines(text) {
			if bad := strings.IndexFunc(strings.TrimSuffix(line, "\n"), func(r rune) bool { return unicode.IsControl(r) && r != '\t' }); bad >= 0 || strings.HasPrefix(line, "Healthy      yes\u007f") || strings.HasPrefix(line, `Healthy      yes\u007f`) {
				t.Errorf("%v prints %q", args, line)
			}
		}
	}
}
