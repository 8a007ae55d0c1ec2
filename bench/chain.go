package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"

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

// Paths of the zero-work server.
const (
	chainObject = "/object" // a prefix: the path of the measured object follows
	chainList   = "/list"
	chainWatch  = "/watch"
)

// serveBytes runs the zero-work server, which answers ready bytes.
func serveBytes(cfg childConfig) (childAddress, error) {
	mux := http.NewServeMux()
	mux.Handle(chainObject+"/", readyBytes(filler(cfg.Object)))
	mux.Handle(chainList, readyBytes(filler(cfg.List)))
	frame := filler(cfg.Frame)
	copy(frame, modifiedFrame)
	frame[len(frame)-1] = '\n'
	mux.HandleFunc(chainWatch, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", jsonType)
		control := http.NewResponseController(w)
		for {
			if _, err := w.Write(frame); err != nil || control.Flush() != nil {
				return
			}
		}
	})
	return listenTLS(mux, protocols(false))
}

func readyBytes(data []byte) http.Handler {
	length := strconv.Itoa(len(data))
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", jsonType)
		w.Header().Set("Content-Length", length)
		_, _ = w.Write(data) // the client may have gone
	})
}

func filler(n int64) []byte { return bytes.Repeat([]byte("x"), int(max(n, 64))) }

// serveProxy runs a bare httputil.ReverseProxy.
func serveProxy(cfg childConfig) (childAddress, error) {
	conf, err := cfg.Upstream.tls()
	if err != nil {
		return childAddress{}, err
	}
	transport := &http.Transport{TLSClientConfig: conf, Protocols: protocols(false), DisableCompression: true}
	if cfg.HTTP1 {
		transport.Protocols, transport.MaxIdleConnsPerHost = nil, 256
	}
	upstream := &url.URL{Scheme: "https", Host: cfg.Upstream.Address}
	return listenTLS(&httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(upstream) },
		Transport: transport,
		ErrorLog:  log.New(io.Discard, "", 0), // watches are cancelled at the end of each round
	}, protocols(cfg.HTTP1))
}

// protocols returns HTTP/2, with HTTP/1.1 if http1 is set.
func protocols(http1 bool) *http.Protocols {
	p := new(http.Protocols)
	p.SetHTTP1(http1)
	p.SetHTTP2(true)
	return p
}

// listenTLS serves h on a free port of the loopback address until the process
// ends.
func listenTLS(h http.Handler, protocols *http.Protocols) (childAddress, error) {
	cert, err := selfSigned()
	if err != nil {
		return childAddress{}, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return childAddress{}, fmt.Errorf("listen: %w", err)
	}
	s := &http.Server{
		Handler: h, Protocols: protocols, HTTP2: &http.HTTP2Config{MaxConcurrentStreams: 1000},
		ErrorLog: log.New(io.Discard, "", 0), ReadHeaderTimeout: 10 * time.Second,
		// API servers request a certificate from a proxy.
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12, ClientAuth: tls.RequestClientCert},
	}
	go func() {
		fmt.Fprintln(os.Stderr, "bench: serve:", s.ServeTLS(l, "", ""))
		os.Exit(1)
	}()
	return childAddress{Address: l.Addr().String(), Certificate: cert.Certificate[0]}, nil
}

// selfSigned returns a certificate for 127.0.0.1 that is valid for one day.
func selfSigned() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("make key: %w", err)
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()), Subject: pkix.Name{CommonName: "portico-bench"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(24 * time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, IsCA: true, BasicConstraintsValid: true,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("make certificate: %w", err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}
