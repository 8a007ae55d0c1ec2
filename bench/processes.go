package main

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"
)

// processes are ids by name.
type processes map[string]int

// clockTick is the unit of times in /proc: Linux says 100 a second to every
// program, whatever it counts in itself.
const clockTick = 10 * time.Millisecond

// findProcesses finds the processes of a "portico up" by its data folder. The
// lock there names the supervisor, the others are its children. Older versions
// run etcd in the supervisor.
func findProcesses(dataDir string) (processes, error) {
	found := processes{}
	text, err := os.ReadFile(filepath.Join(dataDir, "lock"))
	if err != nil {
		return nil, fmt.Errorf("find processes: %w", err)
	}
	up, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return nil, fmt.Errorf("find processes: %s/lock names none", dataDir)
	}
	lines, _ := filepath.Glob("/proc/[0-9]*/cmdline") // the pattern is good
	for _, file := range lines {
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(file))) // by the pattern
		args, err := os.ReadFile(file)
		words := strings.Split(string(args), "\x00")
		if err != nil || len(words) < 2 || !slices.Contains([]string{"gateway", "core", "crd", "etcd"}, words[1]) {
			continue
		}
		if s, err := readStat(pid); err == nil && s.parent == up {
			found[words[1]] = pid
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("find processes: process %d of %s/lock has no children in /proc", up, dataDir)
	}
	if found["etcd"] == 0 {
		found["etcd"] = up
	}
	return found, nil
}

// stat is what is used of /proc/PID/stat.
type stat struct {
	parent int
	cpu    time.Duration // user and system, all threads
}

func readStat(pid int) (stat, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return stat{}, fmt.Errorf("read process: %w", err)
	}
	// The name, in parentheses, may hold anything.
	fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
	if len(fields) < 13 {
		return stat{}, fmt.Errorf("read process %d: unknown form of stat", pid)
	}
	var n [3]int
	for i, field := range []int{1, 11, 12} {
		if n[i], err = strconv.Atoi(fields[field]); err != nil {
			return stat{}, fmt.Errorf("read process %d: %w", pid, err)
		}
	}
	return stat{parent: n[0], cpu: time.Duration(n[1]+n[2]) * clockTick}, nil
}

// anonymous returns the anonymous resident memory (RssAnon) of a process, in
// bytes.
func anonymous(pid int) (int64, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, fmt.Errorf("read process: %w", err)
	}
	for line := range strings.Lines(string(data)) {
		if value, ok := strings.CutPrefix(line, "RssAnon:"); ok {
			n, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
			return n << 10, err
		}
	}
	return 0, fmt.Errorf("read process %d: its status has no RssAnon", pid)
}

// memory returns the anonymous memory of those that still run.
func (p processes) memory() map[string]int64 {
	m := map[string]int64{}
	for name, pid := range p {
		if n, err := anonymous(pid); err == nil {
			m[name] = n
		}
	}
	return m
}

// cpuTimes are CPU times by process.
type cpuTimes map[string]time.Duration

// self is this program's name among processes.
const self = "load"

// cpu returns the CPU times so far, this program's included.
func (p processes) cpu() cpuTimes {
	c := cpuTimes{}
	for name, pid := range p {
		if d, err := cpuClock(pid); err == nil {
			c[name] = d
		} else if s, err := readStat(pid); err == nil {
			c[name] = s.cpu
		}
	}
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) == nil {
		c[self] = time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	return c
}

// cpuClock reads the clock of a process's CPU time: to the nanosecond, where
// /proc has hundredths of a second, which is too coarse for a turn of a quarter.
func cpuClock(pid int) (time.Duration, error) {
	const perProcess = 2 // user and system, all threads: clock_getcpuclockid(3)
	var at syscall.Timespec
	_, _, failed := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, uintptr(^pid<<3|perProcess), uintptr(unsafe.Pointer(&at)), 0)
	if failed != 0 {
		return 0, fmt.Errorf("read CPU clock of process %d: %w", pid, failed)
	}
	return time.Duration(at.Nano()), nil
}

func (c cpuTimes) add(o cpuTimes) cpuTimes {
	sum := maps.Clone(c)
	if sum == nil {
		sum = cpuTimes{}
	}
	for name, d := range o {
		sum[name] += d
	}
	return sum
}

// since returns what was spent after an earlier reading.
func (c cpuTimes) since(earlier cpuTimes) cpuTimes {
	spent := cpuTimes{}
	for name, d := range c {
		if before, ok := earlier[name]; ok {
			spent[name] = d - before
		}
	}
	return spent
}
