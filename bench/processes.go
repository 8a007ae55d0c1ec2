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

// processes maps names to process IDs.
type processes map[string]int

// clockTick is the unit of times in /proc/PID/stat: USER_HZ is 100 on Linux.
const clockTick = 10 * time.Millisecond

// findProcesses returns the processes of a "portico up" by its data folder: the
// file "lock" has the process ID of the supervisor, the others are its children.
// Without a child for etcd, etcd runs in the supervisor.
func findProcesses(dataDir string) (processes, error) {
	found := processes{}
	text, err := os.ReadFile(filepath.Join(dataDir, "lock"))
	if err != nil {
		return nil, fmt.Errorf("find processes: %w", err)
	}
	up, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return nil, fmt.Errorf("find processes: %s/lock has no process ID", dataDir)
	}
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline") // the pattern is valid
	for _, file := range files {
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(file))) // the pattern has digits there
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

// stat is a part of /proc/PID/stat.
type stat struct {
	parent int
	cpu    time.Duration // user and system, all threads
}

func readStat(pid int) (stat, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return stat{}, fmt.Errorf("read process: %w", err)
	}
	// The name of the program, in parentheses, may contain any character.
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
func anonymous(pid int) (int64, error) { return memoryIn(pid, "status", "RssAnon:") }

// proportional returns the resident memory of a process with its share of what others
// use as well (PSS), in bytes.
func proportional(pid int) (int64, error) { return memoryIn(pid, "smaps_rollup", "Pss:") }

// memoryIn returns a line in kB of a file of /proc/PID, in bytes.
func memoryIn(pid int, file, name string) (int64, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, file))
	if err != nil {
		return 0, fmt.Errorf("read process: %w", err)
	}
	for line := range strings.Lines(string(data)) {
		if value, ok := strings.CutPrefix(line, name); ok {
			n, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
			return n << 10, err
		}
	}
	return 0, fmt.Errorf("read process %d: its %s has no %s", pid, file, name)
}

// memory returns the anonymous memory of the processes that run, in bytes.
func (p processes) memory() map[string]int64 {
	m := map[string]int64{}
	for name, pid := range p {
		if n, err := anonymous(pid); err == nil {
			m[name] = n
		}
	}
	return m
}

// cpuTimes maps names of processes to CPU times.
type cpuTimes map[string]time.Duration

// self is the name of this process in cpuTimes.
const self = "bench"

// cpu returns the CPU times of the processes and of this one.
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

// cpuClock reads the CPU-time clock of a process, which has nanoseconds, where
// /proc/PID/stat has 10 ms.
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

// since returns the differences from an earlier reading.
func (c cpuTimes) since(earlier cpuTimes) cpuTimes {
	spent := cpuTimes{}
	for name, d := range c {
		if before, ok := earlier[name]; ok {
			spent[name] = d - before
		}
	}
	return spent
}
