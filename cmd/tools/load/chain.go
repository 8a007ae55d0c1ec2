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

// chainConfig is what a process of the zero-work chain reads from its standard
// input, one JSON object.
type chainConfig struct {
	// Object, List and Frame are the sizes of what the server answers, in bytes.
	Object, List, Frame int64
	// Upstream is the server that the proxy sends everything to.
	Upstream chainAddress
}

// chainAddress is what such a process answers on its standard output when it
// listens: where, and the certificate to trust, which lives in memory only.
type chainAddress struct {
	Address     string
	Certificate []byte // DER
}

func (a chainAddress) tls() (*tls.Config, error) {
	cert, err := x509.ParseCertificate(a.Certificate)
	if err != nil {
		return nil, fmt.Errorf("parse certificate: %w", err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(cert)
	return &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, nil
}

// chain is the running zero-work chain: proxy and server as child processes.
type chain struct {
	*pool
	children []*chainChild
}

type chainChild struct {
	cmd   *exec.Cmd
	stdin io.Closer
	at    chainAddress
}

// startChain starts the chain for answers of these sizes.
func startChain(ctx context.Context, sizes chainConfig, connections int) (*chain, error) {
	c := &chain{}
	for _, role := range []string{"chain-server", "chain-proxy"} {
		child, err := startChainChild(ctx, role, sizes)
		if err != nil {
			c.stop()
			return nil, fmt.Errorf("start %s: %w", role, err)
		}
		c.children = append(c.children, child)
		sizes.Upstream = child.at
	}
	conf, err := sizes.Upstream.tls()
	if err == nil {
		c.pool, err = newPool("https://"+sizes.Upstream.Address, connections, conf, nil)
	}
	if err != nil {
		c.stop()
		return nil, err
	}
	return c, nil
}

// startChainChild starts a process of this program. before, if any, is the
// command that starts it.
func startChainChild(ctx context.Context, role string, cfg chainConfig, before ...string) (*chainChild, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find own program: %w", err)
	}
	args := append(before[:len(before):len(before)], self, role)
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Stderr = os.Stderr
	// Ctrl-C in a terminal goes to the whole group; the chain ends when this
	// process lets go of its standard input.
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
	child := &chainChild{cmd: cmd, stdin: in}
	if err := json.NewEncoder(in).Encode(cfg); err == nil {
		err = json.NewDecoder(out).Decode(&child.at)
	}
	if child.at.Address == "" {
		child.stop()
		return nil, errors.New("it did not say where it listens")
	}
	return child, nil
}

func (c *chainChild) stop() {
	c.stdin.Close()
	_ = c.cmd.Wait() // it is told to end; how it does is nothing to us
}

func (c *chain) stop() {
	if c.pool != nil {
		c.close()
	}
	for i := len(c.children) - 1; i >= 0; i-- {
		c.children[i].stop()
	}
}

// processes of the chain, by name.
func (c *chain) processes() processes {
	return processes{"server": c.children[0].cmd.Process.Pid, "proxy": c.children[1].cmd.Process.Pid}
}

// newChainRole makes the hidden command that runs one process of the chain,
// until its standard input ends.
func newChainRole(name string, serve func(cfg chainConfig) (chainAddress, error)) *cobra.Command {
	return &cobra.Command{Use: name, Hidden: true, Args: cobra.NoArgs, RunE: func(*cobra.Command, []string) error {
		var cfg chainConfig
		dec := json.NewDecoder(os.Stdin)
		if err := dec.Decode(&cfg); err != nil {
			return fmt.Errorf("read configuration: %w", err)
		}
		at, err := serve(cfg)
		if err != nil {
			return err
		}
		if err := json.NewEncoder(os.Stdout).Encode(at); err != nil {
			return fmt.Errorf("say where it listens: %w", err)
		}
		_, _ = io.Copy(io.Discard, os.Stdin) // ends with the parent, however that ends
		return nil
	}}
}
