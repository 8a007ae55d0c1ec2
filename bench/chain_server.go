package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"strconv"
	"time"
)

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
