package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// pair is a certificate and its key.
type pair struct {
	cert *x509.Certificate
	key  crypto.Signer
	// chain follows the certificate in its file.
	chain []*x509.Certificate
}

// readPair reads a certificate and its key. The error wraps fs.ErrNotExist if a file is
// missing.
func readPair(files Pair) (*pair, error) {
	loaded, err := tls.LoadX509KeyPair(files.CertFile, files.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("read %s and %s: %w", files.CertFile, files.KeyFile, err)
	}
	key, ok := loaded.PrivateKey.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("read %s: a key of type %T cannot sign", files.KeyFile, loaded.PrivateKey)
	}
	p := &pair{cert: loaded.Leaf, key: key}
	for _, der := range loaded.Certificate[1:] {
		more, err := x509.ParseCertificate(der)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", files.CertFile, err)
		}
		p.chain = append(p.chain, more)
	}
	return p, nil
}

// readCertificates reads the certificates of a file. The error wraps fs.ErrNotExist if it is missing.
func readCertificates(file string) ([]*x509.Certificate, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read certificates: %w", err)
	}
	certs, err := certutil.ParseCertsPEM(data)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", file, err)
	}
	return certs, nil
}

// readKey reads a private key. The error wraps fs.ErrNotExist if the file is missing.
func readKey(file string) (crypto.Signer, error) {
	private, err := keyutil.PrivateKeyFromFile(file)
	if err != nil {
		return nil, fmt.Errorf("read key %s: %w", file, err)
	}
	key, ok := private.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("read %s: a key of type %T cannot sign", file, private)
	}
	return key, nil
}

// isOf reports whether a certificate is of a key.
func isOf(cert *x509.Certificate, key crypto.Signer) bool {
	public, ok := key.Public().(interface{ Equal(crypto.PublicKey) bool })
	return ok && public.Equal(cert.PublicKey)
}

// write writes the pair, the key first: Ensure replaces a key without a certificate, and
// rejects a CA certificate without a key.
func (p *pair) write(files Pair) error {
	if err := writeKey(files.KeyFile, p.key); err != nil {
		return err
	}
	return writeFile(files.CertFile, p.certPEM())
}

func (p *pair) certPEM() []byte { return encode(append([]*x509.Certificate{p.cert}, p.chain...)) }

func encode(certs []*x509.Certificate) (out []byte) {
	for _, c := range certs {
		out = append(out, pem.EncodeToMemory(&pem.Block{Type: certutil.CertificateBlockType, Bytes: c.Raw})...)
	}
	return out
}

func writeKey(path string, key crypto.Signer) error {
	data, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return err
	}
	return writeFile(path, data)
}

func newKey() (*ecdsa.PrivateKey, error) {
	return ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
}

// writeFile replaces the file at path atomically, with mode 0600. The folder must exist.
func writeFile(path string, data []byte) (err error) {
	dir, temporary := filepath.Dir(path), "."+filepath.Base(path)+"."
	if err := removeTemporary(dir, temporary); err != nil {
		return fmt.Errorf("write file: %w", err)
	}
	f, err := os.CreateTemp(dir, temporary+"*")
	if err != nil {
		return fmt.Errorf("write file: %w", err)
	}
	defer func() {
		if err != nil {
			os.Remove(f.Name())
			err = fmt.Errorf("write file: %w", err)
		}
	}()
	// CreateTemp makes files with mode 0600.
	if _, err = f.Write(data); err != nil {
		f.Close()
		return err
	}
	// Without Sync, a power failure after the rename could leave an empty file.
	if err = f.Sync(); err != nil {
		f.Close()
		return err
	}
	if err = f.Close(); err != nil {
		return err
	}
	return rename(f.Name(), path)
}

// removeTemporary removes the files of os.CreateTemp that a process left that was killed in writeFile: a prefix and a number.
// The call that writes what it did not write removes them.
func removeTemporary(dir, prefix string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		number, is := strings.CutPrefix(entry.Name(), prefix)
		if _, err := strconv.ParseUint(number, 10, 64); !is || err != nil {
			continue
		}
		if err := os.Remove(filepath.Join(dir, entry.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// beforeRename is called before a file gets its name. Tests crash there.
var beforeRename = func(to string) error { return nil }

// rename gives a file its name, which may be that of another one that it replaces.
func rename(from, to string) error {
	if err := beforeRename(to); err != nil {
		return err
	}
	return os.Rename(from, to)
}
