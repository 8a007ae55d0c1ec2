package testtools

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"time"
)

// turn waits until fewer programs are built and installations started than there are processors, by
// all tests of the user, and begins one more; end ends it. More at a time would all be slow.
func turn() (end func(), err error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return nil, fmt.Errorf("find cache folder: %w", err)
	}
	dir := filepath.Join(cache, "portico", "test-turns")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("create folder of locks: %w", err)
	}
	for ; ; time.Sleep(10 * time.Millisecond) {
		for i := range runtime.NumCPU() {
			lock, err := os.OpenFile(filepath.Join(dir, strconv.Itoa(i)), os.O_CREATE|os.O_RDWR, 0o600)
			if err != nil {
				return nil, fmt.Errorf("open lock: %w", err)
			}
			if syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
				return func() { lock.Close() }, nil
			}
			lock.Close()
		}
	}
}
