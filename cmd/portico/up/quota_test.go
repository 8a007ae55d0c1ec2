package up

import (
	"io"
	"slices"
	"strings"
	"testing"

	"portico/cmd/internal/datadir"
)

// The quota goes to the embedded etcd. One that is too small, or of another etcd, is refused.
func TestQuota(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"--quota-backend-bytes=5": "--quota-backend-bytes 5: must be at least 67108864",
		"--quota-backend-bytes=99999999 --etcd-servers=http://etcd:2379": "--quota-backend-bytes applies to the embedded etcd",
	} {
		cmd := New()
		cmd.SetArgs(append(strings.Fields(args), "--data-dir="+t.TempDir()))
		cmd.SetOut(io.Discard)
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		if err := cmd.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", args, err, want)
		}
	}
	cmd := New()
	if err := cmd.ParseFlags([]string{"--quota-backend-bytes=99999999"}); err != nil {
		t.Fatal(err)
	}
	s := &stack{flags: upFlags{all: cmd.Flags()}, dir: &datadir.Dir{Path: "/d", Run: "/run"}}
	if args := s.etcdArgs(); !slices.Contains(args, "--quota-backend-bytes=99999999") {
		t.Errorf("etcd gets %v", args)
	}
}
