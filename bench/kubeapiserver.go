package main

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"

	"k8s.io/client-go/transport"
)

// kubeAPIServer is a kube-apiserver on an etcd, and a client of it.
type kubeAPIServer struct {
	*client
	cmd *exec.Cmd
	dir string
}

// startKubeAPIServer starts a program on an etcd, below a prefix of its own. The caller stops it.
func startKubeAPIServer(ctx context.Context, program, etcd string, connections int) (k *kubeAPIServer, err error) {
	dir, err := os.MkdirTemp("", "portico-bench-")
	if err != nil {
		return nil, fmt.Errorf("create folder: %w", err)
	}
	k = &kubeAPIServer{dir: dir}
	defer func() {
		if err != nil {
			err = errors.Join(err, k.stop())
		}
	}()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return k, err
	}
	keyFile, tokens := filepath.Join(dir, "sa.key"), filepath.Join(dir, "tokens")
	pemKey := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})
	if err := errors.Join(os.WriteFile(keyFile, pemKey, 0o600), os.WriteFile(tokens, []byte("administrator,administrator,1,system:masters\n"), 0o600)); err != nil {
		return k, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return k, err
	}
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err := errors.Join(err, l.Close()); err != nil {
		return k, err
	}
	k.cmd = exec.Command(program, "--etcd-servers="+etcd, "--etcd-prefix="+etcdPrefix+"kube", "--bind-address=127.0.0.1", "--secure-port="+port,
		"--cert-dir="+filepath.Join(dir, "certs"), "--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file="+keyFile,
		"--service-account-signing-key-file="+keyFile, "--service-cluster-ip-range=10.0.0.0/24", "--token-auth-file="+tokens,
		"--authorization-mode=RBAC", "--advertise-address=192.0.2.1", "--disable-admission-plugins=ServiceAccount")
	if err := k.cmd.Start(); err != nil {
		return k, fmt.Errorf("start: %w", err)
	}
	// Its certificate is its own, and it is on this machine.
	conf := &tls.Config{InsecureSkipVerify: true}
	k.client, err = newClient("https://127.0.0.1:"+port, connections, conf, func(rt http.RoundTripper) (http.RoundTripper, error) {
		return transport.NewBearerAuthRoundTripper("administrator", rt), nil
	})
	if err != nil {
		return k, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, startLimit, fmt.Errorf("not ready within %v", startLimit))
	defer cancel()
	return k, until(ctx, func() error {
		_, err := k.discard(ctx, 0, request{path: "/readyz", accept: "*/*"})
		return err
	})
}

func (k *kubeAPIServer) stop() error {
	if k.client != nil {
		k.client.close()
	}
	if k.cmd != nil && k.cmd.Process != nil {
		_ = k.cmd.Process.Kill()
		_ = k.cmd.Wait() // its error is that it was killed
	}
	return os.RemoveAll(k.dir)
}

// createInKubeAPIServer creates the definitions of createMany in a kube-apiserver, on the same etcd.
func createInKubeAPIServer(ctx context.Context, o *manyOptions) (s sample, err error) {
	k, err := startKubeAPIServer(ctx, o.kubeAPIServer, o.etcd, o.connections)
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, k.stop()) }()
	d, err := newManyDefinitions("kube.example.com")
	if err != nil {
		return s, err
	}
	procs := processes{"kube-apiserver": k.cmd.Process.Pid}
	before := procs.cpu()
	s, err = d.createServed(ctx, k.client, o.definitions, o.workers, o.limit)
	s.cpu = procs.cpu().since(before)
	return s, err
}
