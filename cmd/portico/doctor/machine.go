package doctor

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"portico/cmd/internal/datadir"
	"portico/cmd/internal/pace"
	"portico/cmd/portico/cli"
	"portico/cmd/portico/inspect"
)

// noFolder is the finding of checks of the data folder without one.
func noFolder() finding { return skip("no data folder of portico up here; name one with --data-dir") }

func dataFolder(_ context.Context, t *target) finding {
	if t.folder == nil {
		return noFolder()
	}
	sockets, _ := filepath.Glob(t.folder.File("run", "*.sock"))
	switch {
	case t.holder == 0 && len(sockets) > 0:
		return warn("no portico up uses %s, and sockets of one that was killed are left in %s", t.folder.Path, t.folder.File("run"))
	case t.holder == 0:
		return warn("no portico up uses %s", t.folder.Path)
	}
	var w worst
	for _, name := range []string{"core.sock", "crd.sock"} {
		if _, err := os.Stat(t.folder.File("run", name)); err != nil {
			w.fail("portico up runs as process %d, and its socket %s is gone", t.holder, t.folder.File("run", name))
		}
	}
	return w.finding("portico up runs as process %d", t.holder)
}

func fileModes(_ context.Context, t *target) finding {
	if t.folder == nil {
		return noFolder()
	}
	var w worst
	check := func(path string) {
		info, err := os.Stat(path)
		switch {
		case err != nil || info.Mode().Perm()&0o077 == 0:
		case info.IsDir(): // the keys in it have modes of their own
			w.warn("%s has mode %04o", path, info.Mode().Perm())
		default:
			w.fail("%s has mode %04o", path, info.Mode().Perm())
		}
	}
	check(t.folder.Path)
	check(t.folder.File(datadir.PKIFolder))
	check(t.folder.File("kubeconfig"))
	keys, _ := filepath.Glob(t.folder.File(datadir.PKIFolder, "*.key"))
	for _, key := range keys {
		check(key)
	}
	return w.finding("%s, for the owner only", cli.Plural(len(keys), "key"))
}

const (
	// leastSpace is the free space below which the embedded etcd refuses writes, fewSpace the one
	// to warn of.
	leastSpace, fewSpace = 64 << 20, 1 << 30
	// fewInodes is the part of all inodes to warn of.
	fewInodes = 0.01
)

func diskSpace(_ context.Context, t *target) finding {
	if t.folder == nil {
		return noFolder()
	}
	var s syscall.Statfs_t
	if err := t.statfs(t.folder.Path, &s); err != nil {
		return skip("read free space: %v", err)
	}
	free := uint64(s.Bavail) * uint64(s.Bsize)
	switch {
	case free < leastSpace:
		return fail("%d MiB are free", free>>20)
	case s.Files > 0 && float64(s.Ffree) < fewInodes*float64(s.Files):
		return warn("%d of %d inodes are free", s.Ffree, s.Files)
	case free < fewSpace:
		return warn("%d MiB are free", free>>20)
	}
	return ok("%.1f GiB are free", float64(free)/(1<<30))
}

const (
	syncs = 10
	// slowSync is the time of a write that etcd's own guide warns of, slowestSync half of the time
	// between two heartbeats of its members.
	slowSync, slowestSync = 10 * time.Millisecond, 50 * time.Millisecond
)

func diskSync(ctx context.Context, t *target) finding {
	switch {
	case t.folder == nil:
		return noFolder()
	case !t.write:
		return skip("it writes a file; allow it with --write")
	}
	var sum, longest time.Duration
	for range syncs {
		if ctx.Err() != nil {
			return skip("%v", ctx.Err())
		}
		took, err := t.sync(t.folder.Path)
		if err != nil {
			return fail("write a file: %v", err)
		}
		sum, longest = sum+took, max(longest, took)
	}
	text := fmt.Sprintf("a write takes %v, the longest %v", (sum / syncs).Round(10*time.Microsecond), longest.Round(10*time.Microsecond))
	switch mean := sum / syncs; {
	case mean > slowestSync:
		return fail("%s", text)
	case mean > slowSync:
		return warn("%s", text)
	}
	return ok("%s", text)
}

