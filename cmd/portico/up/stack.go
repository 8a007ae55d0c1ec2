package up

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

	"portico/cmd/internal/datadir"
	"portico/cmd/internal/embedetcd"
	"portico/cmd/internal/pace"
	"portico/cmd/internal/pki"
	"portico/cmd/internal/sdnotify"
	"portico/cmd/internal/supervise"
	"portico/cmd/portico/cli"
	"portico/cmd/portico/server"
	"portico/resource/encryption"
	"portico/resource/serve"
)

const (
	// tokenIssuer is the issuer of service-account tokens, that of most Kubernetes
	// installations. It is independent of the address, which may change between starts.
	tokenIssuer = "https://kubernetes.default.svc.cluster.local"
	// patience bounds the start of everything, crdPatience the time until the gateway
	// then reaches the CRD server: the others serve without it.
	patience    = 2 * time.Minute
	crdPatience = 30 * time.Second
)

// stack is a whole installation on this machine.
type stack struct {
	flags      upFlags
	dir        *datadir.Dir
	files      *pki.Files
	addresses  gatewayAddresses
	hosts      []string // of the gateway's certificate
	endpoint   string   // of the gateway, https://host:port
	kubeconfig string   // that the user is shown
	etcd       server.EtcdFlags
	log        *slog.Logger
	out        io.Writer
	errOut     io.Writer
	adminTLS   *tls.Config // the administrator as a client of the gateway
	ready      atomic.Bool // everything has started
	hangups    chan struct{}
	began      time.Time // the start, or the stop
	running    bool      // a child was started
}

// runStack runs an installation until ctx ends or something fails for good.
func runStack(ctx context.Context, f upFlags, out, errOut io.Writer) error {
	dir, err := datadir.Open(f.dataDir)
	if err != nil {
		return err
	}
	defer dir.Close()
	s := &stack{flags: f, dir: dir, etcd: f.etcd, out: out, errOut: errOut, began: time.Now()}
	file, err := supervise.OpenLog(supervise.LogConfig{File: s.logFile("up"), MaxMegabytes: f.maxLogSize, MaxBackups: f.maxLogBackups})
	if err != nil {
		return err
	}
	defer file.Close()
	if s.log, err = f.log.Open(file); err != nil {
		return err
	}
	slog.SetDefault(s.log)
	klog.SetLogger(logr.FromSlogHandler(s.log.Handler()).V(1)) // of the engines of encryption
	if err := s.start(ctx); err != nil {
		s.log.Error("cannot go on", "err", err)
		if !s.running {
			dir.Discard()
		}
		return err
	}
	s.log.Info("stopped")
	return nil
}

// start prepares everything, and runs it until ctx ends or something fails for good.
func (s *stack) start(ctx context.Context) error {
	go pace.Keep(ctx, pace.ForObjects)
	// A program that starts portico up may pass a lifeline, as up does to its children.
	if err := supervise.WatchLifeline(func() { os.Exit(1) }); err != nil {
		return err
	}
	s.hangups = make(chan struct{}, 1)
	cli.OnHangup(ctx, func() {
		s.say("SIGHUP: files that changed are read again")
		select {
		case s.hangups <- struct{}{}:
		default: // it is pending
		}
	})
	defer sdnotify.Start(ctx, sdnotify.Checks{Ready: s.checkReady, Live: s.checkLive})()
	if len(s.etcd.Servers) > 0 {
		if err := s.checkEtcd(ctx); err != nil {
			return cli.QuietIfStopped(ctx, err)
		}
	}
	if err := s.prepare(); err != nil {
		return err
	}
	return s.run(ctx)
}

// checkReady returns an error until everything has started.
func (s *stack) checkReady(context.Context) error {
	if !s.ready.Load() {
		return errors.New("starting")
	}
	return nil
}

// checkLive checks that gateway, core server and CRD server answer. They do without etcd.
func (s *stack) checkLive(ctx context.Context) error {
	if !s.ready.Load() {
		return nil
	}
	const path = "/livez?exclude=etcd"
	var failing error
	for name, answers := range map[string]func(context.Context) error{
		"gateway": s.gatewayReady(path), "core": backendReady(s.coreSocket(), path), "crd": backendReady(s.crdSocket(), path),
	} {
		if err := answers(ctx); err != nil {
			failing = errors.Join(failing, fmt.Errorf("%s: %w", name, err))
		}
	}
	return failing
}

