package pki

import (
	"bytes"
	"crypto"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"k8s.io/client-go/util/keyutil"
)

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
	data, err := encodePublic(public)
	if err != nil {
		return err
	}
	return writeFile(publicFile, data)
}

func encodePublic(key crypto.PublicKey) ([]byte, error) {
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode service account key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: keyutil.PublicKeyBlockType, Bytes: der}), nil
}

// renewSigningKey replaces the service-account signing key together with a CA: while a certificate
// of the CA is next, a new key is published, and then it signs. The public keys of earlier ones stay,
// because tokens without an end may be signed with them.
func renewSigningKey(dir string, next bool) error {
	keyFile, publicFile := signingKeyIn(dir)
	nextFile := nextKeyFile(Pair{KeyFile: keyFile})
	key, err := readKey(nextFile)
	switch {
	case errors.Is(err, fs.ErrNotExist) && !next:
		return nil
	case errors.Is(err, fs.ErrNotExist):
		if key, err = newKey(); err == nil {
			err = writeKey(nextFile, key)
		}
	}
	if err != nil {
		return fmt.Errorf("make service account key: %w", err)
	}
	data, err := encodePublic(key.Public())
	if err != nil {
		return err
	}
	published, err := os.ReadFile(publicFile)
	if err != nil {
		return fmt.Errorf("read service account keys: %w", err)
	}
	switch {
	case !bytes.Contains(published, data):
		return writeFile(publicFile, append(data, published...))
	case next:
		return nil
	}
	if err := rename(nextFile, keyFile); err != nil {
		return fmt.Errorf("replace service account key: %w", err)
	}
	return nil
}

// signingKeyName is the name of the files of the service-account signing key, without
// extension.
const signingKeyName = "service-account"

// signingKeyIn names the files of the service-account signing key.
func signingKeyIn(dir string) (keyFile, publicFile string) {
	return filepath.Join(dir, signingKeyName+".key"), filepath.Join(dir, signingKeyName+".pub")
}
