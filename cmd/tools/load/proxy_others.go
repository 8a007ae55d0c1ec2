package main

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// other is a proxy by somebody else, run if it is installed.
type other struct {
	program, debian string
	args            func(config string) []string
	config          func(p otherPlace) string
}

// otherPlace is what a configuration is made of.
type otherPlace struct {
	dir, address, backend string
	pem                   string // file with certificate and key
}

var others = []other{
	{
		program: "nginx", debian: "nginx",
		args: func(config string) []string { return []string{"-c", config, "-e", "stderr"} },
		config: func(p otherPlace) string {
			return fmt.Sprintf(`
daemon off; master_process off; worker_processes 1; pid %[1]s/nginx.pid; error_log stderr crit;
events { worker_connections 16384; }
http {
  access_log off;
  client_body_temp_path %[1]s/body; proxy_temp_path %[1]s/proxy; fastcgi_temp_path %[1]s/f; uwsgi_temp_path %[1]s/u; scgi_temp_path %[1]s/s;
  upstream backend { server %[3]s; keepalive 256; keepalive_requests 1000000000; }
  server {
    listen %[2]s ssl http2;
    ssl_certificate %[4]s; ssl_certificate_key %[4]s;
    keepalive_requests 1000000000; http2_max_concurrent_streams 1000;
    location / { proxy_pass https://backend; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_read_timeout 600s; }
  }
}
`, p.dir, p.address, p.backend, p.pem)
		},
	},
	{
		program: "haproxy", debian: "haproxy",
		args: func(config string) []string { return []string{"-db", "-q", "-f", config} },
		config: func(p otherPlace) string {
			return fmt.Sprintf(`
global
  nbthread 1
  maxconn 4096
  tune.ssl.default-dh-param 2048
defaults
  mode http
  timeout connect 5s
  timeout client 600s
  timeout server 600s
  http-reuse always
frontend in
  bind %[1]s ssl crt %[3]s alpn h2,http/1.1
  default_backend out
backend out
  server static %[2]s ssl verify none
`, p.address, p.backend, p.pem)
		},
	},
}

// start runs the proxy on a core of its own, or says why not.
func (o other) start(ctx context.Context, dir string, backend string, before []string) (*front, error) {
	program, err := exec.LookPath(o.program)
	if err != nil {
		return nil, fmt.Errorf("skipped: %s is not installed (Debian package %s)", o.program, o.debian)
	}
	place := otherPlace{dir: dir, backend: backend, pem: filepath.Join(dir, o.program+".pem")}
	if place.address, err = freeAddress(ctx); err != nil {
		return nil, err
	}
	at, err := writePair(place.pem)
	if err != nil {
		return nil, err
	}
	at.Address = place.address
	conf, err := at.tls()
	if err != nil {
		return nil, err
	}
	config := filepath.Join(dir, o.program+".conf")
	if err := os.WriteFile(config, []byte(o.config(place)), 0o600); err != nil {
		return nil, fmt.Errorf("write configuration of %s: %w", o.program, err)
	}
	args := append(append(before[:len(before):len(before)], program), o.args(config)...)
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", o.program, err)
	}
	f := &front{name: o.program, address: place.address, tls: conf, pid: cmd.Process.Pid, stop: func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended already
		_ = cmd.Wait()                          // how it ends is nothing to us
	}}
	if err := f.await(ctx); err != nil {
		f.stop()
		return nil, err
	}
	return f, nil
}

// await waits until a front takes connections.
func (f *front) await(ctx context.Context) error {
	for end := time.Now().Add(lostAfter); ; {
		conn, err := f.dial(ctx, http1)
		if err == nil {
			return conn.Close()
		}
		if time.Now().After(end) || ctx.Err() != nil {
			return errors.Join(err, ctx.Err())
		}
		time.Sleep(askSeldom)
	}
}

// freeAddress is one that nobody listens on just now.
func freeAddress(ctx context.Context) (string, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("find a free address: %w", err)
	}
	return l.Addr().String(), l.Close()
}

// writePair makes a certificate and writes it with its key to a file.
func writePair(file string) (chainAddress, error) {
	cert, err := selfSigned()
	if err != nil {
		return chainAddress{}, err
	}
	key, err := x509.MarshalPKCS8PrivateKey(cert.PrivateKey)
	if err != nil {
		return chainAddress{}, fmt.Errorf("encode key: %w", err)
	}
	data := append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Certificate[0]}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})...)
	if err := os.WriteFile(file, data, 0o600); err != nil {
		return chainAddress{}, fmt.Errorf("write certificate: %w", err)
	}
	return chainAddress{Certificate: cert.Certificate[0]}, nil
}