// prepare makes the files that the processes need.
func (s *stack) prepare() (err error) {
	share, err := s.flags.network.SharesPort(s.flags.listen)
	if err != nil {
		return err
	}
	if err := s.addresses.resolve(s.flags.listen, share); err != nil {
		return err
	}
	if s.hosts, err = certificateHosts(s.addresses.hosts, s.flags.cidrs, s.flags.sans); err != nil {
		return err
	}
	s.endpoint = "https://" + s.addresses.reachable()
	s.kubeconfig = s.dir.File("kubeconfig")
	if s.flags.kubeconfig != "" {
		if s.kubeconfig, err = filepath.Abs(s.flags.kubeconfig); err != nil {
			return fmt.Errorf("find kubeconfig: %w", err)
		}
	}
	if err := s.ensureCredentials(); err != nil {
		return err
	}
	s.adminTLS, err = adminTLS(s.files, reachableHost(s.addresses.hosts[0]))
	return err
}

// run starts everything, waits, and stops everything in order: the gateway drains
// while the servers behind it still answer, and etcd stops last.
func (s *stack) run(ctx context.Context) error {
	s.running = true
	if len(s.etcd.Servers) > 0 {
		return s.runChildren(ctx)
	}
	etcd, err := s.startEtcd(ctx)
	if err != nil {
		return cli.QuietIfStopped(ctx, err)
	}
	defer etcd.stop()
	s.etcd.Servers = []string{"unix://" + s.etcdSocket()}
	return s.runChildren(ctx)
}

// runChildren runs the other children until ctx ends or one of them fails for good.
func (s *stack) runChildren(ctx context.Context) error {
	for _, line := range s.flags.warnings() {
		s.log.Warn(line)
		fmt.Fprintln(s.errOut, "portico: warning: "+line)
	}
	s.say("starting core server, CRD server and gateway")
	go s.reportKMS(ctx)
	core, err := s.startChild("core", s.coreArgs(), backendReady(s.coreSocket(), "/readyz"), nil)
	if err != nil {
		return err
	}
	defer core.stop()
	crd, err := s.startChild("crd", s.crdArgs(), backendReady(s.crdSocket(), "/readyz"), nil)
	if err != nil {
		return err
	}
	defer crd.stop()
	gateway, err := s.startChild("gateway", s.gatewayArgs(), s.gatewayReady("/readyz?exclude="+encryption.CheckName), nil)
	if err != nil {
		return err
	}
	defer gateway.stop()
	if err := s.waitReady(ctx, core, crd, gateway); err != nil {
		return cli.QuietIfStopped(ctx, err)
	}
	s.ready.Store(true)
	greet(s.out, s)
	go s.keepCredentials(ctx)
	go s.followRequests(ctx)
	select {
	case <-ctx.Done():
		s.began = time.Now()
		s.say("stopping; Ctrl-C again stops at once")
		return nil
	case err := <-core.done:
		return fmt.Errorf("run core server: %w", err)
	case err := <-crd.done:
		return fmt.Errorf("run CRD server: %w", err)
	case err := <-gateway.done:
		return fmt.Errorf("run gateway: %w", err)
	}
}

// reportKMS says which KMS plugin cannot be used. The processes start without it, unless it encrypted what they need to
// become ready.
func (s *stack) reportKMS(ctx context.Context) {
	if err := s.flags.encryption.Probe(ctx); err != nil && ctx.Err() == nil {
		s.say(fmt.Sprintf("what a KMS encrypted is not served until its plugin answers: %v", err))
	}
}

// startEtcd starts the embedded etcd and returns when it serves. Errors of its log go
// to standard error.
func (s *stack) startEtcd(ctx context.Context) (*child, error) {
	s.say("starting etcd")
	ready := supervise.HTTPReady("http://etcd/readyz", s.etcdSocket(), nil, nil)
	lines := &errorLines{to: s.errOut, prefix: "portico: etcd: "}
	lines.starting.Store(true)
	etcd, err := s.startChild("etcd", s.etcdArgs(), ready, lines)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("not ready within %v", patience))
	defer cancel()
	if err := s.waitChild(ctx, etcd); err != nil {
		etcd.stop()
		return nil, s.adviseEtcd(err)
	}
	lines.starting.Store(false)
	return etcd, nil
}

