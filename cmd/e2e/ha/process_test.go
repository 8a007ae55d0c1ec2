package ha

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"portico/cmd/e2e"
	"portico/cmd/internal/supervise"
	"portico/internal/testing/await"
	"portico/internal/testing/etcdtest"

	"sigs.k8s.io/yaml"
)

// process is one process of the installation.
type process struct {
	in   *installation
	name string
	// gate separates it from all others while it is shut.
	gate *etcdtest.Gate
	// release is the program of an earlier release, which is started instead of this version; "" for this version.
	release string
	pid     atomic.Int64
	cmd     *exec.Cmd
	done    chan struct{} // closed when cmd has ended

	mu sync.Mutex
	// ended are when it ended; impaired are the times in which it was stopped or separated.
	ended    []time.Time
	impaired []interval
}

func (p *process) logFile() string { return filepath.Join(p.in.Dir, "logs", p.name+".log") }

// start starts it in the background; it is killed with the test.
func (p *process) start() error {
	log, err := os.OpenFile(p.logFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := p.in.script(context.Background(), "run", p.in.Dir, p.name)
	if p.release != "" {
		if cmd, err = p.released(); err != nil {
			return err
		}
	}
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = log, log, supervise.ChildAttributes()
	if err := cmd.Start(); err != nil {
		return err
	}
	done := make(chan struct{})
	p.cmd, p.done = cmd, done
	p.pid.Store(int64(cmd.Process.Pid)) // of the script, which becomes the process
	go func() {
		_ = cmd.Wait() // the state has the result
		p.mu.Lock()
		p.ended = append(p.ended, time.Now())
		p.mu.Unlock()
		close(done)
	}()
	return nil
}

// kill ends it by SIGKILL.
func (p *process) kill() {
	if p.cmd == nil {
		return
	}
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.done
}

// terminate ends it by SIGTERM.
func (p *process) terminate(ctx context.Context) error {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-p.done:
	case <-ctx.Done():
		return fmt.Errorf("%s does not end", p.name)
	}
	// etcd ends itself by the signal.
	if status := p.cmd.ProcessState.Sys().(syscall.WaitStatus); status.ExitStatus() != 0 && status.Signal() != syscall.SIGTERM {
		return fmt.Errorf("%s ended with %v", p.name, p.cmd.ProcessState)
	}
	return nil
}

// impair records when it was stopped or separated.
func (p *process) impair(from time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.impaired = append(p.impaired, interval{from, time.Now()})
}

// awaitReady waits until it says that it is ready.
func (p *process) awaitReady(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, await.Patience())
	defer cancel()
	config := p.in.etcd.tls
	if p.release != "" {
		if config, err = p.in.frontProxyTLS(); err != nil {
			return err
		}
	}
	client := &http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: config}}
	for {
		err = p.ready(ctx, client)
		if err == nil {
			return nil
		}
		select {
		case <-p.done:
			return fmt.Errorf("%s ended with %v", p.name, p.cmd.ProcessState)
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w", p.name, err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (p *process) ready(ctx context.Context, client *http.Client) error {
	address, scheme, user := strings.Replace(listens(p.in.address(p.name)), ":12379", ":12381", 1), "https", ""
	switch {
	case p.release != "":
		user = "X-Remote-Group: system:masters"
	case !strings.HasPrefix(p.name, "etcd"):
		scheme, address = "http", p.in.probe(p.name)
	}
	resp, body, err := e2e.Ask(ctx, client, http.MethodGet, scheme+"://"+address+"/readyz", "", "X-Remote-User: probe", user)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = errors.New(body)
	}
	return err
}

// probe returns the address for health checks of a server, as loopback.sh does.
func (in *installation) probe(name string) string {
	port := uint16(8080)
	if strings.HasPrefix(name, "crd") {
		port = 8081
	}
	return netip.AddrPortFrom(mustAddrPort(in.address(name)).Addr(), port).String()
}

func mustAddrPort(address string) netip.AddrPort { return netip.MustParseAddrPort(address) }

// released returns the command of an earlier release with the flags of the configuration file that it knows.
func (p *process) released() (*exec.Cmd, error) {
	kind, _, _ := strings.Cut(p.name, "-")
	data, err := os.ReadFile(filepath.Join(p.in.Dir, p.name+".yaml"))
	if err != nil {
		return nil, err
	}
	var file map[string]any
	if err := yaml.Unmarshal(data, &file); err != nil {
		return nil, err
	}
	args := []string{kind}
	for flag, value := range file[kind].(map[string]any) {
		values, list := value.([]any)
		if !list {
			values = []any{value}
		}
		for _, v := range values {
			if flag != "probe-listen" { // since v0.2.0
				args = append(args, fmt.Sprintf("--%s=%v", flag, v))
			}
		}
	}
	cmd := exec.Command(p.release, args...)
	cmd.Dir = p.in.Dir
	return cmd, nil
}

// frontProxyTLS returns the configuration of a client that is a gateway.
func (in *installation) frontProxyTLS() (*tls.Config, error) {
	folder := filepath.Join(in.Dir, "pki/gateway")
	pair, err := tls.LoadX509KeyPair(filepath.Join(folder, "front-proxy-client.crt"), filepath.Join(folder, "front-proxy-client.key"))
	if err != nil {
		return nil, err
	}
	roots, err := poolOf(filepath.Join(folder, "serving-ca.crt"))
	return &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: roots}, err
}

// clientTLS returns the configuration of a client of etcd that is the user root.
func (in *installation) clientTLS() (*tls.Config, error) {
	admin := filepath.Join(in.Dir, "pki/admin")
	pair, err := tls.LoadX509KeyPair(filepath.Join(admin, "etcd-root.crt"), filepath.Join(admin, "etcd-root.key"))
	if err != nil {
		return nil, err
	}
	roots, err := poolOf(filepath.Join(admin, "etcd-ca.crt"))
	return &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: roots}, err
}
