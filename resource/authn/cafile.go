package authn

import (
	"crypto/x509"
	"fmt"
	"os"
	"slices"
)

// CAFile is a file of PEM certificates that are trusted as authorities. It is
// read again when it changes. Safe for concurrent use.
type CAFile struct{ bundle *reloaded[caBundle] }

type caBundle struct {
	pool *x509.CertPool
	pem  []byte
}

// NewCAFile reads the file. It is an error if there is no certificate in it.
func NewCAFile(path string) (*CAFile, error) {
	load := func() (caBundle, error) {
		data, err := os.ReadFile(path)
		if err != nil {
			return caBundle{}, fmt.Errorf("read certificate authorities: %w", err)
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(data) {
			return caBundle{}, fmt.Errorf("read certificate authorities: no PEM certificate in %s", path)
		}
		return caBundle{pool: pool, pem: data}, nil
	}
	bundle, err := newReloaded(load, path)
	if err != nil {
		return nil, err
	}
	return &CAFile{bundle: bundle}, nil
}

// Pool returns the authorities. The same pool is returned until the file
// changes; it must not be changed.
func (f *CAFile) Pool() *x509.CertPool { return f.bundle.get().pool }

// PEM returns a copy of the file's contents.
func (f *CAFile) PEM() []byte { return slices.Clone(f.bundle.get().pem) }
