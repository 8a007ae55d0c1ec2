package socket

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// firstInherited is the first descriptor of socket activation, sd_listen_fds(3).
const firstInherited = 3

// inherited has the sockets that systemd passed, by their names. The environment variables are
// removed, so that children do not take the sockets for theirs.
var inherited = sync.OnceValues(func() (map[string][]*os.File, error) {
	pid, count, names := os.Getenv("LISTEN_PID"), os.Getenv("LISTEN_FDS"), strings.Split(os.Getenv("LISTEN_FDNAMES"), ":")
	for _, name := range []string{"LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"} {
		if err := os.Unsetenv(name); err != nil {
			return nil, err
		}
	}
	// portico up does not know the process ids of its children in advance and sets none.
	if count == "" || pid != "" && pid != strconv.Itoa(os.Getpid()) {
		return nil, nil
	}
	n, err := strconv.Atoi(count)
	if err != nil || n < 0 {
		return nil, fmt.Errorf("LISTEN_FDS=%s: must be a number of descriptors", count)
	}
	files := map[string][]*os.File{}
	for i := range n {
		name := "unknown" // as systemd calls them
		if i < len(names) && names[i] != "" {
			name = names[i]
		}
		syscall.CloseOnExec(firstInherited + i)
		files[name] = append(files[name], os.NewFile(uintptr(firstInherited+i), name))
	}
	return files, nil
})

// Inherited returns the sockets that systemd passed to this process under a name; see
// systemd.socket(5). They stay open.
func Inherited(name string) ([]*os.File, error) {
	all, err := inherited()
	switch {
	case err != nil:
		return nil, err
	case len(all) == 0:
		return nil, errors.New("systemd passed no socket; start the .socket unit")
	case len(all[name]) == 0:
		return nil, fmt.Errorf("systemd passed no socket of this name, only of %s", strings.Join(slices.Sorted(maps.Keys(all)), ", "))
	}
	return all[name], nil
}

// ListenInherited returns listeners on the sockets of Inherited. Clients of unix sockets are
// treated as by Listen.
func ListenInherited(name string, ownUID bool, log *slog.Logger) ([]net.Listener, error) {
	files, err := Inherited(name)
	if err != nil {
		return nil, err
	}
	var listeners []net.Listener
	for _, file := range files {
		bound, err := net.FileListener(file)
		if err != nil {
			return nil, fmt.Errorf("socket %s of systemd: it is not a stream socket that listens: %w", name, err)
		}
		if unix, ok := bound.(*net.UnixListener); ok {
			bound = withPeers(unix, ownUID, log)
		}
		listeners = append(listeners, bound)
	}
	return listeners, nil
}
