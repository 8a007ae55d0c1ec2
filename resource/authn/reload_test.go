package authn

import (
	"bytes"
	"crypto/elliptic"
	"crypto/x509/pkix"
	"path/filepath"
	"testing"
	"time"
)

// A changed CA file is read again, unless it is invalid.
func TestCAFileIsReadAgain(t *testing.T) {
	first, second := newTestCA(t, "first"), newTestCA(t, "second")
	path := filepath.Join(t.TempDir(), "ca.pem")
	writeFile(t, path, certPEM(first.cert))
	file, err := NewCAFile(path)
	if err != nil {
		t.Fatal(err)
	}
	alwaysCheck(file.bundle)
	before := file.Pool()
	if file.Pool() != before {
		t.Error("the pool changed without the file")
	}
	writeFile(t, path, []byte("garbage"))
	if file.Pool() != before {
		t.Error("an invalid file replaced the CAs")
	}
	both := append(certPEM(first.cert), certPEM(second.cert)...)
	writeFile(t, path, both)
	if file.Pool() == before || !bytes.Equal(file.PEM(), both) {
		t.Error("the file was not read again")
	}
	writeFile(t, path, nil)
	if _, err := NewCAFile(path); err == nil {
		t.Error("a file without certificates was accepted")
	}
}

// A changed key pair is read again once both files match.
func TestKeyPairIsReadAgain(t *testing.T) {
	ca := newTestCA(t, "ca")
	dir := t.TempDir()
	certPath, keyPath := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	write := func(name string) {
		key := newECKey(t, elliptic.P256())
		cert := signCert(t, leafTemplate(pkix.Name{CommonName: name}, time.Now().Add(time.Hour)), ca.cert, key.Public(), ca.key)
		pem := keyFile(t, key)
		copyFile(t, pem, keyPath)
		writeFile(t, certPath, certPEM(cert))
	}
	write("one")
	pair, err := NewKeyPair(certPath, keyPath)
	if err != nil {
		t.Fatal(err)
	}
	alwaysCheck(pair.pair)
	name := func() string {
		cert, err := pair.GetCertificate(nil)
		if err != nil {
			t.Fatal(err)
		}
		return cert.Leaf.Subject.CommonName
	}
	if name() != "one" {
		t.Fatalf("got %s", name())
	}
	copyFile(t, keyFile(t, newECKey(t, elliptic.P256())), keyPath)
	if name() != "one" {
		t.Error("a key without its certificate was accepted")
	}
	write("two")
	if name() != "two" {
		t.Error("the new certificate was not read")
	}
}

// Reload has files checked at once.
func TestReload(t *testing.T) {
	first, second := newTestCA(t, "first"), newTestCA(t, "second")
	path := filepath.Join(t.TempDir(), "ca.pem")
	writeFile(t, path, certPEM(first.cert))
	file, err := NewCAFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before := file.Pool()
	writeFile(t, path, append(certPEM(first.cert), certPEM(second.cert)...))
	if file.Pool() != before {
		t.Error("the file was checked before the interval")
	}
	Reload()
	if file.Pool() == before {
		t.Error("the file was not read again")
	}
}
