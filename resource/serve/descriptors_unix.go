//go:build unix

package serve

import (
	"math"
	"syscall"
)

// descriptors is how many the process may have open. Go raises the soft limit to the
// hard one at the start.
func descriptors() int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return manyDescriptors
	}
	return int(min(uint64(limit.Cur), math.MaxInt32))
}
