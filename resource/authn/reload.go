package authn

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	certutil "k8s.io/client-go/util/cert"
)

// CAFile is a PEM file of trusted CAs. It is read again when it changes. Safe for
// concurrent use.
type CAFile struct{ bundle *reloaded[caBundle] }

type caBundle struct {
	pool  *x509.CertPool
	certs []*x509.Certificate
	pem   []byte
}

// NewCAFile reads the file. A file without certificates is an error.
func NewCAFile(path string) (*CAFile, error) {
	load := func() (caBundle, error) {
		data, err := os.ReadFile(path)
		if err != nil {
			return caBundle{}, fmt.Errorf("read CA file: %w", err)
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(data) {
			return caBundle{}, fmt.Errorf("read CA file: no PEM certificate in %s", path)
		}
		// AppendCertsFromPEM passes over what this cannot parse.
		certs, _ := certutil.ParseCertsPEM(data)
		return caBundle{pool: pool, certs: certs, pem: data}, nil
	}
	bundle, err := newReloaded(load, path)
	if err != nil {
		return nil, err
	}
	return &CAFile{bundle: bundle}, nil
}

// Pool returns the CAs: the same pool until the file changes. Callers must not change it.
func (f *CAFile) Pool() *x509.CertPool { return f.bundle.get().pool }

// VerifyServer has a client verify the server of a name or address by the CAs as they are at each
// handshake: RootCAs of a tls.Config is read once. The rules are those of crypto/tls.
func (f *CAFile) VerifyServer(config *tls.Config, host string) {
	config.InsecureSkipVerify = true
	config.VerifyConnection = func(state tls.ConnectionState) error {
		if len(state.PeerCertificates) == 0 {
			return errors.New("the server sent no certificate")
		}
		opts := x509.VerifyOptions{Roots: f.Pool(), DNSName: host, Intermediates: x509.NewCertPool()}
		for _, cert := range state.PeerCertificates[1:] {
			opts.Intermediates.AddCert(cert)
		}
		_, err := state.PeerCertificates[0].Verify(opts)
		return err
	}
}

// PEM returns a copy of the file's contents.
func (f *CAFile) PEM() []byte { return slices.Clone(f.bundle.get().pem) }

// KeyPair is a certificate and its key in two PEM files. The files are read again when they
// change, so servers and clients use a renewed certificate without a restart. Safe for
// concurrent use.
type KeyPair struct{ pair *reloaded[*tls.Certificate] }

// NewKeyPair reads the two files. The certificate file may have a chain.
func NewKeyPair(certFile, keyFile string) (*KeyPair, error) {
	load := func() (*tls.Certificate, error) {
		pair, err := tls.LoadX509KeyPair(certFile, keyFile)
		if err != nil {
			return nil, fmt.Errorf("read certificate and key: %w", err)
		}
		return &pair, nil
	}
	pair, err := newReloaded(load, certFile, keyFile)
	if err != nil {
		return nil, err
	}
	return &KeyPair{pair: pair}, nil
}

// GetCertificate is for the tls.Config of a server.
func (k *KeyPair) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return k.pair.get(), nil
}

// GetClientCertificate is for the tls.Config of a client. It returns the certificate
// whatever CAs the server lists, so that a server with the wrong CA reports an error.
func (k *KeyPair) GetClientCertificate(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	return k.pair.get(), nil
}

// reloadInterval is the shortest interval at which a file in use is checked, a microsecond or two.
// A revoked certificate, or one of an authority that is no longer trusted, is accepted no longer than that.
const reloadInterval = time.Second

// reloads counts the calls of Reload, and reloading is closed by the next one.
var (
	reloads   atomic.Int64
	reloading atomic.Pointer[chan struct{}]
)

func init() {
	next := make(chan struct{})
	reloading.Store(&next)
}

// Reload has every file checked when it is next used, instead of within reloadInterval, and has
// every Follow look at once.
func Reload() {
	reloads.Add(1)
	next := make(chan struct{})
	close(*reloading.Swap(&next))
}

// Follow calls look every second and after each Reload until ctx ends, for files that take
// effect without being used.
func Follow(ctx context.Context, look func()) error {
	tick := time.NewTicker(reloadInterval)
	defer tick.Stop()
	for {
		next := *reloading.Load() // before look, which may miss what changes meanwhile
		look()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		case <-next:
		}
	}
}

// FollowFile calls changed with the content of a file after each change of it, until ctx ends. was is the
// content of before; a file that cannot be read keeps that.
func FollowFile(ctx context.Context, path string, was []byte, changed func(data []byte)) error {
	return Follow(ctx, func() {
		if now, err := os.ReadFile(path); err == nil && !bytes.Equal(now, was) {
			was = now
			changed(now)
		}
	})
}

// reloaded is a value read from files, and read again when they change. A caller checks
// the files at most once per interval. If they cannot be read the last value stays in
// force, and the error is logged once. Safe for concurrent use.
type reloaded[T any] struct {
	paths    []string
	load     func() (T, error)
	interval time.Duration
	current  atomic.Pointer[T]
	next     atomic.Int64 // time of the next check, in Unix nanoseconds
	asked    atomic.Int64 // reloads at the last check
	checking sync.Mutex
	seen     string // guarded by checking: fingerprints of the files
}

// newReloaded reads the value for the first time; that must succeed.
func newReloaded[T any](load func() (T, error), paths ...string) (*reloaded[T], error) {
	r := &reloaded[T]{paths: paths, load: load, interval: reloadInterval, seen: fingerprints(paths)}
	value, err := load()
	if err != nil {
		return nil, err
	}
	r.current.Store(&value)
	r.asked.Store(reloads.Load())
	r.next.Store(time.Now().Add(r.interval).UnixNano())
	return r, nil
}

// get returns the value. When a check is due one caller makes it; concurrent callers get
// the present value.
func (r *reloaded[T]) get() T {
	asked := reloads.Load()
	if now := time.Now(); (now.UnixNano() >= r.next.Load() || r.asked.Load() != asked) && r.checking.TryLock() {
		r.check()
		r.asked.Store(asked)
		r.next.Store(now.Add(r.interval).UnixNano())
		r.checking.Unlock()
	}
	return *r.current.Load()
}

// check reads the value again if a file changed. The caller holds checking.
func (r *reloaded[T]) check() {
	now := fingerprints(r.paths)
	if now == r.seen {
		return
	}
	r.seen = now
	value, err := r.load()
	if err != nil {
		slog.Error("reloading credentials failed, the previous ones stay in use", "files", r.paths, "err", err)
		return
	}
	r.current.Store(&value)
	slog.Info("credentials reloaded", "files", r.paths)
}

// fingerprints returns the sizes and times of the files, which differ for another content.
func fingerprints(paths []string) string {
	var b strings.Builder
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			b.WriteString("missing;")
			continue
		}
		fmt.Fprintf(&b, "%d %d;", info.Size(), info.ModTime().UnixNano())
	}
	return b.String()
}
