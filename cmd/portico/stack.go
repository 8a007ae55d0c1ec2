package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"portico/cmd/internal/pki"
	"portico/cmd/internal/supervise"
	"portico/resource/authn"
)

// stack is the processes of one installation.
type stack struct {
	flags      upFlags
	dir        *dataDir
	listen     string
	files      *pki.Files
	say        func(string)
	etcdFailed <-chan error // nil without an embedded one
}

func (s *stack) url() string { return "https://" + s.listen }

// issuer of service account tokens. It is the same whatever address the gateway
// listens on, so that tokens stay good.
const issuer = "https://kubernetes.default.svc.cluster.local"

// run starts the servers, waits for them and stops them in order: the gateway
// drains before the server behind it goes.
func (s *stack) run(ctx context.Context) error {
	// The children end when they are told to, not with ctx.
	base := context.WithoutCancel(ctx)
	failed := make(chan error, 2)
	core, err := s.start(base, "core", s.coreArgs(), s.coreReady(), failed)
	if err != nil {
		return err
	}
	defer core.stop()
	admin, err := s.adminTLS()
	if err != nil {
		return err
	}
	gateway, err := s.start(base, "gateway", s.gatewayArgs(), supervise.HTTPReady(s.url()+"/readyz", "", admin, nil), failed)
	if err != nil {
		return err
	}
	defer gateway.stop()
	if err := s.await(ctx, core, gateway, supervise.HTTPReady(s.url()+"/api/v1/namespaces/default", "", admin, nil), failed); err != nil {
		return err
	}
	if ctx.Err() == nil {
		if err := s.announce(); err != nil {
			return err
		}
	}
	select {
	case <-ctx.Done():
		return nil
	case err := <-failed:
		return err
	case err := <-s.etcdFailed:
		return fmt.Errorf("etcd stopped: %w", err)
	}
}

// routeInterval is the pause between two attempts to reach the core server
// through the gateway at start.
const routeInterval = 10 * time.Millisecond

// await waits until requests reach the core server through the gateway.
func (s *stack) await(ctx context.Context, core, gateway *child, through func(context.Context) error, failed <-chan error) error {
	routed := make(chan struct{})
	watch, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		for watch.Err() == nil {
			if through(watch) == nil {
				close(routed)
				return
			}
			select {
			case <-watch.Done():
			case <-time.After(routeInterval):
			}
		}
	}()
	for _, step := range []struct {
		what string
		done <-chan struct{}
	}{
		{"waiting for the core server", core.process.Ready()},
		{"waiting for the gateway", gateway.process.Ready()},
		{"waiting for the gateway to reach the core server", routed},
	} {
		select {
		case <-step.done:
			continue
		default:
			s.say(step.what)
		}
		select {
		case <-step.done:
		case err := <-failed:
			return err
		case err := <-s.etcdFailed:
			return fmt.Errorf("etcd stopped: %w", err)
		case <-ctx.Done():
			return nil
		}
	}
	return nil
}

// child is a running server process.
type child struct {
	process *supervise.Process
	stop    func()
}

func (s *stack) start(ctx context.Context, name string, args []string, ready func(context.Context) error, failed chan<- error) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find own program: %w", err)
	}
	var also io.Writer
	if s.flags.verbosity > 0 {
		also = os.Stderr
	}
	log, err := supervise.OpenLog(supervise.LogConfig{File: s.dir.file(name + ".log"), Also: also})
	if err != nil {
		return nil, err
	}
	s.say("starting the " + name + " server, log in " + s.dir.file(name+".log"))
	p := supervise.New(supervise.Config{Name: name, Path: self, Args: args, Log: log, Ready: ready, Report: s.say})
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := p.Run(ctx); err != nil {
			failed <- err
		}
	}()
	return &child{process: p, stop: func() {
		s.say("stopping the " + name + " server")
		cancel()
		<-done
		log.Close()
	}}, nil
}

func (s *stack) etcdArgs() []string {
	e := &s.flags.etcd
	args := []string{"--etcd-servers=" + strings.Join(e.Endpoints, ",")}
	for flag, value := range map[string]string{"--etcd-cafile": e.CAFile, "--etcd-certfile": e.CertFile, "--etcd-keyfile": e.KeyFile} {
		if value != "" {
			args = append(args, flag+"="+value)
		}
	}
	return append(args, "--verbosity="+strconv.Itoa(s.flags.verbosity), "--profiling="+strconv.FormatBool(s.flags.profiling))
}

func (s *stack) coreArgs() []string {
	f := s.files
	return append([]string{
		"core", "--listen=unix://" + s.dir.socket("core.sock"),
		"--gateway=" + s.url(), "--gateway-ca-file=" + f.ServingCAFile,
		"--gateway-cert-file=" + f.Core.CertFile, "--gateway-key-file=" + f.Core.KeyFile,
		"--service-account-issuer=" + issuer, "--service-account-signing-key-file=" + f.ServiceAccountKeyFile,
		"--root-ca-file=" + f.ServingCAFile, "--advertise-address=" + s.listen,
	}, s.etcdArgs()...)
}

func (s *stack) gatewayArgs() []string {
	f := s.files
	return append([]string{
		"gateway", "--listen=" + s.listen, "--tls-cert-file=" + f.Serving.CertFile, "--tls-private-key-file=" + f.Serving.KeyFile,
		"--client-ca-file=" + f.ClientCAFile, "--requestheader-client-ca-file=" + f.FrontProxyCAFile,
		"--requestheader-allowed-names=" + pki.FrontProxyName,
		"--proxy-client-cert-file=" + f.FrontProxy.CertFile, "--proxy-client-key-file=" + f.FrontProxy.KeyFile,
		"--service-account-issuer=" + issuer, "--service-account-key-file=" + f.ServiceAccountPublicKeyFile,
		"--backend=core=unix://" + s.dir.socket("core.sock"),
	}, s.etcdArgs()...)
}

// coreReady asks the core server on its socket, as the front proxy.
func (s *stack) coreReady() func(context.Context) error {
	header := http.Header{}
	header.Set(authn.HeaderUser, "system:portico:up")
	return supervise.HTTPReady("http://core/readyz", s.dir.socket("core.sock"), nil, header)
}

// adminTLS is how the supervisor itself talks to the gateway.
func (s *stack) adminTLS() (*tls.Config, error) {
	pem, err := os.ReadFile(s.files.ServingCAFile)
	if err != nil {
		return nil, fmt.Errorf("read serving CA: %w", err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem)
	pair, err := tls.LoadX509KeyPair(s.files.Admin.CertFile, s.files.Admin.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("load administrator's certificate: %w", err)
	}
	return &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}, nil
}
