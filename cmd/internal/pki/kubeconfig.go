package pki

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/keyutil"
)

// kubeconfigHeader is the first line of the kubeconfigs of WriteKubeconfig, which replaces no
// other files.
const kubeconfigHeader = "# Written by portico; it is replaced at every start."

// ErrForeignKubeconfig is returned by WriteKubeconfig for a file with another first line.
var ErrForeignKubeconfig = errors.New("the file was not written by portico")

// WriteKubeconfig writes a kubeconfig for server (a URL) with the CA in caFile and the client
// certificate. Certificates and key are embedded. An equal file is not written again, and a
// file that WriteKubeconfig did not write is not replaced (ErrForeignKubeconfig).
func WriteKubeconfig(path, server, caFile string, client Pair) error {
	old, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read kubeconfig: %w", err)
	}
	if len(old) > 0 && !bytes.HasPrefix(old, []byte(kubeconfigHeader)) {
		return fmt.Errorf("write kubeconfig %s: %w", path, ErrForeignKubeconfig)
	}
	credentials, err := readPair(client)
	if err != nil {
		return err
	}
	ca, err := os.ReadFile(caFile)
	if err != nil {
		return fmt.Errorf("read CA: %w", err)
	}
	data, err := encodeKubeconfig(kubeconfigHeader, server, ca, credentials)
	if err != nil || bytes.Equal(data, old) {
		return err
	}
	return writeKubeconfig(path, data)
}

// IssueKubeconfig makes a client certificate by the CA in caDir and writes it into a
// kubeconfig for server (a URL), with the CA of servers. An existing file is replaced only
// with Request.Replace (FilesExistError). Name, By and Hosts of the request are ignored.
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
		return notAfter, fmt.Errorf("%w: %w", ErrNoAuthority, err)
	}
	data, err := encodeKubeconfig("# Made by portico certs kubeconfig.", server, ca, made)
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

// encodeKubeconfig returns a kubeconfig that begins with the line header. Its entries are
// named by server and user, so that kubectl can merge several such files.
func encodeKubeconfig(header, server string, ca []byte, client *pair) ([]byte, error) {
	u, err := url.Parse(server)
	if err != nil {
		return nil, fmt.Errorf("parse the server URL of the kubeconfig: %w", err)
	}
	key, err := keyutil.MarshalPrivateKeyToPEM(client.key)
	if err != nil {
		return nil, err
	}
	cluster := "portico-" + u.Host
	user := client.cert.Subject.CommonName + "@" + cluster
	data, err := clientcmd.Write(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{cluster: {Server: server, CertificateAuthorityData: ca}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{user: {ClientCertificateData: client.certPEM(), ClientKeyData: key}},
		Contexts:       map[string]*clientcmdapi.Context{user: {Cluster: cluster, AuthInfo: user}},
		CurrentContext: user,
	})
	if err != nil {
		return nil, fmt.Errorf("encode kubeconfig: %w", err)
	}
	return append([]byte(header+"\n"), data...), nil
}
