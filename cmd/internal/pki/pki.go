package pki

import (
	"crypto/ecdsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// Names that the leaves carry. The gateway's RBAC roles and the allowed names
// of the front proxy refer to them.
const (
	AdminName      = "portico:admin"
	adminGroup     = "system:masters"
	FrontProxyName = "front-proxy-client"
	CoreName       = "system:portico:core"
	CRDName        = "system:portico:crd"
)

// Config says where the files are and what the gateway is called.
type Config struct {
	// Dir is the folder of the files; made with mode 0700.
	Dir string
	// Hosts are the names and addresses that the gateway is reached by.
	// localhost, 127.0.0.1 and ::1 are always added.
	Hosts []string
	// Now is the time; zero is the wall clock.
	Now time.Time
}

// Pair names the files of a certificate and its key.
type Pair struct{ CertFile, KeyFile string }

func pairIn(dir, name string) Pair {
	return Pair{CertFile: filepath.Join(dir, name+".crt"), KeyFile: filepath.Join(dir, name+".key")}
}

// Files names everything that [Ensure] keeps.
type Files struct {
	// ServingCA signs Serving, ClientCA the users' certificates, FrontProxyCA
	// the front proxy's.
	ServingCAFile, ClientCAFile, FrontProxyCAFile string
	// Serving is the gateway's own certificate.
	Serving Pair
	// Admin is the administrator's, FrontProxy the one that the gateway shows
	// to backends, Core and CRD those that these servers show to the gateway.
	Admin, FrontProxy, Core, CRD Pair
	// ServiceAccountKeyFile signs service-account tokens,
	// ServiceAccountPublicKeyFile verifies them.
	ServiceAccountKeyFile, ServiceAccountPublicKeyFile string
}

// Ensure makes what is missing and renews what nears its end. It may be called
// again on the same folder, by one process at a time.
func Ensure(cfg Config) (*Files, error) {
	now := cfg.Now
	if now.IsZero() {
		now = time.Now()
	}
	all, err := ensureAuthorities(cfg.Dir, now)
	if err != nil {
		return nil, err
	}
	serving, client, proxy := all[ServingAuthority], all[ClientAuthority], all[FrontProxyAuthority]
	pairAt := func(name string) Pair { return pairIn(cfg.Dir, name) }
	f := &Files{
		ServingCAFile: serving.certFile, ClientCAFile: client.certFile, FrontProxyCAFile: proxy.certFile,
		Serving: pairAt("gateway"), Admin: pairAt("admin"), FrontProxy: pairAt("front-proxy-client"),
		Core: pairAt("core"), CRD: pairAt("crd"),
	}
	f.ServiceAccountKeyFile, f.ServiceAccountPublicKeyFile = signingKeyIn(cfg.Dir)
	hosts := append([]string{"localhost", "127.0.0.1", "::1"}, cfg.Hosts...)
	for _, l := range []struct {
		by   *authority
		pair Pair
		want leaf
	}{
		{serving, f.Serving, leaf{subject: pkix.Name{CommonName: "portico-gateway"}, server: hosts}},
		{client, f.Admin, leaf{subject: pkix.Name{CommonName: AdminName, Organization: []string{adminGroup}}}},
		{client, f.Core, leaf{subject: pkix.Name{CommonName: CoreName}}},
		{client, f.CRD, leaf{subject: pkix.Name{CommonName: CRDName}}},
		{proxy, f.FrontProxy, leaf{subject: pkix.Name{CommonName: FrontProxyName}}},
	} {
		if err := l.by.ensureLeaf(l.pair.CertFile, l.pair.KeyFile, l.want, now); err != nil {
			return nil, err
		}
	}
	return f, ensureSigningKey(f.ServiceAccountKeyFile, f.ServiceAccountPublicKeyFile)
}

// ensureSigningKey keeps the service-account key. It is never replaced: tokens
// that it signed are in use. A public key file that lacks its public key is an error:
// no token would be accepted.
func ensureSigningKey(keyFile, publicFile string) error {
	key, err := readKey(keyFile)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if key, err = newKey(); err != nil {
			return fmt.Errorf("make service account key: %w", err)
		}
		if err := writeKey(keyFile, key); err != nil {
			return err
		}
	case err != nil:
		return err
	default:
		data, err := os.ReadFile(publicFile)
		if err == nil && !holdsPublicKey(data, &key.PublicKey) {
			return fmt.Errorf("read %s: it does not hold the public key of %s, so that tokens signed with that would not be accepted; remove it to have it made again, or restore both files", publicFile, keyFile)
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	der, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		return fmt.Errorf("encode service account key: %w", err)
	}
	return writeFile(publicFile, encodeBlock(pemPublicKey, der))
}

// holdsPublicKey reports whether one of the PEM blocks is the public key. Others may
// be beside it: those of earlier signing keys.
func holdsPublicKey(data []byte, key *ecdsa.PublicKey) bool {
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		if got, err := x509.ParsePKIXPublicKey(block.Bytes); err == nil && key.Equal(got) {
			return true
		}
	}
	return false
}
