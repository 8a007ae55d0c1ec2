//go:build kubeapiserver

package adopt

import (
	"errors"
	"flag"
	"os"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"portico/cmd/e2e"
	"portico/cmd/e2e/etcdprocess"
	"portico/cmd/e2e/kubeapiserver"
	"portico/cmd/internal/testtools"
	"portico/resource/authn"
)

// newSigner returns what signs tokens with the key in dir.
func newSigner(t *testing.T, dir string) *authn.Signer {
	t.Helper()
	signer, err := authn.NewSigner(kubeapiserver.KeyFile(t, dir), kubeapiserver.Issuer)
	if err != nil {
		t.Fatal(err)
	}
	return signer
}

// fill creates objects of all kinds, and returns the tokens of a service account: one for an
// hour, and one that is kept in a Secret.
func fill(t *testing.T, k *kubeapiserver.Server, signer *authn.Signer) (bound, kept string) {
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
	signer := newSigner(t, dir)
	key, err := os.ReadFile(kubeapiserver.KeyFile(t, dir))
	if err != nil {
		t.Fatal(err)
	}
	k := kubeapiserver.Start(t, etcd.Endpoint(), dir)
	bound, kept := fill(t, k, signer)
	r := &recording{Key: string(key), Tokens: []string{kept}, Served: readAll(t, k.Config)}
	k.Stop()
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

	k = kubeapiserver.Start(t, etcd.Endpoint(), dir)
	back := readAll(t, k.Config)
	compare(t, written, back, reconciled)
	back.updateAll(t, k.Config, "kube-apiserver")
}
