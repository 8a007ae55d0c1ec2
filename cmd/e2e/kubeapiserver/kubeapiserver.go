// Package kubeapiserver starts a real kube-apiserver, which is built from its module.
//
// Runs in: tests.
package kubeapiserver

import (
	"bytes"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"portico/cmd/e2e"
	"portico/cmd/internal/testtools"
)

const (
	// Issuer is that of its tokens.
	Issuer = "https://kubernetes.default.svc.cluster.local"
	// ServiceRange has the addresses of its Services.
	ServiceRange = "10.20.0.0/24"
)

// Server is a running kube-apiserver without nodes.
type Server struct {
	*rest.Config
	Stop func() // kills it
}

// Start starts kube-apiserver on an etcd, until the test ends. dir has the key of its tokens,
// which is made unless there is one; flags are added. Building it takes minutes.
func Start(t *testing.T, etcd, dir string, flags ...string) *Server {
	t.Helper()
	program, err := testtools.Build(testtools.KubeAPIServer)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(l.Addr().String())
	l.Close()
	key := KeyFile(t, dir)
	e2e.WriteFile(t, filepath.Join(dir, "tokens"), "administrator,administrator,1,system:masters\n")
	cmd := exec.Command(program, append([]string{"--etcd-servers=" + etcd, "--bind-address=127.0.0.1", "--secure-port=" + port, "--cert-dir=" + filepath.Join(dir, "certs"),
		"--service-account-issuer=" + Issuer, "--service-account-key-file=" + key, "--service-account-signing-key-file=" + key,
		"--service-cluster-ip-range=" + ServiceRange, "--token-auth-file=" + filepath.Join(dir, "tokens"), "--authorization-mode=RBAC",
		"--advertise-address=192.0.2.1", "--allow-privileged", "--disable-admission-plugins=ServiceAccount"}, flags...)...)
	var log bytes.Buffer
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	k := &Server{Config: &rest.Config{
		Host: "https://127.0.0.1:" + port, BearerToken: "administrator", QPS: -1, TLSClientConfig: rest.TLSClientConfig{Insecure: true},
	}}
	k.Stop = sync.OnceFunc(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // its error is that it was killed
		if t.Failed() {
			t.Logf("end of kube-apiserver's log:\n%s", log.Bytes()[max(0, log.Len()-3000):])
		}
	})
	t.Cleanup(k.Stop)
	client := kubernetes.NewForConfigOrDie(k.Config)
	e2e.Eventually(t, "kube-apiserver is ready", func() error {
		_, err := client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(t.Context())
		return err
	})
	return k
}

// KeyFile returns the file of the key of tokens in dir, in PEM.
func KeyFile(t *testing.T, dir string) string {
	t.Helper()
	file := filepath.Join(dir, "sa.key")
	if _, err := os.Stat(file); err == nil {
		return file
	}
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	e2e.WriteFile(t, file, string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})))
	return file
}
