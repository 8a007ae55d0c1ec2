//go:build diskfull

package faults

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"portico/cmd/e2e"
)

// On a disk that is filled by the installation's writes, and then to the last byte by another
// process, writes are refused with 507, everything else is served, also after a restart, and
// writes pass once there is room. The servers are not restarted.
func TestDiskFull(t *testing.T) {
	disk := t.TempDir()
	mount := func(flags uintptr, size string) {
		t.Helper()
		if err := syscall.Mount("tmpfs", disk, "tmpfs", flags, "size="+size); err != nil {
			t.Fatalf("mount a small file system, which needs root: %v", err)
		}
	}
	mount(0, "110m")
	t.Cleanup(func() {
		if err := syscall.Unmount(disk, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	dir, listen := filepath.Join(disk, "data"), "--listen=127.0.0.1:"+e2e.FreePort(t, "127.0.0.1")
	up := e2e.Install(t, dir, listen)
	n := fillDisk(t, up)
	if err := up.Await("portico: etcd: the disk of " + filepath.Join(dir, "etcd") + " is nearly full"); err != nil {
		t.Error(err)
	}
	stay := servers(t, up)
	// etcd may die of this, and is started again.
	useUp(t, filepath.Join(disk, "filler"))
	servesWhileFull(t, up, n)
	e2e.Eventually(t, "an object is deleted", func() error {
		if code, answer := up.Do(t, http.MethodDelete, configMaps+"/fill-0", ""); code != http.StatusOK && code != http.StatusNotFound {
			return fmt.Errorf("%d %s", code, answer)
		}
		return nil
	})
	if now := servers(t, up); now != stay {
		t.Errorf("servers were started again: %s, %s before", now, stay)
	}
	if err := up.Stop(); err != nil {
		t.Fatal(err)
	}
	useUp(t, filepath.Join(disk, "filler"))
	up = e2e.Install(t, dir, listen)
	servesWhileFull(t, up, n-1)
	mount(syscall.MS_REMOUNT, "300m")
	if code, answer := fill(t, up, "after", 1000); code != http.StatusCreated {
		t.Errorf("with room again: %d %s", code, answer)
	}
}

// fillDisk creates ConfigMaps until one is refused, and returns how many there are.
func fillDisk(t *testing.T, up *e2e.Installation) int {
	t.Helper()
	for n := range 200 {
		if code, answer := fill(t, up, fmt.Sprintf("fill-%d", n), 900_000); code != http.StatusCreated {
			isFull(t, code, answer)
			return n
		}
	}
	t.Fatal("the disk does not get full")
	return 0
}

// servers names the processes of an installation but for etcd.
func servers(t *testing.T, up *e2e.Installation) string {
	t.Helper()
	return fmt.Sprint("core ", up.Child(t, "core"), " crd ", up.Child(t, "crd"), " gateway ", up.Child(t, "gateway"))
}

// useUp writes until there is no byte left on the disk.
func useUp(t *testing.T, file string) {
	t.Helper()
	f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for chunk := make([]byte, 64<<10); ; {
		n, err := f.Write(chunk)
		switch {
		case errors.Is(err, syscall.ENOSPC) && len(chunk) > 1<<10:
			chunk = chunk[:len(chunk)/2]
		case errors.Is(err, syscall.ENOSPC):
			return
		case err != nil && !errors.Is(err, io.ErrShortWrite):
			t.Fatal(n, err)
		}
	}
}

// servesWhileFull checks that reads of n objects are answered and writes are refused.
func servesWhileFull(t *testing.T, up *e2e.Installation, n int) {
	t.Helper()
	for _, path := range []string{"/livez", "/apis", "/openapi/v3", configMaps + "/fill-1?resourceVersion=0"} {
		if code, answer := up.Do(t, http.MethodGet, path, ""); code != http.StatusOK {
			t.Errorf("%s on a full disk: %d %.300s", path, code, answer)
		}
	}
	e2e.Eventually(t, "etcd answers", func() error {
		code, answer := up.Do(t, http.MethodGet, "/readyz", "")
		if code != http.StatusOK {
			return fmt.Errorf("%d %s", code, answer)
		}
		return nil
	})
	if code, answer := up.Do(t, http.MethodGet, configMaps, ""); code != http.StatusOK || strings.Count(answer, `"fill-`) < n {
		t.Errorf("list on a full disk: %d, %d of %d objects", code, strings.Count(answer, `"fill-`), n)
	}
	code, answer := fill(t, up, "refused", 10)
	isFull(t, code, answer)
}
