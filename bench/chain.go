package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"

	"github.com/spf13/cobra"
)

// childConfig is the configuration of a child process, which reads it from
// standard input as one JSON object.
type childConfig struct {
	// Object, List and Frame are the sizes of the server's answers, in bytes.
	Object, List, Frame int64
	// Upstream is the server behind the proxy.
	Upstream childAddress
	// HTTP1 has the proxy accept HTTP/1.1 as well as HTTP/2, and use HTTP/1.1
	// to its upstream.
	HTTP1 bool
}

// childAddress is where a child process listens, which it writes to standard
// output, with the certificate to trust.
type childAddress struct {
	Address     string
	Certificate []byte // DER
}

func (a childAddress) tls() (*tls.Config, error) {
	cert, err := x509.ParseCertificate(a.Certificate)
	if err != nil {
		return nil, fmt.Errorf("parse certificate: %w", err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(cert)
	return &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, nil
}

// child is a child process of this program that serves requests.
type child struct {
	cmd   *exec.Cmd
	stdin io.Closer
	at    childAddress
}

// startChild starts this program with the command of a role and returns when the
// child listens. The caller stops it.
func startChild(ctx context.Context, role string, cfg childConfig) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find own program: %w", err)
	}
	cmd := exec.CommandContext(ctx, self, role)
	cmd.Stderr = os.Stderr
	// Ctrl-C in a terminal signals the whole process group. A child ends when
	// its standard input is closed, after this process has finished.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	c := &child{cmd: cmd, stdin: in}
	if err := errors.Join(json.NewEncoder(in).Encode(cfg), json.NewDecoder(out).Decode(&c.at)); err != nil {
		c.stop()
		return nil, fmt.Errorf("exchange configuration and address: %w", err)
	}
	return c, nil
}

func (c *child) stop() {
	c.stdin.Close()
	_ = c.cmd.Wait() // its exit status carries no information
}

// newChildCommand returns the hidden command that serves in a child process,
// until its standard input is closed.
func newChildCommand(name string, serve func(cfg childConfig) (childAddress, error)) *cobra.Command {
	return &cobra.Command{Use: name, Hidden: true, Args: cobra.NoArgs, RunE: func(*cobra.Command, []string) error {
		var cfg childConfig
		dec := json.NewDecoder(os.Stdin)
		if err := dec.Decode(&cfg); err != nil {
			return fmt.Errorf("read configuration: %w", err)
		}
		at, err := serve(cfg)
		if err != nil {
			return err
		}
		if err := json.NewEncoder(os.Stdout).Encode(at); err != nil {
			return fmt.Errorf("write address: %w", err)
		}
		_, _ = io.Copy(io.Discard, os.Stdin) // ends with the parent, even if that is killed
		return nil
	}}
}

// chain is the running zero-work chain: a proxy and a server in child processes,
// and a client of the proxy.
type chain struct {
	*client
	children []*child
}

// startChain starts the chain for answers of these sizes.
func startChain(ctx context.Context, sizes childConfig, connections int) (*chain, error) {
	c := &chain{}
	for _, role := range []string{"chain-server", "chain-proxy"} {
		child, err := startChild(ctx, role, sizes)
		if err != nil {
			c.stop()
			return nil, fmt.Errorf("start %s: %w", role, err)
		}
		c.children = append(c.children, child)
		sizes.Upstream = child.at
	}
	conf, err := sizes.Upstream.tls()
	if err == nil {
		c.client, err = newClient("https://"+sizes.Upstream.Address, connections, conf, nil)
	}
	if err != nil {
		c.stop()
		return nil, err
	}
	return c, nil
}

func (c *chain) stop() {
	if c.client != nil {
		c.close()
	}
	for i := len(c.children) - 1; i >= 0; i-- {
		c.children[i].stop()
	}
}

// processes returns the chain's processes by name.
func (c *chain) processes() processes {
	return processes{"server": c.children[0].cmd.Process.Pid, "proxy": c.children[1].cmd.Process.Pid}
}
