package pki

import (
	"bytes"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// Authority is the name of a CA and of its files.
type Authority string

const (
	// ServingAuthority certifies servers: the gateway and its backends.
	ServingAuthority Authority = "serving-ca"
	// ClientAuthority certifies users.
	ClientAuthority Authority = "client-ca"
	// FrontProxyAuthority certifies front proxies, which name users.
	FrontProxyAuthority Authority = "front-proxy-ca"
)

// The names of the files of the CAs that sign what the API is asked for, without extension.
const (
	signingName        = "signing-ca"
	kubeletServingName = "kubelet-serving-ca"
)

func authorities() []Authority {
	return []Authority{ServingAuthority, ClientAuthority, FrontProxyAuthority}
}

// ErrNoAuthority is returned by Issue for a folder without the CA or its key.
var ErrNoAuthority = errors.New("the CA or its key does not exist")

// FilesExistError names existing files that differ from the new ones. Nothing was written.
type FilesExistError struct{ Files []string }

func (e *FilesExistError) Error() string {
	return fmt.Sprintf("write %s: the file exists", e.Files[0])
}

// Request describes a certificate.
type Request struct {
	// By is the CA. ServingAuthority issues server certificates, the others client
	// certificates.
	By Authority
	// Name is the name of the files, without extension.
	Name string
	// User is the common name of the subject, Groups are the organizations.
	User   string
	Groups []string
	// Hosts are the names and addresses of a server; at least one for a server certificate.
	Hosts []string
	// ValidFor is the time until the certificate expires, at most that of its CA. If
	// negative, the certificate has expired.
	ValidFor time.Duration
	// Whole rejects a certificate that would expire after its CA.
	Whole bool
	// Replace permits to replace files.
	Replace bool
}

// Issued is what Issue wrote.
type Issued struct {
	Pair Pair
	// Authorities are the files of the CA certificates, to verify peers.
	Authorities []string
	NotAfter    time.Time
}

// Issue makes a key and a certificate by a CA in caDir and writes them to outDir, which it
// creates, with the certificates of all CAs: everything that a process on another machine
// needs. It only reads caDir, so concurrent calls are safe.
func Issue(caDir, outDir string, req Request) (*Issued, error) {
	made, err := req.sign(caDir)
	if err != nil {
		return nil, err
	}
	out := &Issued{Pair: pairIn(outDir, req.Name), NotAfter: made.cert.NotAfter}
	if out.Authorities, err = copyAuthorities(caDir, outDir, out.Pair, req.Replace); err != nil {
		return nil, err
	}
	return out, made.write(out.Pair)
}

// sign makes the key and the certificate.
func (r *Request) sign(caDir string) (*pair, error) {
	now := time.Now()
	if err := r.check(); err != nil {
		return nil, err
	}
	by, err := readAuthority(pairIn(caDir, string(r.By)))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%w: %w", ErrNoAuthority, err)
	case err != nil:
		return nil, err
	}
	want := leaf{subject: pkix.Name{CommonName: r.User, Organization: r.Groups}, server: r.Hosts}
	end := now.Add(r.ValidFor)
	if r.Whole && end.After(by.cert.NotAfter) {
		return nil, fmt.Errorf("issue certificate: its CA expires at %s; choose a shorter lifetime", by.cert.NotAfter.Local().Format(time.RFC3339))
	}
	return by.issue(want, earlier(now, end).Add(-backdate), end)
}

// check rejects invalid requests, and names of files that would replace those of a CA.
func (r *Request) check() error {
	switch r.Name {
	case "", ".", "..", string(ServingAuthority), string(ClientAuthority), string(FrontProxyAuthority), signingName, kubeletServingName, signingKeyName:
		return fmt.Errorf("issue certificate: the files cannot be named %q", r.Name)
	}
	if r.Name != filepath.Base(r.Name) {
		return fmt.Errorf("issue certificate: %q is not a file name", r.Name)
	}
	if (r.By == ServingAuthority) != (len(r.Hosts) > 0) {
		return fmt.Errorf("issue %s: a server certificate needs hosts, and a client certificate has none", r.Name)
	}
	return nil
}

// copyAuthorities copies the CA certificates from caDir to outDir. Before it writes anything,
// it checks that neither they nor the files of pair replace a file, unless replace is set.
func copyAuthorities(caDir, outDir string, pair Pair, replace bool) (copies []string, err error) {
	if err := os.MkdirAll(outDir, 0o700); err != nil {
		return nil, fmt.Errorf("create certificate folder: %w", err)
	}
	var existing []string
	for _, file := range []string{pair.CertFile, pair.KeyFile} {
		if _, err := os.Lstat(file); err == nil {
			existing = append(existing, file)
		}
	}
	missing := map[string][]byte{}
	for _, a := range authorities() {
		from, to := pairIn(caDir, string(a)).CertFile, pairIn(outDir, string(a)).CertFile
		want, err := os.ReadFile(from)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrNoAuthority, err)
		}
		copies = append(copies, to)
		switch got, err := os.ReadFile(to); {
		case err == nil && bytes.Equal(got, want):
			continue
		case err == nil || !errors.Is(err, fs.ErrNotExist):
			existing = append(existing, to)
		}
		missing[to] = want
	}
	if len(existing) > 0 && !replace {
		return nil, &FilesExistError{Files: existing}
	}
	for to, data := range missing {
		if err := writeFile(to, data); err != nil {
			return nil, err
		}
	}
	return copies, nil
}

// EnsureAuthorities makes the CAs and the service-account signing key in dir, if they are
// missing, for an installation with processes on several machines.
func EnsureAuthorities(dir string) error {
	if _, err := ensureAuthorities(dir, time.Now(), DefaultAuthorityLifetime); err != nil {
		return err
	}
	return ensureSigningKey(signingKeyIn(dir))
}

// ensureAuthorities creates dir and reads or makes the CAs in it.
func ensureAuthorities(dir string, now time.Time, life time.Duration) (map[Authority]*authority, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("create certificate folder: %w", err)
	}
	all := map[Authority]*authority{}
	for _, name := range authorities() {
		a, err := ensureAuthority(pairIn(dir, string(name)), "portico-"+string(name), now, life)
		if err != nil {
			return nil, err
		}
		all[name] = a
	}
	return all, nil
}
