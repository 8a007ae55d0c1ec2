// Package portico starts Portico in the place of kube-apiserver for the tests of test/integration. Each starter makes its
// options and calls Start instead of starting a server in its process.
package portico

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/google/uuid"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/rest"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
	"k8s.io/kubernetes/cmd/kube-apiserver/app/options"
	"k8s.io/kubernetes/test/utils/ktesting"
)

// patience bounds the start of a server, and its end.
const patience = time.Minute

// Program returns the path of the program portico, or "" if the tests start their own server.
func Program() string { return os.Getenv("PORTICO") }

// Server is a running gateway with a core and a CRD server.
type Server struct {
	// Config is the configuration of a client with a token of system:apiserver, in the group system:masters.
	Config *rest.Config
	// Stop ends the processes and waits for their end.
	Stop func()

	t         ktesting.TB
	dir       string
	lifeline  *os.File // the processes end when its other end is closed
	processes []*process
	unfollow  func()       // see follow
	proxy     *http.Server // see resolve; nil without a resolver
}

// process is a process of a server.
type process struct {
	name   string
	cmd    *exec.Cmd
	output string
	ended  chan struct{}
}

// Start starts a server with the options of a starter, and waits until it serves. It takes the listener of the
// options. A test that needs kube-apiserver in its own process is skipped with the reason.
func Start(t ktesting.TB, opts *options.ServerRunOptions, skipHealth bool) (*Server, error) {
	t.Helper()
	resolver := app.ServiceResolverForTests()
	var gates []string
	// The gates and the emulated version of a test with a resolver are for the server that it registers.
	if resolver == nil {
		gates = gatesOf(t)
	}
	dir, err := os.MkdirTemp("", "portico")
	if err != nil {
		return nil, err
	}
	s := &Server{t: t, dir: dir}
	s.Stop = sync.OnceFunc(s.stop)
	if err := s.start(opts, gates, resolver, skipHealth); err != nil {
		s.Stop()
		return nil, err
	}
	return s, nil
}

func (s *Server) start(opts *options.ServerRunOptions, gates []string, resolver webhook.ServiceResolver, skipHealth bool) error {
	token := uuid.NewString()
	commands, err := s.commands(opts, gates, token)
	if err != nil {
		return err
	}
	if resolver != nil {
		if err := s.resolve(resolver, commands); err != nil {
			return err
		}
	}
	alive, lifeline, err := os.Pipe()
	if err != nil {
		return err
	}
	defer alive.Close()
	s.lifeline = lifeline
	listener, err := opts.SecureServing.Listener.(*net.TCPListener).File()
	if err != nil {
		return err
	}
	defer listener.Close()
	address := opts.SecureServing.Listener.Addr().String()
	if err := opts.SecureServing.Listener.Close(); err != nil {
		return err
	}
	for _, name := range processes {
		files, env := []*os.File{alive}, []string{"PORTICO_LIFELINE_FD=3"}
		if name == "gateway" {
			files, env = []*os.File{listener, alive}, []string{"LISTEN_FDS=1", "LISTEN_FDNAMES=gateway", "PORTICO_LIFELINE_FD=4"}
		}
		if err := s.run(name, commands[name], files, env); err != nil {
			return err
		}
	}
	if s.Config, err = loopback(address, token, opts.SecureServing.ServerCert.CertKey.CertFile); err != nil {
		return err
	}
	return s.ready(skipHealth)
}

// run starts a process.
func (s *Server) run(name string, args []string, files []*os.File, env []string) error {
	p := &process{name: name, output: filepath.Join(s.dir, name+".log"), ended: make(chan struct{})}
	output, err := os.Create(p.output)
	if err != nil {
		return err
	}
	defer output.Close()
	p.cmd = exec.Command(Program(), append([]string{name}, args...)...)
	p.cmd.ExtraFiles, p.cmd.Env = files, append(os.Environ(), env...)
	p.cmd.Stdout, p.cmd.Stderr = output, output
	if err := p.cmd.Start(); err != nil {
		return err
	}
	s.t.Logf("started portico %s %s", name, strings.Join(args, " "))
	s.processes = append(s.processes, p)
	go func() { p.cmd.Wait(); close(p.ended) }()
	return nil
}

// stop ends the gateway, and then the servers behind it.
func (s *Server) stop() {
	for i := len(s.processes) - 1; i >= 0; i-- {
		s.processes[i].end(s.t)
	}
	if s.unfollow != nil {
		s.unfollow()
	}
	if s.proxy != nil {
		s.proxy.Close()
	}
	if s.lifeline != nil {
		s.lifeline.Close()
	}
	os.RemoveAll(s.dir)
}

// end ends a process. If the test failed, it logs the end of the output.
func (p *process) end(t ktesting.TB) {
	p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.ended:
	case <-time.After(patience):
		t.Errorf("portico %s does not end", p.name)
		p.cmd.Process.Kill()
		<-p.ended
	}
	if out, err := os.ReadFile(p.output); err == nil && t.Failed() {
		t.Logf("end of the output of portico %s:\n%s", p.name, out[max(0, len(out)-4096):])
	}
}

// exited returns an error with the output of a process that ended.
func (s *Server) exited() error {
	for _, p := range s.processes {
		select {
		case <-p.ended:
			out, err := os.ReadFile(p.output)
			return errors.Join(err, fmt.Errorf("portico %s ended: %s", p.name, out))
		default:
		}
	}
	return nil
}
