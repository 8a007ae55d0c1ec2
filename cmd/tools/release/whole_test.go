//go:build release

package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// Two releases of HEAD are the same, with no trace of the folder or the environment. What is in
// the archive names the commit; what is in the images runs, by itself as the image's user, and
// as the compose file says.
func TestRelease(t *testing.T) {
	work := t.TempDir()
	platforms := os.Getenv("PLATFORMS")
	if platforms == "" {
		platforms = "linux/" + runtime.GOARCH
	}
	for _, name := range []string{"one", "other"} {
		t.Setenv("TMPDIR", filepath.Join(work, "tmp-"+name))
		t.Setenv("GOFLAGS", map[string]string{"one": "-tags=nomsgpack", "other": "-buildvcs=false"}[name])
		if err := os.Mkdir(os.Getenv("TMPDIR"), 0o700); err != nil {
			t.Fatal(err)
		}
		o := options{out: filepath.Join(work, name), commit: "HEAD", platforms: platforms, repository: root, samples: true}
		if err := o.run(); err != nil {
			t.Fatal(err)
		}
	}
	out := filepath.Join(work, "one")
	sums := read(t, out, "SHA256SUMS")
	if other := read(t, work, "other", "SHA256SUMS"); !bytes.Equal(sums, other) {
		t.Fatalf("%s\n%s", sums, other)
	}
	t.Logf("%s", sums)
	if err := os.RemoveAll(filepath.Join(work, "other")); err != nil {
		t.Fatal(err)
	}
	images := map[string]v1.Image{}
	var version string
	for name, image := range layoutImages(t, out, runtime.GOARCH) {
		name, version, _ = strings.Cut(name, ":")
		images[name+":1.2.3"] = image // the version that the project is read with
		logSize(t, name, image)
	}
	commit, err := git(root, "rev-parse", "HEAD")
	if err != nil {
		t.Fatal(err)
	}
	name := "portico-" + version + "-linux-" + runtime.GOARCH
	extract := exec.Command("tar", "-xzf", filepath.Join(out, name+".tar.gz"))
	extract.Dir = work
	if text, err := extract.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	text, err := exec.Command(filepath.Join(work, name, "portico"), "version").CombinedOutput()
	if err != nil || !strings.Contains(string(text), "+portico."+version+" ") || !strings.Contains(string(text), "commit  "+commit+" (") || !strings.Contains(string(text), ", clean)") {
		t.Errorf("version: %v: %s", err, text)
	}
	runConfined(t, images["portico:1.2.3"])
	testComposition(t, images)
}

// logSize logs the size of an image as it is stored and pulled.
func logSize(t *testing.T, name string, image v1.Image) {
	t.Helper()
	layers, err := image.Layers()
	if err != nil {
		t.Fatal(err)
	}
	var sum int64
	for _, l := range layers {
		size, err := l.Size()
		if err != nil {
			t.Fatal(err)
		}
		sum += size
	}
	t.Logf("image %s: %.1f MB", name, float64(sum)/1e6)
}

// runConfined runs the program of an image with the image as its root and the image's user as
// the only user, and nothing else there.
func runConfined(t *testing.T, image v1.Image) {
	t.Helper()
	rootfs := t.TempDir()
	unpack(t, image, rootfs)
	for _, args := range [][]string{
		{"version"},
		{"certs", "installation", "--dir=/etc/portico/pki", "--server=https://h", "--gateway-host=h", "--core-host=h", "--crd-host=h", "--etcd-host=h"},
	} {
		cmd := exec.Command("/portico", args...)
		cmd.Dir, cmd.Env = "/var/lib/portico", []string{"HOME=/var/lib/portico"}
		cmd.Stdin = strings.NewReader("") // there is no /dev/null
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Chroot: rootfs, Cloneflags: syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET | syscall.CLONE_NEWPID,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: userID, HostID: os.Getuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: userID, HostID: os.Getgid(), Size: 1}},
		}
		if text, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v: %v: %s", args, err, text)
		}
	}
	if !fileExists(filepath.Join(rootfs, "etc/portico/pki/admin/kubeconfig")) {
		t.Error("no kubeconfig was made")
	}
}
