package install

import (
	"bytes"
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write deploy/systemd")

// scratch returns the root of a system that has the program.
func scratch(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, filepath.Dir(program)), 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(root, program), "#!/bin/true\n")
	return root
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// do runs a command and returns what it prints.
func do(t *testing.T, args ...string) string {
	t.Helper()
	cmd := New()
	if args[0] == "uninstall" {
		cmd = NewUninstall()
	}
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetArgs(append([]string{"--systemd"}, args[1:]...))
	if err := cmd.Execute(); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// Each role has its files. A second run changes nothing; an administrator's change stays, unless
// it is forced away; what an earlier version wrote is replaced; the configuration never is.
func TestInstall(t *testing.T) {
	t.Parallel()
	for role, files := range units {
		t.Run(role, func(t *testing.T) {
			t.Parallel()
			root := scratch(t)
			if out := do(t, "install", "--role="+role, "--root="+root, "--dry-run"); strings.Count(out, "would write ") != len(files)+3 {
				t.Errorf("dry run: %s", out)
			}
			if _, err := os.Stat(filepath.Join(root, "etc")); err == nil {
				t.Fatal("a dry run writes")
			}
			if out := do(t, "install", "--role="+role, "--root="+root); strings.Count(out, "wrote ") != len(files)+3 {
				t.Errorf("first run: %s", out)
			}
			if out := do(t, "install", "--role="+role, "--root="+root); strings.Count(out, "unchanged ") != len(files)+2 || !strings.Contains(out, "kept       "+configurationPath) {
				t.Errorf("second run: %s", out)
			}
			path := filepath.Join(root, files[0].path)
			original := read(t, path)
			write(t, path, strings.Replace(original, "WatchdogSec=60s", "WatchdogSec=10s", 1))
			write(t, filepath.Join(root, configurationPath), "mine")
			want := `it has "WatchdogSec=10s" where this version has "WatchdogSec=60s"; --force replaces it`
			if out := do(t, "install", "--role="+role, "--root="+root); !strings.Contains(out, want) || read(t, path) == original {
				t.Errorf("changed by an administrator: %s", out)
			}
			if out := do(t, "uninstall", "--role="+role, "--root="+root); !strings.Contains(out, "kept       "+files[0].path) {
				t.Errorf("uninstall: %s", out)
			}
			do(t, "install", "--role="+role, "--root="+root, "--force")
			if read(t, path) != original || read(t, filepath.Join(root, configurationPath)) != "mine" {
				t.Error("--force does not replace the unit, or replaces the configuration")
			}
			write(t, path, string(withChecksum([]byte("[Unit]\n"))))
			if out := do(t, "install", "--role="+role, "--root="+root); !strings.Contains(out, "wrote      "+files[0].path) || read(t, path) != original {
				t.Errorf("a unit of an earlier version: %s", out)
			}
			do(t, "uninstall", "--role="+role, "--root="+root)
			for _, f := range files {
				if _, err := os.Stat(filepath.Join(root, f.path)); err == nil {
					t.Errorf("%s is still there", f.path)
				}
			}
		})
	}
}

// What cannot succeed is one line with what to do.
func TestRefusals(t *testing.T) {
	t.Parallel()
	for want, o := range map[string]options{
		"--systemd is missing":                 {role: "up", root: "/"},
		"--role=etcd: must be up, gateway":     {systemd: true, role: "etcd", root: "/"},
		"--root=x: must be an absolute path":   {systemd: true, role: "up", root: "x"},
		"needs root; run it with sudo, or see": {systemd: true, role: "up", root: "/"},
	} {
		if err := o.check(1000); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	o := options{systemd: true, role: "up", root: t.TempDir()}
	if err := o.check(1000); err != nil {
		t.Error(err)
	}
	if err := o.install(&report{to: &bytes.Buffer{}}); err == nil || !strings.Contains(err.Error(), "install -m 0755 portico "+o.root+program) {
		t.Errorf("without the program: %v", err)
	}
}

// deploy/systemd shows what is installed. -update writes it.
func TestDeployFolder(t *testing.T) {
	t.Parallel()
	folder := "../../../deploy/systemd"
	err := fs.WalkDir(embedded, "units", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := embedded.ReadFile(name)
		if err != nil {
			return err
		}
		path := filepath.Join(folder, d.Name())
		if *update {
			return os.WriteFile(path, text, 0o644)
		}
		if read(t, path) != string(text) {
			t.Errorf("%s differs from what portico install writes; run go test ./cmd/portico/install -update", path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
