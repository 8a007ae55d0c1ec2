package inspect

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/procfs"

	"portico/cmd/internal/supervise"
)

// Processes returns portico up with the id and its children, by start.
func Processes(up int) (all []Process, err error) {
	procs, err := procfs.AllProcs()
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	for _, p := range procs {
		stat, err := p.Stat()
		if err != nil || p.PID != up && stat.PPID != up {
			continue // or it has ended
		}
		args, err := p.CmdLine()
		if err != nil || len(args) < 2 {
			continue
		}
		seconds, err := stat.StartTime()
		if err != nil {
			return nil, fmt.Errorf("read start of process %d: %w", p.PID, err)
		}
		all = append(all, Process{
			Name: args[1], PID: p.PID, Memory: stat.ResidentMemory(), Restarts: restarts(p), Started: time.UnixMilli(int64(seconds * 1000)),
		})
	}
	slices.SortStableFunc(all, func(a, b Process) int { return a.Started.Compare(b.Started) })
	return all, nil
}

// restarts returns what portico up says in the environment of a child; 0 if it may not be read.
func restarts(p procfs.Proc) int {
	environ, _ := p.Environ()
	for _, v := range environ {
		if n, ok := strings.CutPrefix(v, supervise.RestartsEnv+"="); ok {
			count, _ := strconv.Atoi(n)
			return count
		}
	}
	return 0
}
