//go:build systemd

package install

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// exposure is the highest exposure that systemd-analyze security may find, in tenths of 10.
const exposure = "20"

// systemd finds nothing wrong with the units, and that they are exposed to little.
func TestSystemdAnalyze(t *testing.T) {
	root := scratch(t)
	for role, files := range units {
		do(t, "install", "--role="+role, "--root="+root)
		for _, f := range files {
			calls := [][]string{{"verify", "--man=no"}}
			if strings.HasSuffix(f.path, ".service") {
				calls = append(calls, []string{"security", "--offline=true", "--threshold=" + exposure})
			}
			path := filepath.Join(root, f.path)
			write(t, path, strings.ReplaceAll(read(t, path), program, filepath.Join(root, program)))
			for _, args := range calls {
				out, err := exec.Command("systemd-analyze", append(args, path)...).CombinedOutput()
				if text := string(out); err != nil || args[0] == "verify" && strings.Contains(text, f.name) {
					t.Errorf("%s: %v\n%s", strings.Join(args, " "), err, text)
				} else {
					t.Logf("%s: %s", args[0], text[strings.LastIndex(strings.TrimSpace(text), "\n")+1:])
				}
			}
		}
	}
}
