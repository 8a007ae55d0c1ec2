package controllers

import (
	"testing"
	"time"

	"portico/internal/testing/await"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
)

// bootstrapSecret is the Secret of a bootstrap token that signs; end is its expiration, "": none.
func bootstrapSecret(id, end string) *corev1.Secret {
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "bootstrap-token-" + id}, Type: "bootstrap.kubernetes.io/token", Data: map[string][]byte{
		"token-id": []byte(id), "token-secret": []byte("0123456789abcdef"), "usage-bootstrap-signing": []byte("true"),
	}}
	if end != "" {
		s.Data["expiration"] = []byte(end)
	}
	return s
}

// The Secret of a bootstrap token is deleted when the token expires, or has an end that cannot be
// read; one without an end, of another type or of another namespace stays.
func TestTokenCleaner(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	now := clocktesting.NewFakeClock(time.Now())
	end := now.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	create := func(namespace string, o *corev1.Secret) {
		must[*corev1.Secret](t)(s.CoreV1().Secrets(namespace).Create(t.Context(), o, metav1.CreateOptions{}))
	}
	create("kube-system", bootstrapSecret("aaaaaa", end))
	create("kube-system", bootstrapSecret("bbbbbb", "tomorrow"))
	create("kube-system", bootstrapSecret("cccccc", ""))
	create("ns", bootstrapSecret("dddddd", "tomorrow"))
	opaque := bootstrapSecret("eeeeee", "tomorrow")
	opaque.Type = corev1.SecretTypeOpaque
	create("kube-system", opaque)
	s.run("token-cleaner-controller", Options{}, now)
	exists := func(namespace, id string) bool {
		_, err := s.CoreV1().Secrets(namespace).Get(t.Context(), "bootstrap-token-"+id, metav1.GetOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
		return err == nil
	}
	await.Until(t, "the token with an unreadable end is gone", func() bool { return !exists("kube-system", "bbbbbb") })
	if !exists("kube-system", "aaaaaa") {
		t.Error("a token was deleted before its end")
	}
	await.Until(t, "the expired token is gone", func() bool {
		now.Step(30 * time.Minute) // the controller may not wait yet
		return !exists("kube-system", "aaaaaa")
	})
	for id, namespace := range map[string]string{"cccccc": "kube-system", "dddddd": "ns", "eeeeee": "kube-system"} {
		if !exists(namespace, id) {
			t.Errorf("Secret %s in %s was deleted", id, namespace)
		}
	}
}

// cluster-info has a signature by each token that signs; it follows the tokens and what is signed.
func TestBootstrapSigner(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	now := clocktesting.NewFakeClock(time.Now())
	info := must[*corev1.ConfigMap](t)(s.CoreV1().ConfigMaps("kube-public").Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "cluster-info"}, Data: map[string]string{"kubeconfig": "first", "other": "x", "jws-kubeconfig-gone00": "old"},
	}, metav1.CreateOptions{}))
	for _, o := range []*corev1.Secret{bootstrapSecret("aaaaaa", ""), bootstrapSecret("bbbbbb", now.Now().Add(-time.Minute).UTC().Format(time.RFC3339))} {
		must[*corev1.Secret](t)(s.CoreV1().Secrets("kube-system").Create(t.Context(), o, metav1.CreateOptions{}))
	}
	s.run("bootstrap-signer-controller", Options{}, now)
	signed := func(content string, ids ...string) func() bool {
		return func() bool {
			info = must[*corev1.ConfigMap](t)(s.CoreV1().ConfigMaps("kube-public").Get(t.Context(), "cluster-info", metav1.GetOptions{}))
			for _, id := range ids {
				if info.Data["jws-kubeconfig-"+id] != detachedSignature(content, id, "0123456789abcdef") {
					return false
				}
			}
			return len(info.Data) == 2+len(ids) && info.Data["other"] == "x"
		}
	}
	await.Until(t, "it is signed by the token that is good", signed("first", "aaaaaa"))
	must[*corev1.Secret](t)(s.CoreV1().Secrets("kube-system").Create(t.Context(), bootstrapSecret("cccccc", ""), metav1.CreateOptions{}))
	await.Until(t, "it is signed by a new token", signed("first", "aaaaaa", "cccccc"))
	info.Data["kubeconfig"] = "second"
	must[*corev1.ConfigMap](t)(s.CoreV1().ConfigMaps("kube-public").Update(t.Context(), info, metav1.UpdateOptions{}))
	await.Until(t, "what changed is signed", signed("second", "aaaaaa", "cccccc"))
	if err := s.CoreV1().Secrets("kube-system").Delete(t.Context(), "bootstrap-token-aaaaaa", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	await.Until(t, "the signature of a token that is gone goes", signed("second", "cccccc"))
}

// Signatures are those of kubeadm.
func TestDetachedSignature(t *testing.T) {
	t.Parallel()
	const header = "eyJhbGciOiJIUzI1NiIsImtpZCI6Impvc2h1YSJ9.."
	for content, want := range map[string]string{
		"Hello from the other side. I must have called a thousand times.": "VShe2taLd-YTrmWuRkcL_8QTNDHYxQIEBsAYYiIj1_8",
		"": "7Ui1ALizW4jXphVUB7xUqC9vLYLL9RZeOFfVLoB7Tgk",
	} {
		if got := detachedSignature(content, "joshua", "my voice is my passcode"); got != header+want {
			t.Errorf("%q: %s, want %s", content, got, header+want)
		}
	}
}
