//go:build unix

package inflight

import (
	"math"
	"syscall"
)

// descriptors returns how many descriptors the process may have open. Go raises the soft
// limit to the hard one at the start.
func descriptors() int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return unknownDescriptors
	}
	return int(min(uint64(limit.Cur), math.MaxInt32))
}
