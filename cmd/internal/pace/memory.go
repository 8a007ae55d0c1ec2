package pace

import (
	"math"
	"runtime/debug"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

// Memory returns how many bytes of memory the process may use: the least of GOMEMLIMIT,
// the limit of its container (cgroup) and the size of the machine; 0 if none is known.
func Memory() uint64 {
	least := uint64(math.MaxUint64)
	if set := debug.SetMemoryLimit(-1); set > 0 && set < math.MaxInt64 {
		least = uint64(set)
	}
	for _, limit := range []memlimit.Provider{memlimit.FromCgroup, memlimit.FromSystem} {
		if n, err := limit(); err == nil && n > 0 {
			least = min(least, n)
		}
	}
	if least == math.MaxUint64 {
		return 0
	}
	return least
}
