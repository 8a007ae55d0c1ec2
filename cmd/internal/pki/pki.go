// Package pki makes and renews the keys and certificates of an installation: its CAs, the
// certificates of the processes, the service-account signing key and the administrator's
// kubeconfig.
//
// Decisions:
//
//   - Each CA certifies one role: servers (serving), users (client), and gateways that name
//     users (front-proxy). With one CA for two roles, a user's certificate could pass for
//     that of a front proxy.
//   - What the API signs on request (certificates.k8s.io) is signed by two CAs more: one below
//     the client CA, which can sign users only, and one that nothing trusts by itself for the
//     servers of kubelets, since requests choose the names in their certificates.
//   - All keys are ECDSA P-256: a whole set takes a few milliseconds, and every client of the
//     last ten years supports it.
//   - [Ensure] is idempotent. Valid files are kept. A certificate is replaced when it is about
//     to expire, when its CA changed, or when its names are others. A root CA is never replaced: if it
//     cannot be read, Ensure returns an error that names the file.
//   - [Issue] writes everything that a process on another machine needs, and never the key of
//     a CA. It replaces files only with Request.Replace, because they may be in use.
//   - Files are written under a temporary name and renamed, with mode 0600, so that readers
//     never see half a file.
//
// Runs in: portico up, portico certs.
package pki

import (
	"crypto"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"time"

	"k8s.io/client-go/util/keyutil"
)

// Names in the certificates. RBAC roles and the allowed names of front proxies refer to them.
const (
	AdminName      = "portico:admin"
	adminGroup     = "system:masters"
	FrontProxyName = "front-proxy-client"
	CoreName       = "system:portico:core"
	CRDName        = "system:portico:crd"
)

// Config names the folder of the files and the hosts of the gateway.
type Config struct {
	// Dir is the folder of the files. Ensure creates it with mode 0700.
	Dir string
	// Hosts are the names and addresses of the gateway besides localhost, 127.0.0.1 and
	// ::1.
	Hosts []string
	// Now is the current time; zero: time.Now().
	Now time.Time
}

// Pair names the files of a certificate and its key.
type Pair struct{ CertFile, KeyFile string }

func pairIn(dir, name string) Pair {
	return Pair{CertFile: filepath.Join(dir, name+".crt"), KeyFile: filepath.Join(dir, name+".key")}
}

// Files names the files of [Ensure].
type Files struct {
	// ServingCAFile certifies servers, ClientCAFile users, and FrontProxyCAFile front proxies.
	ServingCAFile, ClientCAFile, FrontProxyCAFile string
	// Serving is the server certificate of the gateway.
	Serving Pair
	// Admin is the client certificate of the administrator, FrontProxy that of the gateway at
	// backends, Core and CRD those of these servers at the gateway.
	Admin, FrontProxy, Core, CRD Pair
	// SigningCA signs the client certificates that are requested from the API, and
	// KubeletServingCA the server certificates of kubelets.
	SigningCA, KubeletServingCA Pair
	// ServiceAccountKeyFile signs service-account tokens,
	// ServiceAccountPublicKeyFile verifies them.
	ServiceAccountKeyFile, ServiceAccountPublicKeyFile string
}

// Ensure makes missing files and renews certificates that are about to expire. Only one
// process may call it for a folder at a time.
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
		ServingCAFile: serving.files.CertFile, ClientCAFile: client.files.CertFile, FrontProxyCAFile: proxy.files.CertFile,
		Serving: pairAt("gateway"), Admin: pairAt("admin"), FrontProxy: pairAt("front-proxy-client"),
		Core: pairAt("core"), CRD: pairAt("crd"), SigningCA: pairAt(signingName), KubeletServingCA: pairAt(kubeletServingName),
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
		if err := l.by.ensureLeaf(l.pair, l.want, now); err != nil {
			return nil, err
		}
	}
	if err := client.ensureIntermediate(f.SigningCA, "portico-"+signingName, now); err != nil {
		return nil, err
	}
	if _, err := ensureAuthority(f.KubeletServingCA, "portico-"+kubeletServingName, now); err != nil {
		return nil, err
	}
	return f, ensureSigningKey(f.ServiceAccountKeyFile, f.ServiceAccountPublicKeyFile)
}

// ensureSigningKey makes the service-account key if there is none. It never replaces one:
// tokens signed by it are in use. A public key file without its public key is an error,
// because no token would be accepted.
func ensureSigningKey(keyFile, publicFile string) error {
	var public crypto.PublicKey
	private, err := keyutil.PrivateKeyFromFile(keyFile)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		key, err := newKey()
		if err != nil {
			return fmt.Errorf("make service account key: %w", err)
		}
		if err := writeKey(keyFile, key); err != nil {
			return err
		}
		public = key.Public()
	case err != nil:
		return err
	default:
		signer, ok := private.(crypto.Signer)
		if !ok {
			return fmt.Errorf("read %s: a key of type %T cannot sign", keyFile, private)
		}
		public = signer.Public()
		found, err := keyutil.PublicKeysFromFile(publicFile)
		if errors.Is(err, fs.ErrNotExist) {
			break
		}
		// Keys of earlier signing keys may be in the file too.
		equal := public.(interface{ Equal(crypto.PublicKey) bool }).Equal
		if !slices.ContainsFunc(found, func(key any) bool { return equal(key) }) {
			return fmt.Errorf("read %s: it lacks the public key of %s, so tokens would be rejected; remove it to have it made again, or restore both files", publicFile, keyFile)
		}
		return nil
	}
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		return fmt.Errorf("encode service account key: %w", err)
	}
	return writeFile(publicFile, pem.EncodeToMemory(&pem.Block{Type: keyutil.PublicKeyBlockType, Bytes: der}))
}
