package pace

import (
	"math"
	"runtime/debug"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

// partOfMemory: the room between collections is no larger than this part of the memory
// that a process may have. Others are in the same container or on the same machine.
const partOfMemory = 16

// Memory is how much a process may have, in bytes: what GOMEMLIMIT says, its container
// (cgroup) or the size of the machine, whichever is least. 0: nobody knows.
func Memory() uint64 {
	least := uint64(math.MaxUint64)
	if set := debug.SetMemoryLimit(-1); set > 0 && set < math.MaxInt64 {
		least = uint64(set)
	}
	for _, of := range []memlimit.Provider{memlimit.FromCgroup, memlimit.FromSystem} {
		if n, err := of(); err == nil && n > 0 {
			least = min(least, n)
		}
	}
	if least == math.MaxUint64 {
		return 0
	}
	return least
}
