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
//     to expire, when its CA changed, or when its names are others. A root CA that cannot be read is
//     an error that names the file: a new one would lock out all that trust it.
//   - A root CA is replaced by one of the same name that is trusted beside it first, then used, and
//     that the earlier one certifies too (rollover.go). Each step is the change of one file, and a
//     step that a crash cut off is done by the next call.
//   - [Issue] writes everything that a process on another machine needs, and never the key of
//     a CA. It replaces files only with Request.Replace, because they may be in use.
//   - Files are written under a temporary name and renamed, with mode 0600, so that readers
//     never see half a file.
//
// Runs in: portico up, portico certs.
package pki

import (
	"crypto/x509/pkix"
	"path/filepath"
	"time"
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
	// Lifetimes are those of new certificates.
	Lifetimes Lifetimes
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
	// NextUse is when the next certificate of a CA is to be used, by another call of Ensure; the zero time: there is
	// none.
	NextUse time.Time
}

// Ensure makes missing files, renews certificates that are about to expire, and goes on with the
// replacement of CAs (rollover.go). It does what was requested (rotation.go). Only one process may call it for a folder at a time.
func Ensure(cfg Config) (*Files, error) {
	now := cfg.Now
	if now.IsZero() {
		now = time.Now()
	}
	life := cfg.Lifetimes.orDefault()
	all, err := ensureAuthorities(cfg.Dir, now, life.Authority)
	if err != nil {
		return nil, err
	}
	f := FilesIn(cfg.Dir)
	kubelets, err := ensureAuthority(f.KubeletServingCA, "portico-"+kubeletServingName, now, life.Authority)
	if err != nil {
		return nil, err
	}
	if err := ensureSigningKey(f.ServiceAccountKeyFile, f.ServiceAccountPublicKeyFile); err != nil {
		return nil, err
	}
	authorities := []*authority{all[ServingAuthority], all[FrontProxyAuthority], kubelets, all[ClientAuthority]}
	requested := ReplaceAuthorities.Pending(cfg.Dir)
	for _, a := range authorities {
		if err := a.renew(now, life.Authority, requested); err != nil {
			return nil, err
		}
	}
	if err := renewSigningKey(cfg.Dir, all[ClientAuthority].next != nil); err != nil {
		return nil, err
	}
	serving, client, proxy := all[ServingAuthority], all[ClientAuthority], all[FrontProxyAuthority]
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
		if err := l.by.ensureLeaf(l.pair, l.want, now, life.Leaf); err != nil {
			return nil, err
		}
	}
	if err := client.ensureIntermediate(f.SigningCA, "portico-"+signingName, now, life); err != nil {
		return nil, err
	}
	f.NextUse, err = finish(cfg.Dir, authorities)
	return f, err
}

// FilesIn names the files of Ensure in a folder.
func FilesIn(dir string) *Files {
	pairAt := func(name string) Pair { return pairIn(dir, name) }
	f := &Files{
		ServingCAFile: pairAt(string(ServingAuthority)).CertFile, ClientCAFile: pairAt(string(ClientAuthority)).CertFile,
		FrontProxyCAFile: pairAt(string(FrontProxyAuthority)).CertFile,
		Serving:          pairAt("gateway"), Admin: pairAt("admin"), FrontProxy: pairAt("front-proxy-client"),
		Core: pairAt("core"), CRD: pairAt("crd"), SigningCA: pairAt(signingName), KubeletServingCA: pairAt(kubeletServingName),
	}
	f.ServiceAccountKeyFile, f.ServiceAccountPublicKeyFile = signingKeyIn(dir)
	return f
}