// syncOnce writes a file of the size of an object in the folder, waits for the disk, and removes
// the file.
func syncOnce(folder string) (time.Duration, error) {
	f, err := os.CreateTemp(folder, ".doctor-")
	if err != nil {
		return 0, err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	start := time.Now()
	if _, err := f.Write(make([]byte, 2048)); err != nil {
		return 0, err
	}
	if err := f.Sync(); err != nil {
		return 0, err
	}
	return time.Since(start), nil
}

// manyLogs is the size of logs to warn of: twice what portico up keeps of five processes.
const manyLogs = 2 * 5 * 32 << 20

func logSize(_ context.Context, t *target) finding {
	if t.folder == nil {
		return noFolder()
	}
	size, files := int64(0), 0
	err := filepath.WalkDir(t.folder.File(datadir.LogsFolder), func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if info, err := d.Info(); err == nil {
			size, files = size+info.Size(), files+1
		}
		return nil
	})
	switch {
	case err != nil:
		return skip("%v", err)
	case size > manyLogs:
		return warn("%d files have %d MiB", files, size>>20)
	}
	return ok("%d files have %d MiB", files, size>>20)
}

const (
	// fewFiles is the limit of open files to warn of: a gateway then has 4,096 connections.
	fewFiles = 8192
	// nearly is the part of a limit at which a check fails.
	nearly = 0.9
)

func openFiles(_ context.Context, t *target) finding {
	if why, read := t.unread("metrics"); !read {
		return why
	}
	limits, open := t.view.Metrics["process_max_fds"], t.view.Metrics["process_open_fds"]
	if len(limits) == 0 || len(limits) != len(open) {
		return skip("the metrics do not say")
	}
	var w worst
	for i := range limits {
		limit, used := inspect.Value(limits[i]), inspect.Value(open[i])
		switch {
		case used > nearly*limit:
			w.fail("a process has %.0f of %.0f files open", used, limit)
		case limit < fewFiles:
			w.warn("a process may open %.0f files", limit)
		}
	}
	return w.finding("%.0f files, of which the gateway has %.0f open", inspect.Value(limits[0]), inspect.Value(open[0]))
}

const muchMemory = 0.75

func memory(_ context.Context, t *target) finding {
	if t.holder == 0 {
		return skip("no portico up runs here")
	}
	all, err := inspect.Processes(t.holder)
	if err != nil {
		return skip("%v", err)
	}
	used := 0
	for _, process := range all {
		used += process.Memory
	}
	return judgeMemory(float64(used), float64(pace.Memory()))
}

func judgeMemory(used, limit float64) finding {
	text := fmt.Sprintf("the processes have %.0f MiB of %.0f MiB", used/(1<<20), limit/(1<<20))
	switch {
	case limit == 0:
		return skip("the memory of this machine is not known")
	case used > nearly*limit:
		return fail("%s", text)
	case used > muchMemory*limit:
		return warn("%s", text)
	}
	return ok("%s", text)
}

func systemd(_ context.Context, t *target) finding {
	units, _ := filepath.Glob(filepath.Join(t.units, "portico*"))
	var w worst
	n := 0
	for _, unit := range units {
		name := filepath.Base(unit)
		text, err := os.ReadFile(unit)
		if err != nil || !strings.Contains(string(text), "[Install]") {
			continue // a folder, or a unit that another one starts
		}
		n++
		if enabled, _ := filepath.Glob(filepath.Join(t.units, "*.wants", name)); len(enabled) == 0 {
			w.warn("%s is not enabled", name)
		}
	}
	if n == 0 {
		return skip("no units of portico in %s", t.units)
	}
	return w.finding("%s, enabled", cli.Plural(n, "unit"))
}
