//go:build strangers

package strangers

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"portico/cmd/e2e"
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

// listeners are the files that start servers beside kube-apiserver, which would listen on all interfaces.
var listeners = []string{"cmd/kube-controller-manager/app/testing/testserver.go", "cmd/kube-scheduler/app/testing/testserver.go"}

// integrationTree returns a copy of kubernetes in which the starters start Portico if the environment names its program, by
// the files of testdata/integration/tree. The copy is kept in the cache folder of the user, so that its packages are compiled
// once.
func integrationTree(t *testing.T) string {
	t.Helper()
	release := downloadKubernetes(t)
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	tree := filepath.Join(cache, "portico", "strangers", "kubernetes@"+release.Version)
	if _, err := os.Stat(tree); err != nil {
		copyKubernetes(t, release, tree)
	}
	edit := func(file, old, new string) string {
		text := read(t, release.Dir, file)
		if strings.Count(text, old) != 1 {
			t.Fatalf("%s has not this text once: %s", file, old)
		}
		return strings.Replace(text, old, new, 1)
	}
	for _, s := range starters {
		cut := "\tif portico.Program() != \"\" {\n\t\t" + s.call + "\n\t}\n"
		text := edit(s.file, s.line, cut+s.line)
		text = strings.Replace(text, "\nimport (\n", "\nimport (\n\t\"k8s.io/kubernetes/test/integration/portico\"\n", 1)
		e2e.WriteFile(t, filepath.Join(tree, s.file), text)
	}
	for _, file := range listeners {
		e2e.WriteFile(t, filepath.Join(tree, file), edit(file, `net.Listen("tcp", ":0")`, `net.Listen("tcp", "127.0.0.1:0")`))
	}
	// Files of an older copy would be compiled, too.
	if err := os.RemoveAll(filepath.Join(tree, "test/integration/portico")); err != nil {
		t.Fatal(err)
	}
	run(t, "", nil, "cp", "-r", "testdata/integration/tree/.", tree)
	linkFixtures(t, tree)
	return tree
}

// linkFixtures links the fixtures of the module k8s.io/api where a test looks for them, in the folder staging.
func linkFixtures(t *testing.T, tree string) {
	t.Helper()
	module := strings.TrimSpace(run(t, tree, noWorkspace, "go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/api"))
	link := filepath.Join(tree, "staging/src/k8s.io/api/testdata")
	if err := os.MkdirAll(filepath.Dir(link), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(link); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(module, "testdata"), link); err != nil {
		t.Fatal(err)
	}
}

// copyKubernetes copies the files of kubernetes to a folder that is there when the copy is complete. It makes a main
// module of them: modules of the folder staging, which is not in it, are required as they are published.
func copyKubernetes(t *testing.T, release kubernetesRelease, to string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp(filepath.Dir(to), ".copy")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	copyModule(t, release.Dir, dir)
	// The archive of a module has no modes: tests run scripts.
	run(t, dir, nil, "find", ".", "-name", "*.sh", "!", "-name", "*not-executable*", "-exec", "chmod", "u+x", "{}", "+")
	for _, name := range []string{"vendor", "go.work", "go.work.sum"} {
		if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	args := []string{"mod", "edit"}
	modules, version := release.staging(t)
	for _, m := range modules {
		args = append(args, "-dropreplace="+m, "-require="+m+"@"+version)
	}
	run(t, dir, noWorkspace, "go", args...)
	if err := os.Rename(dir, to); err != nil {
		t.Fatal(err)
	}
}
