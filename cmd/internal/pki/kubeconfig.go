package pki

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// kubeconfigMark is the first line of every kubeconfig written here, by which
// a file of the user's own is told from one that may be replaced.
const kubeconfigMark = "# Written by portico; it is replaced at every start."

// ErrForeignKubeconfig is returned by WriteKubeconfig for a file that somebody
// else wrote.
var ErrForeignKubeconfig = errors.New("the file was not written by portico")

// WriteKubeconfig writes a kubeconfig for server (a URL) that trusts the CA in
// caFile and shows client. Certificates and key are embedded, so that the file
// can be moved. A file that something else wrote is left alone:
// ErrForeignKubeconfig.
func WriteKubeconfig(path, server, caFile string, client Pair) error {
	old, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read kubeconfig: %w", err)
	}
	if len(old) > 0 && !bytes.HasPrefix(old, []byte(kubeconfigMark)) {
		return fmt.Errorf("write kubeconfig %s: %w", path, ErrForeignKubeconfig)
	}
	var encoded [3]string
	for i, file := range []string{caFile, client.CertFile, client.KeyFile} {
		data, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("read kubeconfig part: %w", err)
		}
		encoded[i] = base64.StdEncoding.EncodeToString(data)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("create kubeconfig folder: %w", err)
	}
	// Every value is base64, a URL or a fixed word: none needs YAML quoting
	// beyond that of %q.
	return writeFile(path, fmt.Appendf(nil, `%s
apiVersion: v1
kind: Config
clusters:
- name: portico
  cluster:
    server: %q
    certificate-authority-data: %s
users:
- name: admin
  user:
    client-certificate-data: %s
    client-key-data: %s
contexts:
- name: portico
  context:
    cluster: portico
    user: admin
current-context: portico
`, kubeconfigMark, server, encoded[0], encoded[1], encoded[2]))
}
