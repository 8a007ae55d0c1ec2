// Package testtools builds the programs that the end-to-end tests run, and starts and
// stops installations of portico.
//
// Programs are built into the user's cache folder: a program that is up to date is not
// linked again, which saves most of a minute, nor built while no file has changed. Each working copy has its own folder there,
// because tests of several may run at a time; the folder of a working copy that no longer
// exists is removed. All programs but portico are in the modules cmd/tools, cmd/upstream
// and bench, so that their dependencies do not change those of portico.
//
// Runs in: tests.
package testtools

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
)

// The programs, by file name.
const (
	Portico         = "portico"
	Kubectl         = "kubectl"          // the real one
	SampleAPIServer = "sample-apiserver" // the Kubernetes project's
	Manager         = "manager"          // a controller made with controller-runtime
	Hosts           = "hosts"            // another one, of three versions and with their conversion webhook
	Bench           = "bench"
	RESTServer      = "restserver"
	Etcd            = "etcd"
	Etcdctl         = "etcdctl"
	KubeAPIServer   = "kube-apiserver" // the real one; it takes minutes
)

// KubernetesVersion is the version that kubectl and kube-apiserver report; without one they
// cannot parse their own version.
const KubernetesVersion = "v1.37.2"

// sources are the programs' modules, linker flags and packages.
var sources = map[string]struct{ module, ldflags, what string }{
	Portico:         {"", "-s -w", "./cmd/portico"},
	Kubectl:         {"cmd/tools", "-s -w -X k8s.io/component-base/version.gitVersion=" + KubernetesVersion, "./kubectl"},
	SampleAPIServer: {"cmd/tools", "-s -w", "k8s.io/sample-apiserver"},
	Manager:         {"cmd/tools", "-s -w", "./manager"},
	Hosts:           {"cmd/tools", "-s -w", "./hosts"},
	Bench:           {"bench", "-s -w", "."},
	RESTServer:      {"cmd/tools", "-s -w", "./restserver"},
	Etcd:            {"cmd/tools", "-s -w", "go.etcd.io/etcd/server/v3"},
	Etcdctl:         {"cmd/tools", "-s -w", "go.etcd.io/etcd/etcdctl/v3"},
	KubeAPIServer:   {"cmd/upstream", "-s -w -X k8s.io/component-base/version.gitVersion=" + KubernetesVersion, "k8s.io/kubernetes/cmd/kube-apiserver"},
}

// built has a sync.OnceValues of build by program.
var built sync.Map

// Build builds a program unless it is up to date, and returns its path. All programs are
// in one folder. Build may be called concurrently, also by several processes; it waits
// for its turn among programs that are built and installations that start.
func Build(program string) (path string, err error) {
	once, _ := built.LoadOrStore(program, sync.OnceValues(func() (string, error) { return build(program) }))
	return once.(func() (string, error))()
}

func build(program string) (path string, err error) {
	root, dir, err := folder()
	if err != nil {
		return "", err
	}
	path = filepath.Join(dir, program)
	lock, err := os.OpenFile(filepath.Join(dir, "."+program+".lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return "", fmt.Errorf("open lock: %w", err)
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return "", fmt.Errorf("lock %s: %w", program, err)
	}
	state, err := stateOf(root)
	if err != nil {
		return "", fmt.Errorf("read working copy: %w", err)
	}
	made := filepath.Join(dir, "."+program+".state")
	if data, err := os.ReadFile(made); err == nil && string(data) == state {
		return path, nil
	}
	end, err := turn()
	if err != nil {
		return "", err
	}
	defer end()
	source := sources[program]
	cmd := exec.Command("go", "build", "-ldflags="+source.ldflags, "-o", path, source.what)
	cmd.Dir = filepath.Join(root, source.module)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", program, err, out)
	}
	if err := os.WriteFile(made, []byte(state), 0o600); err != nil {
		return "", fmt.Errorf("record state of %s: %w", program, err)
	}
	return path, nil
}

// stateOf returns a digest of the names, sizes and times of the files of a working copy, and of the
// toolchain and its variables: what go build takes a second of processor time to find unchanged.
func stateOf(root string) (string, error) {
	digest := sha256.New()
	fmt.Fprintln(digest, runtime.Version())
	for _, variable := range os.Environ() {
		if strings.HasPrefix(variable, "GO") || strings.HasPrefix(variable, "CGO") {
			fmt.Fprintln(digest, variable)
		}
	}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name := entry.Name(); entry.IsDir() && (name == ".git" || name == "testdata" || name == "node_modules") {
			return fs.SkipDir
		}
		info, err := entry.Info()
		if err == nil && !entry.IsDir() {
			fmt.Fprintln(digest, path, info.Size(), info.ModTime().UnixNano())
		}
		return err
	})
	return hex.EncodeToString(digest.Sum(nil)), err
}

// ownerFile holds the path of the working copy that a folder of programs belongs to.
const ownerFile = "working-copy"

// folder returns the root of the module and the folder of its programs, which it creates.
func folder() (root, dir string, err error) {
	out, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		return "", "", fmt.Errorf("find module: %w", err)
	}
	root = filepath.Dir(strings.TrimSpace(string(out)))
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", "", fmt.Errorf("find cache folder: %w", err)
	}
	all := filepath.Join(cache, "portico", "test-programs")
	dir = filepath.Join(all, fmt.Sprintf("%x", sha256.Sum256([]byte(root)))[:12])
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", "", fmt.Errorf("create folder of programs: %w", err)
	}
	if err := own(dir, root); err != nil {
		return "", "", fmt.Errorf("write owner of programs: %w", err)
	}
	if err := prune(all); err != nil {
		return "", "", fmt.Errorf("remove programs of removed working copies: %w", err)
	}
	return root, dir, nil
}

// own writes the owner of a folder if it has none. It is never empty: another test run would take
// the folder for that of a removed working copy.
func own(dir, root string) error {
	file := filepath.Join(dir, ownerFile)
	if _, err := os.Stat(file); err == nil {
		return nil
	}
	temporary := fmt.Sprint(file, os.Getpid())
	if err := os.WriteFile(temporary, []byte(root), 0o600); err != nil {
		return err
	}
	return os.Rename(temporary, file)
}

// prune removes the programs of working copies that no longer exist: 330 MB each.
func prune(all string) error {
	owners, err := filepath.Glob(filepath.Join(all, "*", ownerFile))
	if err != nil {
		return err
	}
	for _, file := range owners {
		root, err := os.ReadFile(file)
		if err != nil {
			continue // removed by another test run
		}
		if _, err := os.Stat(filepath.Join(string(root), "go.mod")); os.IsNotExist(err) {
			if err := os.RemoveAll(filepath.Dir(file)); err != nil {
				return err
			}
		}
	}
	return nil
}
