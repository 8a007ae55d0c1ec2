//go:build strangers && integration

package strangers

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"portico/cmd/e2e"
)

// integrationModule is the module with the release with which Portico is compared. stagingVersion is the version of the
// modules in its folder staging, which are published separately.
const (
	integrationModule = "k8s.io/kubernetes"
	stagingVersion    = "v0.37.2"
)

// starters are the files that start kube-apiserver in the process of a test, with the line before which a starter
// goes on with Portico instead, and what it calls then.
var starters = []struct{ file, line, call string }{
	{
		"cmd/kube-apiserver/app/testing/testserver.go", "\tcompletedOptions, err := s.Complete(tCtx)\n",
		"return startPortico(tCtx, t, instanceOptions, s, storageConfig, result, tearDown)",
	},
	{
		"test/integration/framework/test_server.go", "\tcompletedOptions, err := opts.Complete(ctx)\n",
		"return startPortico(ctx, cancel, t, setup, opts, certDir)",
	},
	{"test/integration/etcd/server.go", "\tcompletedOptions, err := opts.Complete(tCtx)\n", "return startPortico(t, opts, certDir)"},
}

// added are the files of testdata/integration by their places in the copy.
var added = map[string]string{
	"cmd/kube-apiserver/app/testing/portico.go": "apiserver.txt",
	"test/integration/framework/portico.go":     "framework.txt",
	"test/integration/etcd/portico.go":          "etcd.txt",
	"test/integration/portico/server.go":        "server.txt",
	"test/integration/portico/ready.go":         "ready.txt",
	"test/integration/portico/commands.go":      "commands.txt",
	"test/integration/portico/flags.go":         "flags.txt",
	"test/integration/portico/gates.go":         "gates.txt",
	"test/integration/portico/clients.go":       "clients.txt",
	"test/integration/portico/configure.go":     "configure.txt",
	"test/integration/portico/webhooks.go":      "webhooks.txt",
}

// integrationTree returns a copy of kubernetes in which the starters start Portico if the environment names its program. The
// copy is kept in the cache folder of the user, so that the packages of it are compiled once.
func integrationTree(t *testing.T) string {
	t.Helper()
	var module struct{ Dir, Version string }
	out := run(t, filepath.Join(e2e.Repository(), "cmd/upstream"), nil, "go", "mod", "download", "-json", integrationModule)
	if err := json.Unmarshal([]byte(out), &module); err != nil {
		t.Fatal(err)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	tree := filepath.Join(cache, "portico", "strangers", "kubernetes@"+module.Version)
	if _, err := os.Stat(tree); err != nil {
		copyKubernetes(t, module.Dir, tree)
	}
	for _, s := range starters {
		text := read(t, module.Dir, s.file)
		if strings.Count(text, s.line) != 1 {
			t.Fatalf("%s has not this line once: %s", s.file, s.line)
		}
		cut := "\tif portico.Program() != \"\" {\n\t\t" + s.call + "\n\t}\n"
		text = strings.Replace(text, s.line, cut+s.line, 1)
		replace(t, filepath.Join(tree, s.file), strings.Replace(text, "\nimport (\n", "\nimport (\n\t\"k8s.io/kubernetes/test/integration/portico\"\n", 1))
	}
	for file, from := range added {
		replace(t, filepath.Join(tree, file), read(t, "testdata/integration", from))
	}
	return tree
}

// copyKubernetes copies the files of kubernetes to a folder that is there when the copy is complete. It makes a main
// module of them: modules of the folder staging, which is not in it, are required as they are published.
func copyKubernetes(t *testing.T, from, to string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp(filepath.Dir(to), ".copy")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.CopyFS(dir, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	// The archive of a module has no modes: tests run scripts.
	run(t, dir, nil, "chmod", "-R", "u+w", ".")
	run(t, dir, nil, "find", ".", "-name", "*.sh", "-exec", "chmod", "u+x", "{}", "+")
	for _, name := range []string{"vendor", "go.work", "go.work.sum"} {
		if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	args := []string{"mod", "edit"}
	for _, m := range regexp.MustCompile(`(\S+) => \./staging/`).FindAllStringSubmatch(read(t, dir, "go.mod"), -1) {
		args = append(args, "-dropreplace="+m[1])
		if !strings.HasPrefix(m[1], "k8s.io/sample-c") { // examples that no package imports
			args = append(args, "-require="+m[1]+"@"+stagingVersion)
		}
	}
	run(t, dir, noWorkspace, "go", args...)
	if err := os.Rename(dir, to); err != nil {
		t.Fatal(err)
	}
}

// replace writes a file unless it has the text.
func replace(t *testing.T, path, text string) {
	t.Helper()
	if before, err := os.ReadFile(path); err == nil && bytes.Equal(before, []byte(text)) {
		return
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	e2e.WriteFile(t, path, text)
}
