package config

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const head = "apiVersion: config.portico.dev/v1alpha1\nkind: PorticoConfiguration\n"

// processes are one, with a few flags.
var processes = Processes{New: newCommands, CheckValue: func(*pflag.Flag) error { return nil }}

func newCommands() []*cobra.Command {
	core := &cobra.Command{Use: "core"}
	AddFlag(core.Flags())
	core.Flags().Int("v", 0, "")
	core.Flags().String("vmodule", "", "")
	core.Flags().Uint("max-requests-inflight", 400, "")
	core.Flags().Uint("max-mutating-requests-inflight", 200, "")
	core.Flags().Duration("event-ttl", 0, "")
	core.Flags().String("etcd-prefix", "/registry", "")
	core.Flags().StringSlice("etcd-servers", nil, "")
	return []*cobra.Command{core}
}

// A changed file takes effect where it can, the rest and what is invalid is one line of the log, and
// what a flag says stays.
func TestFollow(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "portico.yaml")
	write := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(head + "all: {v: 0, etcd-servers: [a]}")
	cmd := newCommands()[0]
	if err := cmd.ParseFlags([]string{"--config=" + path, "--etcd-prefix=/x"}); err != nil {
		t.Fatal(err)
	}
	file, err := apply(processes.commands(), cmd, func(string) string { return "" })
	if err != nil {
		t.Fatal(err)
	}
	f := newFollower(processes, cmd, file)
	var limits []string
	OnReload("max-requests-inflight", func(value string) error {
		limits = append(limits, value)
		return nil
	})
	for _, step := range []struct{ text, want string }{
		{head + "all: {v: 0, etcd-servers: [a]}", ""},
		{head + "all: {v: 1, etcd-servers: [a]}", `INFO configuration reloaded changed=[all.v]`},
		{head + "all: {v: 1, etcd-servers: [a]} # a comment", ""},
		{head + "all: {v: 1, etcd-servers: [a]}\ncore: {vmodule: 'x=1', etcd-prefix: /y}", `INFO configuration reloaded changed=[core.vmodule]`},
		{head + "all: {v: 1, etcd-servers: [a, b]}\ncore: {event-ttl: 1h}",
			"INFO configuration reloaded changed=[core.vmodule]\nWARN changes in the configuration file need a restart of the process changed=\"[all.etcd-servers core.event-ttl]\""},
		{head + "all: {v: 1, etcd-servers: [a]}\ncore: {max-requests-inflight: 7, max-mutating-requests-inflight: 8}",
			"INFO configuration reloaded changed=[core.max-requests-inflight]\nWARN changes in the configuration file need a restart of the process changed=[core.max-mutating-requests-inflight]"},
		{head + "all: {v: 1, etcd-servers: [a]}", "INFO configuration reloaded changed=[core.max-requests-inflight]"},
		{head + "all: {v: 2", `ERROR the configuration file is not valid; what was read before stays in use err="FILE: line 2: did not find expected ',' or '}'"`},
		{head + "all: {v: much}", `ERROR the configuration file is not valid; what was read before stays in use err="FILE: all.v: \"much\": must be a whole number"`},
		{head + "all: {v: 1, etcd-servers: [a]}\ncore: {vmodule: nonsense}",
			`ERROR the configuration file has a value that is not valid flag=vmodule err="--vmodule: \"nonsense\" must have the form PACKAGE=LEVEL, as in upstream=2"`},
		{head + "all: {etcd-servers: [a]}", `INFO configuration reloaded changed="[all.v core.vmodule]"`},
	} {
		write(step.text)
		for range 2 { // the second look has nothing to say
			var out bytes.Buffer
			f.look(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
				if a.Key == slog.TimeKey || a.Key == "file" {
					return slog.Attr{}
				}
				return a
			}})))
			got := strings.NewReplacer("level=", "", "msg=", "", path, "FILE").Replace(out.String())
			for _, message := range []string{"configuration reloaded", "changes in the configuration file need a restart of the process",
				"the configuration file is not valid; what was read before stays in use", "the configuration file has a value that is not valid"} {
				got = strings.ReplaceAll(got, `"`+message+`"`, message)
			}
			if strings.TrimSpace(got) != step.want {
				t.Errorf("%s\ngot  %s\nwant %s", step.text, got, step.want)
			}
			step.want = ""
		}
	}
	if want := []string{"7", "400"}; !slices.Equal(limits, want) {
		t.Errorf("the limit was set to %q, want %q", limits, want)
	}
}
