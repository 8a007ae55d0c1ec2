package doctor

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"portico/cmd/portico/config"
	"portico/cmd/portico/inspect"
	"portico/cmd/portico/stored"
	"portico/resource/etcd"
)

// Each check of upgrade-check finds what it looks for, and nothing in data that this version wrote.
func TestUpgradeChecks(t *testing.T) {
	t.Parallel()
	targets := map[string]struct {
		check string
		want  verdict
		text  string
		make  func(p *target)
	}{
		"unknown kind": {"kinds", failed, "2 objects below novelties", func(p *target) {
			p.stored.Resources = []*stored.Resource{{Path: "novelties", Objects: 2}}
		}},
		"unreadable": {"objects", failed, "/registry/pods/a/b: broken", func(p *target) { p.stored.Unreadable = []string{"/registry/pods/a/b: broken"} }},
		"old form": {"formats", warns, "3 of pods in v1 JSON", func(p *target) {
			p.stored.Resources = []*stored.Resource{{Path: "pods", Process: stored.Core, Forms: map[string]int{"v1 JSON": 3, "v1 protobuf": 1}, Written: "v1 protobuf"}}
		}},
		"version that is gone": {"definitions", failed, "things: v1 is a stored version, and not a version", func(p *target) {
			p.definitions = []*stored.Definition{{Name: "things", Versions: map[string]bool{"v2": true}, Stored: []string{"v1", "v2"}}}
		}},
		"version that is not served": {"definitions", warns, "things: v1 is not served", func(p *target) {
			p.definitions = []*stored.Definition{{Name: "things", Versions: map[string]bool{"v1": false}, Stored: []string{"v1"}}}
		}},
		"no definition": {"custom-resources", warns, "2 objects below a.b/things have no definition", func(p *target) {
			p.stored.Resources = []*stored.Resource{{Path: "a.b/things", Objects: 2}}
		}},
		"conversion": {"step-back", warns, "v0.1.0 does not call the conversion webhook of things", func(p *target) {
			p.definitions = []*stored.Definition{{Name: "things", Webhook: true}}
		}},
		"stored in a version that is gone": {"custom-resources", warns, "2 of a.b/things are in v1", func(p *target) {
			p.stored.Resources = []*stored.Resource{{Path: "a.b/things", Process: stored.CRD, Forms: map[string]int{"a.b/v1 JSON": 2},
				Definition: &stored.Definition{Storage: "v2", Versions: map[string]bool{"v2": true}}}}
		}},
		"document":       {"documents", warns, "portico/documents/x: unknown", func(p *target) { p.stored.Foreign = []string{"portico/documents/x: unknown"} }},
		"configuration":  {"configuration", failed, "core.old: no process", func(p *target) { p.configFile, p.config = "f", []error{errors.New("core.old: no process")} }},
		"data of etcd":   {"etcd-version", failed, "99.0.0", func(p *target) { p.embedded, p.etcdVersion = true, "99.0.0" }},
		"older etcd":     {"etcd-version", warns, "3.4.0", func(p *target) { p.embedded, p.etcdVersion = true, "3.4.0" }},
		"no way back":    {"step-back", warns, "becomes that of etcd", func(p *target) { p.embedded, p.etcdVersion = true, "3.4.0" }},
		"etcd elsewhere": {"step-back", good, "possible", func(p *target) { p.etcdVersion = "3.4.0" }},
	}
	empty := func() *target {
		return &target{view: &inspect.View{}, stored: &stored.Contents{Keys: map[etcd.Family]int{}}, unopened: errors.New("no kubeconfig")}
	}
	for name, tc := range targets {
		p := empty()
		tc.make(p)
		for _, r := range p.examine(t.Context(), upgradeChecks) {
			switch {
			case r.Check == tc.check && (r.Verdict != tc.want || !strings.Contains(r.Found, tc.text)):
				t.Errorf("%s: %s is %s: %s", name, r.Check, r.Verdict, r.Found)
			case r.Verdict == failed && r.Advice == "":
				t.Errorf("%s: %s does not say what to do", name, r.Check)
			}
		}
	}
	for _, r := range empty().examine(t.Context(), upgradeChecks) {
		if r.Verdict != good && r.Verdict != skipped {
			t.Errorf("%s of nothing is %s: %s", r.Check, r.Verdict, r.Found)
		}
	}
}

// Data of a version that is newer is a step back; by more than one minor version it is refused.
func TestWriters(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		own, recorded string
		want          verdict
	}{
		{"0.2.0", "0.2.0", good}, {"0.2.0", "0.1.9", good}, {"1.0.0", "0.1.0", good},
		{"0.2.0", "0.2.1", warns}, {"0.2.0", "0.3.0", warns}, {"0.2.0", "0.4.0", failed}, {"0.9.0", "2.0.0", failed},
		{"devel", "0.4.0", good}, {"0.0.0-20261123-abc", "0.4.0", good}, {"0.2.0", "devel", good},
	} {
		f := judgeWriters(tc.own, map[string]string{"core": tc.recorded})
		if f.verdict != tc.want || !strings.Contains(f.text, tc.own) || !strings.Contains(f.text, tc.recorded) {
			t.Errorf("%s after %s: %+v", tc.own, tc.recorded, f)
		}
	}
}

// Without an etcd to read, upgrade-check says how to name one.
func TestUpgradeCheckWithoutEtcd(t *testing.T) {
	t.Parallel()
	empty, broken := t.TempDir(), t.TempDir()
	if err := os.MkdirAll(filepath.Join(broken, "etcd/member/snap"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(broken, "etcd/member/snap/db"), []byte("no database"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"--data-dir=" + empty}, "--etcd-servers"},
		{[]string{"--data-dir=" + broken}, "read database"},
		{[]string{"--data-dir=/nope"}, "--data-dir"},
		{[]string{"--etcd-servers=http://127.0.0.1:1"}, "connect to etcd"},
		{[]string{"-o", "short"}, "-o short"},
	} {
		cmd := NewUpgradeCheck(config.Processes{New: func() []*cobra.Command { return nil }})
		cmd.SetArgs(tc.args)
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		if err := cmd.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v: %v", tc.args, err)
		}
	}
}
