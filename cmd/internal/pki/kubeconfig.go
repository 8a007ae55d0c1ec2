package pki

import (
	"bytes"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"time"
)

// kubeconfigMark is the first line of every kubeconfig written here, by which
// a file of the user's own is told from one that may be replaced.
const kubeconfigMark = "# Written by portico; it is replaced at every start."

// ErrForeignKubeconfig is returned by WriteKubeconfig for a file that somebody
// else wrote.
var ErrForeignKubeconfig = errors.New("the file was not written by portico")

// WriteKubeconfig writes a kubeconfig for server (a URL) that trusts the CA in
// caFile and shows client. Certificates and key are embedded, so that the file
// can be moved. A file that is the same is not written again. A file that something
// else wrote is left alone: ErrForeignKubeconfig.
func WriteKubeconfig(path, server, caFile string, client Pair) error {
	old, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read kubeconfig: %w", err)
	}
	if len(old) > 0 && !bytes.HasPrefix(old, []byte(kubeconfigMark)) {
		return fmt.Errorf("write kubeconfig %s: %w", path, ErrForeignKubeconfig)
	}
	var parts [3][]byte
	for i, file := range []string{caFile, client.CertFile, client.KeyFile} {
		if parts[i], err = os.ReadFile(file); err != nil {
			return fmt.Errorf("read kubeconfig part: %w", err)
		}
	}
	data, err := encodeKubeconfig(kubeconfigMark, server, parts)
	if err != nil || bytes.Equal(data, old) {
		return err
	}
	return writeKubeconfig(path, data)
}

// IssueKubeconfig makes a key and a certificate by the authority of users in
// caDir, and a kubeconfig of it for server (a URL), which trusts the authority of
// servers. It is all that a client on another machine needs. A file that is there
// is replaced only if the request says so: FilesExistError. Of the request, Name
// and Hosts have no meaning.
func IssueKubeconfig(caDir, path, server string, req Request) (notAfter time.Time, err error) {
	if _, err := os.Lstat(path); err == nil && !req.Replace {
		return notAfter, &FilesExistError{Files: []string{path}}
	}
	req.By, req.Name, req.Hosts = ClientAuthority, "kubeconfig", nil
	made, err := req.sign(caDir)
	if err != nil {
		return notAfter, err
	}
	ca, err := os.ReadFile(pairIn(caDir, string(ServingAuthority)).CertFile)
	if err != nil {
		return notAfter, fmt.Errorf("read authority: %w (%w)", ErrNoAuthority, err)
	}
	key, err := encodeKey(made.key)
	if err != nil {
		return notAfter, err
	}
	mark := "# Made by portico certs kubeconfig."
	data, err := encodeKubeconfig(mark, server, [3][]byte{ca, encodeBlock(pemCertificate, made.cert.Raw), key})
	if err != nil {
		return notAfter, err
	}
	return made.cert.NotAfter, writeKubeconfig(path, data)
}

func writeKubeconfig(path string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("create kubeconfig folder: %w", err)
	}
	return writeFile(path, data)
}

// encodeKubeconfig returns a kubeconfig of PEM blocks: the authority, the
// certificate and its key. What is in it is named by the server and the user, so that
// kubectl can be given several such files together.
func encodeKubeconfig(mark, server string, parts [3][]byte) ([]byte, error) {
	at, err := url.Parse(server)
	if err != nil {
		return nil, fmt.Errorf("read the server of the kubeconfig: %w", err)
	}
	block, _ := pem.Decode(parts[1])
	if block == nil {
		return nil, errors.New("write kubeconfig: the client's certificate is no PEM")
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("read the client's certificate: %w", err)
	}
	cluster := "portico-" + at.Host
	user := cert.Subject.CommonName + "@" + cluster
	var encoded [3]string
	for i, data := range parts {
		encoded[i] = base64.StdEncoding.EncodeToString(data)
	}
	// Every value is base64 or quoted.
	return fmt.Appendf(nil, `%s
apiVersion: v1
kind: Config
clusters:
- name: %q
  cluster:
    server: %q
    certificate-authority-data: %s
users:
- name: %q
  user:
    client-certificate-data: %s
    client-key-data: %s
contexts:
- name: %[5]q
  context:
    cluster: %[2]q
    user: %[5]q
current-context: %[5]q
`, mark, cluster, server, encoded[0], user, encoded[1], encoded[2]), nil
}
