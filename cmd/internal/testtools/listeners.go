package testtools

import (
	"encoding/hex"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Listener is a socket on which a process accepts connections or datagrams.
type Listener struct {
	// Network is "tcp", "tcp6", "udp", "udp6" or "unix".
	Network string
	// Address is host:port, the path of a unix socket, or for a socket of the
	// abstract namespace its name behind an "@".
	Address string
}

// Listeners returns the listeners of a process, sorted, as Linux shows them in
// /proc. A unix socket counts if it listens or is bound to a name for datagrams.
// The caller needs the right to read the process's descriptors.
func Listeners(pid int) ([]Listener, error) {
	inodes, err := socketInodes(pid)
	if err != nil {
		return nil, err
	}
	var all []Listener
	for _, network := range []string{"tcp", "tcp6", "udp", "udp6", "unix"} {
		table, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", pid, network))
		if os.IsNotExist(err) {
			continue // a kernel without IPv6
		}
		if err != nil {
			return nil, fmt.Errorf("read sockets: %w", err)
		}
		for _, line := range strings.Split(string(table), "\n")[1:] {
			inode, l, err := parseSocket(network, line)
			if err != nil {
				return nil, err
			}
			if l != nil && inodes[inode] {
				all = append(all, *l)
			}
		}
	}
	slices.SortFunc(all, func(a, b Listener) int { return strings.Compare(a.Network+a.Address, b.Network+b.Address) })
	return all, nil
}

// Dialed returns which of some processes has the end at address from of a TCP connection to
// address to, both IPv4; 0 for none.
func Dialed(from, to string, pids []int) (int, error) {
	table, err := os.ReadFile("/proc/net/tcp")
	if err != nil {
		return 0, fmt.Errorf("read connections: %w", err)
	}
	for _, line := range strings.Split(string(table), "\n")[1:] {
		f := strings.Fields(line)
		if len(f) < 10 {
			continue
		}
		local, err := parseHexAddress(f[1])
		if err != nil || local != from {
			continue
		}
		if remote, err := parseHexAddress(f[2]); err != nil || remote != to {
			continue
		}
		for _, pid := range pids {
			// A process that has ended has no sockets.
			if inodes, err := socketInodes(pid); err == nil && inodes[f[9]] {
				return pid, nil
			}
		}
	}
	return 0, nil
}

// socketInodes returns the inodes of the sockets that a process has open.
func socketInodes(pid int) (map[string]bool, error) {
	fds, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	if err != nil || len(fds) == 0 {
		return nil, fmt.Errorf("list descriptors of process %d: none found (%v)", pid, err)
	}
	inodes := map[string]bool{}
	for _, fd := range fds {
		target, _ := os.Readlink(fd) // a descriptor may be closed meanwhile
		if inode, ok := strings.CutPrefix(target, "socket:["); ok {
			inodes[strings.TrimSuffix(inode, "]")] = true
		}
	}
	return inodes, nil
}

// parseSocket parses a line of a table in /proc/PID/net; see proc(5). It returns nil for a
// socket that is not a listener.
func parseSocket(network, line string) (inode string, l *Listener, err error) {
	f := strings.Fields(line)
	const (
		tcpListen    = "0A"
		udpUnbound   = "07"
		unixAccepts  = 1 << 16 // __SO_ACCEPTCON
		unixDatagram = "0002"
	)
	switch {
	case len(f) == 0:
		return "", nil, nil
	case network == "unix":
		if len(f) < 7 {
			return "", nil, fmt.Errorf("parse unix socket %q: too few columns", line)
		}
		flags, err := strconv.ParseUint(f[3], 16, 64)
		if err != nil {
			return "", nil, fmt.Errorf("parse unix socket %q: %w", line, err)
		}
		if flags&unixAccepts == 0 && (f[4] != unixDatagram || len(f) < 8) {
			return "", nil, nil
		}
		return f[6], &Listener{network, strings.Join(f[7:], " ")}, nil
	case len(f) < 10:
		return "", nil, fmt.Errorf("parse %s socket %q: too few columns", network, line)
	case strings.HasPrefix(network, "tcp") && f[3] != tcpListen, strings.HasPrefix(network, "udp") && f[3] != udpUnbound:
		return "", nil, nil
	}
	address, err := parseHexAddress(f[1])
	return f[9], &Listener{network, address}, err
}

// parseHexAddress reads an address as /proc prints it: 32-bit words in the byte
// order of a little-endian machine, then the port.
func parseHexAddress(text string) (string, error) {
	host, port, _ := strings.Cut(text, ":")
	raw, err := hex.DecodeString(host)
	if err != nil {
		return "", fmt.Errorf("parse address %q: %w", text, err)
	}
	for word := 0; word+4 <= len(raw); word += 4 {
		slices.Reverse(raw[word : word+4])
	}
	ip, ok := netip.AddrFromSlice(raw)
	if !ok {
		return "", fmt.Errorf("parse address %q: %d bytes", text, len(raw))
	}
	n, err := strconv.ParseUint(port, 16, 16)
	if err != nil {
		return "", fmt.Errorf("parse address %q: %w", text, err)
	}
	return netip.AddrPortFrom(ip, uint16(n)).String(), nil
}
