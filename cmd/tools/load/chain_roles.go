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

// Paths of the server that does no work.
const (
	chainObject = "/object" // and what would be asked of a server, behind it
	chainList   = "/list"
	chainWatch  = "/watch"
)

// serveBytes runs the server that answers ready bytes.
func serveBytes(cfg chainConfig) (chainAddress, error) {
	mux := http.NewServeMux()
	mux.Handle(chainObject+"/", readyBytes(filler(cfg.Object)))
	mux.Handle(chainList, readyBytes(filler(cfg.List)))
	frame := filler(cfg.Frame)
	copy(frame, modifiedFrame)
	frame[len(frame)-1] = '\n'
	mux.HandleFunc(chainWatch, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		control := http.NewResponseController(w)
		for {
			if _, err := w.Write(frame); err != nil || control.Flush() != nil {
				return
			}
		}
	})
	return listenTLS(mux, onlyHTTP2())
}

func readyBytes(data []byte) http.Handler {
	length := strconv.Itoa(len(data))
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", length)
		_, _ = w.Write(data) // a client that is gone needs no answer
	})
}

func filler(n int64) []byte { return bytes.Repeat([]byte("x"), int(max(n, 64))) }

// serveProxy runs the bare reverse proxy.
func serveProxy(cfg chainConfig) (chainAddress, error) {
	conf, err := cfg.Upstream.tls()
	if err != nil {
		return chainAddress{}, err
	}
	return listenTLS(bareProxy(cfg.Upstream, &http.Transport{TLSClientConfig: conf, Protocols: onlyHTTP2(), DisableCompression: true}), onlyHTTP2())
}

// bareProxy does what a reverse proxy cannot do without.
func bareProxy(to chainAddress, t *http.Transport) http.Handler {
	upstream := &url.URL{Scheme: "https", Host: to.Address}
	return &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(upstream) },
		Transport: t,
		// Watchers go away at the end of each round: nothing to report.
		ErrorLog: log.New(discardLog{}, "", 0),
	}
}

func onlyHTTP2() *http.Protocols {
	p := new(http.Protocols)
	p.SetHTTP2(true)
	return p
}

type discardLog struct{}

func (discardLog) Write(p []byte) (int, error) { return len(p), nil }

// listenTLS serves h on any port of the loopback address, for as long as the
// process lives. names are the server's besides that address.
func listenTLS(h http.Handler, protocols *http.Protocols, names ...string) (chainAddress, error) {
	cert, err := selfSigned(names...)
	if err != nil {
		return chainAddress{}, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return chainAddress{}, fmt.Errorf("listen: %w", err)
	}
	s := &http.Server{
		Handler: h, Protocols: protocols, HTTP2: &http.HTTP2Config{MaxConcurrentStreams: 1000}, ErrorLog: log.New(discardLog{}, "", 0), ReadHeaderTimeout: 10 * time.Second,
		// As API servers do, they ask proxies for a certificate.
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12, ClientAuth: tls.RequestClientCert},
	}
	go func() {
		fmt.Fprintln(os.Stderr, "load: serve zero-work chain:", s.ServeTLS(l, "", ""))
		os.Exit(1)
	}()
	return chainAddress{Address: l.Addr().String(), Certificate: cert.Certificate[0]}, nil
}

// selfSigned makes a certificate for the loopback address and names, for one
// day.
func selfSigned(names ...string) (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("make key: %w", err)
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()), Subject: pkix.Name{CommonName: "portico-load"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(24 * time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: names,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, IsCA: true, BasicConstraintsValid: true,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("make certificate: %w", err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}
