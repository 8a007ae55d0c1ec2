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

// Authority is one of an installation's three, named as its files are.
type Authority string

const (
	// ServingAuthority vouches for servers: the gateway and those behind it.
	ServingAuthority Authority = "serving-ca"
	// ClientAuthority vouches for users.
	ClientAuthority Authority = "client-ca"
	// FrontProxyAuthority vouches for those whose word about users is taken.
	FrontProxyAuthority Authority = "front-proxy-ca"
)

// authorities are all of them.
func authorities() []Authority {
	return []Authority{ServingAuthority, ClientAuthority, FrontProxyAuthority}
}

// ErrNoAuthority is returned by Issue for a folder that lacks an authority, or
// its key.
var ErrNoAuthority = errors.New("there is no such authority")

// FilesExistError names files that are there already and differ from what would
// be written. Nothing was written.
type FilesExistError struct{ Files []string }

func (e *FilesExistError) Error() string {
	return fmt.Sprintf("write %s: it is there already", e.Files[0])
}

// OutlivesError is that a certificate would be good for longer than its authority.
// Nothing was written.
type OutlivesError struct {
	// End is the authority's.
	End time.Time
}

func (e *OutlivesError) Error() string {
	return "issue certificate: its authority is good until " + e.End.Local().Format(time.RFC3339) + " only"
}

// Request is a certificate to be issued.
type Request struct {
	// By is the authority that signs. What it is decides the use: of a server
	// for ServingAuthority, else of a client.
	By Authority
	// Name is that of the files, without an ending.
	Name string
	// User is the subject's common name, Groups its organizations.
	User   string
	Groups []string
	// Hosts are the names and addresses of a server; it has at least one.
	Hosts []string
	// ValidFor is how long from now the certificate is good. Negative is one
	// that has expired already. It ends with its authority at the latest.
	ValidFor time.Duration
	// Whole refuses one that its authority would end sooner: OutlivesError.
	Whole bool
	// Replace allows files that are there to be replaced.
	Replace bool
	// Now is the time; zero is the wall clock.
	Now time.Time
}

// Issued is what Issue wrote.
type Issued struct {
	Pair Pair
	// Authorities are the certificates of all authorities, by which the holder
	// of the pair knows its peers.
	Authorities []string
	NotAfter    time.Time
}

// Issue makes a key and a certificate by an authority in caDir and writes them
// to outDir, which is made if needed, together with the certificates of the
// authorities, never their keys: the folder is all that a process on another
// machine needs. It may be called while others use caDir, which it only reads.
func Issue(caDir, outDir string, req Request) (*Issued, error) {
	made, err := req.sign(caDir)
	if err != nil {
		return nil, err
	}
	out := &Issued{Pair: pairIn(outDir, req.Name), NotAfter: made.cert.NotAfter}
	if out.Authorities, err = handOut(caDir, outDir, out.Pair, req.Replace); err != nil {
		return nil, err
	}
	return out, made.write(out.Pair.CertFile, out.Pair.KeyFile)
}

// sign makes what is asked for.
func (r *Request) sign(caDir string) (*pair, error) {
	now := r.Now
	if now.IsZero() {
		now = time.Now()
	}
	if err := r.check(); err != nil {
		return nil, err
	}
	files := pairIn(caDir, string(r.By))
	by, err := readPair(files.CertFile, files.KeyFile)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("read authority: %w (%w)", ErrNoAuthority, err)
	case err != nil:
		return nil, err
	case !by.cert.IsCA:
		return nil, fmt.Errorf("read %s: it is not a certificate authority", files.CertFile)
	}
	signer := &authority{pair: by, certFile: files.CertFile}
	want := leaf{subject: pkix.Name{CommonName: r.User, Organization: r.Groups}, server: r.Hosts}
	end := now.Add(r.ValidFor)
	if r.Whole && end.After(by.cert.NotAfter) {
		return nil, &OutlivesError{by.cert.NotAfter}
	}
	return signer.issue(want, earlier(now, end).Add(-backdate), end)
}

// check refuses what no authority should sign, and names that would replace the
// authorities' own files.
func (r *Request) check() error {
	switch r.Name {
	case "", ".", "..", string(ServingAuthority), string(ClientAuthority), string(FrontProxyAuthority), signingKeyName:
		return fmt.Errorf("issue certificate: its files cannot be named %q", r.Name)
	}
	if r.Name != filepath.Base(r.Name) {
		return fmt.Errorf("issue certificate: %q is no name of a file in a folder", r.Name)
	}
	if (r.By == ServingAuthority) != (len(r.Hosts) > 0) {
		return fmt.Errorf("issue %s: a server has hosts, and nobody else", r.Name)
	}
	return nil
}

// handOut copies the certificates of the authorities from caDir to outDir, where
// the files of a pair will be put as well. Before it writes anything, it sees to
// it that nothing is replaced which must not be.
func handOut(caDir, outDir string, pair Pair, replace bool) (copies []string, err error) {
	if err := os.MkdirAll(outDir, 0o700); err != nil {
		return nil, fmt.Errorf("create folder for certificates: %w", err)
	}
	var there []string
	for _, file := range []string{pair.CertFile, pair.KeyFile} {
		if _, err := os.Lstat(file); err == nil {
			there = append(there, file)
		}
	}
	missing := map[string][]byte{}
	for _, a := range authorities() {
		from, to := pairIn(caDir, string(a)).CertFile, pairIn(outDir, string(a)).CertFile
		want, err := os.ReadFile(from)
		if err != nil {
			return nil, fmt.Errorf("read authority: %w (%w)", ErrNoAuthority, err)
		}
		copies = append(copies, to)
		switch got, err := os.ReadFile(to); {
		case err == nil && bytes.Equal(got, want):
			continue
		case err == nil || !errors.Is(err, fs.ErrNotExist):
			there = append(there, to)
		}
		missing[to] = want
	}
	if len(there) > 0 && !replace {
		return nil, &FilesExistError{Files: there}
	}
	for to, data := range missing {
		if err := writeFile(to, data); err != nil {
			return nil, err
		}
	}
	return copies, nil
}

// EnsureAuthorities makes what is missing of the three authorities and the
// service-account signing key in dir, for an installation whose processes are
// started one by one, on machines of their own.
func EnsureAuthorities(dir string) error {
	if _, err := ensureAuthorities(dir, time.Now()); err != nil {
		return err
	}
	return ensureSigningKey(signingKeyIn(dir))
}

// ensureAuthorities makes dir if needed and keeps the authorities in it.
func ensureAuthorities(dir string, now time.Time) (map[Authority]*authority, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("create certificate folder: %w", err)
	}
	all := map[Authority]*authority{}
	for _, name := range authorities() {
		files := pairIn(dir, string(name))
		a, err := ensureAuthority(files.CertFile, files.KeyFile, "portico-"+string(name), now)
		if err != nil {
			return nil, err
		}
		all[name] = a
	}
	return all, nil
}

// signingKeyName is the name of the files of the service-account signing key,
// without an ending.
const signingKeyName = "service-account"

// signingKeyIn names the files of the service-account signing key.
func signingKeyIn(dir string) (keyFile, publicFile string) {
	return filepath.Join(dir, signingKeyName+".key"), filepath.Join(dir, signingKeyName+".pub")
}
