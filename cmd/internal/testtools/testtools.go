// Package testtools builds the programs that the end-to-end tests run: portico
// itself, the real kubectl, the Kubernetes project's sample-apiserver, a
// controller made with controller-runtime, the bench program and a REST server.
// It starts and stops installations of portico.
//
// The programs go into the user's cache folder, not into a temporary one: the
// go command leaves one that is up to date alone, which saves most of a minute
// of linking at each run. Each working copy has a folder of its own there: tests
// of two of them may run at a time, and each means its own portico. The folder of
// a working copy that is gone goes with the next build of another. The
// others are built in the modules cmd/tools and bench, so that their versions do
// not change those of portico.
//
// Runs in: tests.
package testtools

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// kubectlVersion is what kubectl says of itself, and compares with the server;
// without it, it cannot read its own version.
const kubectlVersion = "v1.37.2"

// ownerFile names the working copy whose programs a folder has.
const ownerFile = "working-copy"

// Programs is where they are.
type Programs struct {
	// Dir holds all of them, fit to be put into PATH.
	Dir                                               string
	Portico, Kubectl, SampleAPIServer, Manager, Bench string
	RESTServer                                        string
}

// Build builds what is not up to date. It may run in several processes at a
// time; one waits for the other.
func Build() (*Programs, error) {
	root, dir, err := folder()
	if err != nil {
		return nil, err
	}
	p := &Programs{
		Dir: dir, Portico: filepath.Join(dir, "portico"), Kubectl: filepath.Join(dir, "kubectl"),
		SampleAPIServer: filepath.Join(dir, "sample-apiserver"), Manager: filepath.Join(dir, "manager"),
		Bench: filepath.Join(dir, "bench"), RESTServer: filepath.Join(dir, "restserver"),
	}
	tools := filepath.Join(root, "cmd", "tools")
	return p, build(dir, []program{
		{root, p.Portico, "", "./cmd/portico"},
		{tools, p.Kubectl, "-s -w -X k8s.io/component-base/version.gitVersion=" + kubectlVersion, "./kubectl"},
		{tools, p.SampleAPIServer, "-s -w", "k8s.io/sample-apiserver"},
		{tools, p.Manager, "-s -w", "./manager"},
		{filepath.Join(root, "bench"), p.Bench, "-s -w", "."},
		{tools, p.RESTServer, "-s -w", "./restserver"},
	})
}

// BuildPortico builds portico alone, for tests that need none of the other
// programs, and returns its file. Concurrency is as with Build.
func BuildPortico() (string, error) {
	root, dir, err := folder()
	if err != nil {
		return "", err
	}
	file := filepath.Join(dir, "portico")
	return file, build(dir, []program{{root, file, "", "./cmd/portico"}})
}

// folder returns the root of the module and the folder of its programs, which
// it creates.
func folder() (root, dir string, err error) {
	if root, err = moduleRoot(); err != nil {
		return "", "", err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", "", fmt.Errorf("find cache folder: %w", err)
	}
	all := filepath.Join(cache, "portico", "test-programs")
	dir = filepath.Join(all, fmt.Sprintf("%x", sha256.Sum256([]byte(root)))[:12])
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", "", fmt.Errorf("create folder for programs: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, ownerFile), []byte(root), 0o600); err != nil {
		return "", "", fmt.Errorf("name the owner of the programs: %w", err)
	}
	if err := prune(all); err != nil {
		return "", "", fmt.Errorf("remove programs of working copies that are gone: %w", err)
	}
	return root, dir, nil
}

// program is one that is built: the folder of its module, the file, the flags
// of the linker and the package.
type program struct{ in, out, ldflags, what string }

// build builds programs, while no other process builds in dir.
func build(dir string, programs []program) error {
	lock, err := os.OpenFile(filepath.Join(dir, ".lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("open lock: %w", err)
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return fmt.Errorf("lock folder for programs: %w", err)
	}
	for _, p := range programs {
		cmd := exec.Command("go", "build", "-ldflags="+p.ldflags, "-o", p.out, p.what)
		cmd.Dir = p.in
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("build %s: %w\n%s", p.what, err, out)
		}
	}
	return nil
}

// prune removes the programs of working copies that are gone: 330 MB each.
func prune(all string) error {
	owners, err := filepath.Glob(filepath.Join(all, "*", ownerFile))
	if err != nil {
		return err
	}
	for _, file := range owners {
		root, err := os.ReadFile(file)
		if err != nil {
			continue // another test run was quicker
		}
		if _, err := os.Stat(filepath.Join(string(root), "go.mod")); os.IsNotExist(err) {
			if err := os.RemoveAll(filepath.Dir(file)); err != nil {
				return err
			}
		}
	}
	return nil
}

func moduleRoot() (string, error) {
	out, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("find module: %w", err)
	}
	return filepath.Dir(strings.TrimSpace(string(out))), nil
}
