package up

import (
	"fmt"
	"net"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"portico/cmd/internal/datadir"
	"portico/cmd/internal/pki"
	"portico/cmd/portico/config"
	"portico/cmd/portico/server"
)

// checkChildren returns what the children would refuse of the flags that they get, of their sections of the file and of
// the files that these name. It starts nothing and makes no file.
func (f *upFlags) checkChildren() error {
	s, err := f.planned()
	if err != nil {
		return err
	}
	var refusals []error
	for _, of := range []struct {
		child *cobra.Command
		args  []string
	}{{server.NewGateway(), s.gatewayArgs()}, {server.NewCore(), s.coreArgs()}, {server.NewCRD(), s.crdArgs()}, {server.NewEtcd(), s.etcdArgs()}} {
		for _, err := range s.refusedBy(of.child, of.args) {
			// What up makes before it starts children may not exist yet.
			if !strings.Contains(err.Error(), s.dir.File(datadir.PKIFolder)) {
				refusals = append(refusals, err)
			}
		}
	}
	return config.Refused(refusals...)
}

// planned returns the stack that is to be started, without the addresses that are chosen when it is.
func (f *upFlags) planned() (*stack, error) {
	path, err := filepath.Abs(f.dataDir)
	if err != nil {
		return nil, fmt.Errorf("find data folder: %w", err)
	}
	dir := &datadir.Dir{Path: path, Run: filepath.Join(path, "run")}
	s := &stack{flags: *f, dir: dir, files: pki.FilesIn(dir.File(datadir.PKIFolder)), etcd: f.etcd}
	if len(s.etcd.Servers) == 0 {
		s.etcd.Servers = []string{"unix://" + s.etcdSocket()}
	}
	for _, value := range f.listen {
		s.addresses.listen = append(s.addresses.listen, value)
		if strings.HasPrefix(value, "unix://") {
			continue
		}
		host, port := "127.0.0.1", "6443"
		if !strings.HasPrefix(value, "systemd:") {
			if host, port, err = splitAddress(value); err != nil {
				return nil, err
			}
			if port == "0" { // it is chosen when up starts
				port = "6443"
			}
		}
		s.addresses.add(host, port)
	}
	if len(s.addresses.hosts) == 0 {
		return nil, errNoNetworkAddress
	}
	s.endpoint = "https://" + s.addresses.reachable()
	if _, err := certificateHosts(nil, f.cidrs, nil); err != nil {
		return nil, err
	}
	return s, nil
}

// refusedBy returns what a child refuses, with the sections of the file that set it.
func (s *stack) refusedBy(child *cobra.Command, args []string) (out []error) {
	err := child.ParseFlags(args)
	if err == nil {
		err = s.flags.config.SetFlags(child)
	}
	if err == nil {
		err = child.PreRunE(child, nil)
	}
	for _, err := range config.RefusalsOf(err) {
		out = append(out, config.Explain(child, err))
	}
	return out
}

// splitAddress splits host:port of --listen.
func splitAddress(address string) (host, port string, err error) {
	if host, port, err = net.SplitHostPort(address); err != nil {
		return "", "", fmt.Errorf("listen on %q: must have the form host:port; %s", address, chooseAddress)
	}
	return host, port, nil
}