// adviseEtcd adds the remedy to the error of an etcd that does not start, which is a line of its
// process.
func (s *stack) adviseEtcd(err error) error {
	folder, has := s.dir.File("etcd"), func(text string) bool { return strings.Contains(err.Error(), text) }
	switch {
	case has(syscall.ENOSPC.Error()):
		return fmt.Errorf("%w; free space on the disk of %s", err, folder)
	case has("create etcd folder") || has("cannot access") || has("cannot write") || has(syscall.EROFS.Error()) || has(syscall.EACCES.Error()):
		return fmt.Errorf("%w; make %s writable for this user, or choose another --data-dir", err, folder)
	case has(embedetcd.NewerText):
		return err
	default:
		return fmt.Errorf("%w; the data in %s is damaged: restore a backup (portico restore FILE --data-dir=NEW), or what its database has (portico restore --from-data-dir=%s --data-dir=NEW)", err, folder, cli.ShellQuote(s.dir.Path))
	}
}

// waitReady waits until all children are ready, the gateway reaches the servers behind
// it, and all of them take writes, and prints from time to time what is missing. It
// writes nothing: webhooks would be called.
func (s *stack) waitReady(ctx context.Context, children ...*child) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("not ready within %v", patience))
	defer cancel()
	for _, c := range children {
		if err := s.waitChild(ctx, c); err != nil {
			return err
		}
	}
	if err := s.waitBehind(ctx, "core server", "/api/v1/namespaces/default", s.coreSocket()); err != nil {
		return err
	}
	crdCtx, cancel := context.WithTimeoutCause(ctx, crdPatience, fmt.Errorf("not ready within %v", crdPatience))
	defer cancel()
	err := s.waitBehind(crdCtx, "CRD server", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions?limit=1", s.crdSocket())
	if err != nil && ctx.Err() == nil {
		s.say(fmt.Sprintf("custom resources are not served yet: %v; all else is", err))
		return nil
	}
	return err
}

// waitBehind waits until the gateway reaches a server behind it, and the server takes
// writes.
func (s *stack) waitBehind(ctx context.Context, name, path, socket string) error {
	for _, wait := range []struct {
		what    string
		reached func(context.Context) error
	}{
		{"the " + name + " behind the gateway", s.gatewayReady(path)},
		{"the " + name + " to take writes", backendReady(socket, "/readyz/"+serve.WritesCheck)},
		{"the gateway to take writes", s.gatewayReady("/readyz/" + serve.WritesCheck)},
	} {
		if err := waitReached(ctx, s.step(wait.what), wait.reached); err != nil {
			return fmt.Errorf("wait for %s: %w (%w)", wait.what, context.Cause(ctx), err)
		}
	}
	return nil
}

// waitReached calls reached until it succeeds, or returns its last error when ctx
// ends.
func waitReached(ctx context.Context, step *step, reached func(context.Context) error) error {
	for {
		err := reached(ctx)
		if err == nil {
			return nil
		}
		step.look(err)
		select {
		case <-ctx.Done():
			return err
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func (s *stack) waitChild(ctx context.Context, c *child) error {
	waiting, stop := context.WithCancel(ctx)
	defer stop()
	go s.stepOfChild(c.name).await(waiting, c.process.Ready(), c.process.Waiting)
	select {
	case <-c.process.Ready():
		return nil
	case err := <-c.done:
		return fmt.Errorf("%w (its log: %s)", err, c.logFile)
	case <-ctx.Done():
		return fmt.Errorf("wait for %s: %w (%v; its log: %s)", c.name, context.Cause(ctx), c.process.Waiting(), c.logFile)
	}
}

// gatewayReady returns a check that the gateway answers the administrator's GET of
// path with 200.
func (s *stack) gatewayReady(path string) func(context.Context) error {
	return supervise.HTTPReady(s.endpoint+path, "", s.adminTLS, nil)
}

// backendReady returns a check that the server on the socket answers a GET of path
// with 200.
func backendReady(socket, path string) func(context.Context) error {
	// A peer of the same uid is trusted to name the user.
	header := http.Header{"X-Remote-User": {pki.AdminName}, "X-Remote-Group": {"system:masters"}}
	return supervise.HTTPReady("http://backend"+path, socket, nil, header)
}
