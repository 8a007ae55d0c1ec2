//go:build kubeapiserver

package adopt

import (
	"bytes"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"flag"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"portico/cmd/e2e"
	"portico/cmd/e2e/etcdprocess"
	"portico/cmd/internal/testtools"
	"portico/resource/authn"
)

const issuer = "https://kubernetes.default.svc.cluster.local"

// kubeAPIServer is a running kube-apiserver without nodes.
type kubeAPIServer struct {
	*rest.Config
	stop func() // kills it
}

// startKubeAPIServer starts kube-apiserver on an etcd. dir has the key of its tokens.
func startKubeAPIServer(t *testing.T, etcd, dir string) *kubeAPIServer {
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
	key := filepath.Join(dir, "sa.key")
	e2e.WriteFile(t, filepath.Join(dir, "tokens"), "administrator,administrator,1,system:masters\n")
	cmd := exec.Command(program, "--etcd-servers="+etcd, "--bind-address=127.0.0.1", "--secure-port="+port, "--cert-dir="+filepath.Join(dir, "certs"),
		"--service-account-issuer="+issuer, "--service-account-key-file="+key, "--service-account-signing-key-file="+key,
		"--service-cluster-ip-range="+serviceRange, "--token-auth-file="+filepath.Join(dir, "tokens"), "--authorization-mode=RBAC",
		"--advertise-address=192.0.2.1", "--allow-privileged", "--disable-admission-plugins=ServiceAccount")
	var log bytes.Buffer
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	k := &kubeAPIServer{Config: &rest.Config{
		Host: "https://127.0.0.1:" + port, BearerToken: "administrator", QPS: -1, TLSClientConfig: rest.TLSClientConfig{Insecure: true},
	}}
	k.stop = sync.OnceFunc(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // its error is that it was killed
		if t.Failed() {
			t.Logf("end of kube-apiserver's log:\n%s", log.Bytes()[max(0, log.Len()-3000):])
		}
	})
	t.Cleanup(k.stop)
	client := kubernetes.NewForConfigOrDie(k.Config)
	e2e.Eventually(t, "kube-apiserver is ready", func() error {
		_, err := client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(t.Context())
		return err
	})
	return k
}

// newKey writes an RSA key, and returns it as what signs tokens.
func newKey(t *testing.T, file string) *authn.Signer {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	e2e.WriteFile(t, file, string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})))
	signer, err := authn.NewSigner(file, issuer)
	if err != nil {
		t.Fatal(err)
	}
	return signer
}

// fill creates objects of all kinds, and returns the tokens of a service account: one for an
// hour, and one that is kept in a Secret.
func (k *kubeAPIServer) fill(t *testing.T, signer *authn.Signer) (bound, kept string) {
	t.Helper()
	client, typed := e2e.DynamicClient(t, k.Config), kubernetes.NewForConfigOrDie(k.Config)
	for _, name := range []string{"b", "node1"} {
		if _, err := typed.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
	}
	created, refused := map[string]int{}, map[string]error{}
	for _, o := range kindObjects(t) {
		_, err := o.in(client).Create(t.Context(), o.Unstructured, metav1.CreateOptions{})
		switch {
		case err == nil || apierrors.IsAlreadyExists(err):
			created[o.Resource]++
		default:
			refused[o.Resource] = err
		}
	}
	for resource, err := range refused {
		if created[resource] == 0 {
			t.Errorf("none of %s could be created: %v", resource, err)
		}
	}
	e2e.Define(t, client, "adopt.example.com").Namespace("default").Create(t.Context(), e2e.Widget("adopt.example.com", "w"), metav1.CreateOptions{})
	account, err := typed.CoreV1().ServiceAccounts("default").Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "adopted"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	request, err := typed.CoreV1().ServiceAccounts("default").CreateToken(t.Context(), "adopted", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	kept, err = signer.SignLegacy("default", "adopted-token", "adopted", string(account.UID))
	if err != nil {
		t.Fatal(err)
	}
	_, err = typed.CoreV1().Secrets("default").Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "adopted-token", Annotations: map[string]string{corev1.ServiceAccountNameKey: "adopted", corev1.ServiceAccountUIDKey: string(account.UID)}},
		Type:       corev1.SecretTypeServiceAccountToken, Data: map[string][]byte{"token": []byte(kept)},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return request.Status.Token, kept
}

// update makes the recording again.
var update = flag.Bool("update", false, "write "+recordingFile)

// An etcd that kube-apiserver wrote is adopted (TestRecordedKubeAPIServer), but not beside
// kube-apiserver, which then reads and updates what Portico wrote.
func TestKubeAPIServer(t *testing.T) {
	e2e.Program(t, testtools.Portico) // before kube-apiserver is stopped: it takes a while
	etcd, dir := etcdprocess.Start(t), t.TempDir()
	signer := newKey(t, filepath.Join(dir, "sa.key"))
	key, err := os.ReadFile(filepath.Join(dir, "sa.key"))
	if err != nil {
		t.Fatal(err)
	}
	k := startKubeAPIServer(t, etcd.Endpoint(), dir)
	bound, kept := k.fill(t, signer)
	r := &recording{Key: string(key), Tokens: []string{kept}, Served: readAll(t, k.Config)}
	k.stop()
	const running = "a kube-apiserver uses this etcd"
	if out, err := portico(t, "adopt", "--yes", "--etcd-servers="+etcd.Endpoint()); err == nil || !strings.Contains(out, running) {
		t.Errorf("adopted beside kube-apiserver: %v, %s", err, out)
	}
	e2e.Eventually(t, "the lease of kube-apiserver ends", func() error {
		if out, err := portico(t, "adopt", "--dry-run", "--etcd-servers="+etcd.Endpoint()); err != nil && strings.Contains(out, running) {
			return errors.New(out)
		}
		return nil
	})
	if *update {
		r.Stored = storedIn(t, connect(t, etcd))
		r.save(t)
	}
	r.Tokens = append(r.Tokens, bound)
	adopt(t, etcd, r)
	up := serve(t, etcd, r)
	written := readAll(t, up.Config(t))
	if err := up.Stop(); err != nil {
		t.Error(err)
	}

	k = startKubeAPIServer(t, etcd.Endpoint(), dir)
	back := readAll(t, k.Config)
	compare(t, written, back, reconciled)
	back.updateAll(t, k.Config, "kube-apiserver")
}
