package up

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"portico/cmd/internal/pki"
	"portico/cmd/internal/supervise"
	"portico/cmd/portico/config"
	"portico/cmd/portico/server"
)

// stopTimeout bounds the stop of a child, without its delay: longer than the servers' own limit
// for requests in flight.
const stopTimeout = 65 * time.Second

// stopTimeoutOf is stopTimeout with the time that a child serves on before it stops.
func (f *upFlags) stopTimeoutOf(child string) time.Duration {
	delay, _ := time.ParseDuration(f.valuesFor(child, server.ShutdownDelay)[0]) // checked by the child
	return stopTimeout + delay
}

// child is a process of the installation.
type child struct {
	name    string
	logFile string
	process *supervise.Process
	// done receives the error of Run and is then closed.
	done chan error
	// stop stops the child and waits for its end. It may be called more than once.
	stop func()
}

// startChild starts `portico name args...` and keeps it running. errors, if not nil, gets
// every line of the child's log; with --v all logs go to standard error.
func (s *stack) startChild(name string, args []string, ready func(context.Context) error, errors io.Writer) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find own program: %w", err)
	}
	log, err := s.openLog(name, errors)
	if err != nil {
		return nil, err
	}
	cfg := supervise.Config{
		Name: name, Path: self, Args: append([]string{name}, args...), Log: log,
		Ready: ready, StopTimeout: s.flags.stopTimeoutOf(name), Report: s.say,
	}
	if name == "gateway" {
		cfg.Files, cfg.Env = s.addresses.files, s.addresses.env()
	}
	c := &child{name: name, logFile: s.logFile(name), done: make(chan error, 1), process: supervise.New(cfg)}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer log.Close()
		c.done <- c.process.Run(ctx)
		close(c.done)
	}()
	c.stop = sync.OnceFunc(func() {
		if c.process.PID() != 0 {
			s.say("stopping " + name)
		}
		cancel()
		s.step(name+" to stop").await(context.Background(), ended, func() error { return nil })
	})
	return c, nil
}

func (s *stack) logFile(name string) string { return s.dir.File("logs", name+".log") }

// openLog opens the log of a process. Its lines also go to errors, or with --v to
// standard error.
func (s *stack) openLog(name string, errors io.Writer) (*supervise.Log, error) {
	cfg := supervise.LogConfig{File: s.logFile(name), MaxMegabytes: s.flags.maxLogSize, MaxBackups: s.flags.maxLogBackups, Also: errors}
	if s.flags.log.Verbosity > 0 {
		cfg.Also, cfg.Prefix = s.errOut, name+" | "
	}
	return supervise.OpenLog(cfg)
}

func (s *stack) etcdSocket() string { return filepath.Join(s.dir.Run, "etcd.sock") }
func (s *stack) coreSocket() string { return filepath.Join(s.dir.Run, "core.sock") }
func (s *stack) crdSocket() string  { return filepath.Join(s.dir.Run, "crd.sock") }

// backendArgs returns the flags of a child behind the gateway; own is its certificate as
// a client of the gateway.
func (s *stack) backendArgs(child *cobra.Command, socket string, own pki.Pair) []string {
	return append(s.passedOn(child),
		"--etcd-servers="+strings.Join(s.etcd.Servers, ","),
		"--listen=unix://"+socket,
		"--gateway="+s.endpoint,
		"--gateway-ca-file="+s.files.ServingCAFile,
		"--gateway-cert-file="+own.CertFile,
		"--gateway-key-file="+own.KeyFile,
	)
}

func (s *stack) crdArgs() []string { return s.backendArgs(server.NewCRD(), s.crdSocket(), s.files.CRD) }

func (s *stack) coreArgs() []string {
	args := s.backendArgs(server.NewCore(), s.coreSocket(), s.files.Core)
	if s.flags.signs {
		signing := func(signer string, authority pki.Pair) {
			args = append(args, "--cluster-signing-"+signer+"-cert-file="+authority.CertFile, "--cluster-signing-"+signer+"-key-file="+authority.KeyFile)
		}
		signing("kube-apiserver-client", s.files.SigningCA)
		signing("kubelet-client", s.files.SigningCA)
		signing("kubelet-serving", s.files.KubeletServingCA)
	}
	return s.unlessConfigured("core", append(args,
		"--service-account-issuer="+tokenIssuer,
		"--service-account-signing-key-file="+s.files.ServiceAccountKeyFile,
		"--root-ca-file="+s.files.ServingCAFile,
	))
}

func (s *stack) gatewayArgs() []string {
	args := append(s.passedOn(server.NewGateway()),
		"--etcd-servers="+strings.Join(s.etcd.Servers, ","),
		"--listen="+strings.Join(s.addresses.listen, ","),
		"--advertise-address="+s.addresses.reachable(),
		"--tls-cert-file="+s.files.Serving.CertFile,
		"--tls-private-key-file="+s.files.Serving.KeyFile,
		"--client-ca-file="+s.files.ClientCAFile,
		"--requestheader-client-ca-file="+s.files.FrontProxyCAFile,
		"--requestheader-allowed-names="+pki.FrontProxyName,
		"--proxy-client-cert-file="+s.files.FrontProxy.CertFile,
		"--proxy-client-key-file="+s.files.FrontProxy.KeyFile,
		"--service-account-issuer="+tokenIssuer,
		"--service-account-key-file="+s.files.ServiceAccountPublicKeyFile,
		"--state-dir="+s.dir.File("gateway"),
		"--backend=core=unix://"+s.coreSocket(),
		"--backend=crd=unix://"+s.crdSocket(),
	)
	for _, section := range []string{config.All, "gateway"} {
		for _, more := range s.flags.config.Values(section, "backend") {
			args = append(args, "--backend="+more)
		}
	}
	return s.unlessConfigured("gateway", args)
}

func (s *stack) etcdArgs() []string {
	args := append(s.passedOn(server.NewEtcd()), "--data-dir="+s.dir.File("etcd"), "--socket-dir="+s.dir.Run)
	if s.flags.config.Has("etcd", "v") {
		return args
	}
	// etcd logs much at --v=0.
	return append(args, "--v="+strconv.Itoa(s.flags.log.Verbosity-1))
}
