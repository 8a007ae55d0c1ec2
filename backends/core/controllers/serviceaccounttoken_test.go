package controllers

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"portico/internal/testing/await"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// tokenServer runs the controller over a service account robot.
func tokenServer(t *testing.T) (s *server, sa *corev1.ServiceAccount, ca string) {
	t.Helper()
	ca = filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(ca, []byte("CA"), 0o600); err != nil {
		t.Fatal(err)
	}
	s = newServer(t)
	sa = must[*corev1.ServiceAccount](t)(s.CoreV1().ServiceAccounts("ns").Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "robot"}}, metav1.CreateOptions{}))
	s.run("serviceaccount-token-controller", Options{RootCAFile: ca, SignLegacyToken: func(namespace, secret, account, uid string) (string, error) {
		return strings.Join([]string{namespace, secret, account, uid}, " "), nil
	}}, nil)
	return s, sa, ca
}

func tokenSecret(name, account, uid string) *corev1.Secret {
	s := &corev1.Secret{Type: corev1.SecretTypeServiceAccountToken, ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{corev1.ServiceAccountNameKey: account}}}
	if uid != "" {
		s.Annotations[corev1.ServiceAccountUIDKey] = uid
	}
	return s
}

// A Secret of the type gets the token, the namespace and the CA, and again what is removed from
// it; a Secret of another type does not.
func TestTokenSecretsAreFilled(t *testing.T) {
	t.Parallel()
	s, sa, _ := tokenServer(t)
	secrets := s.CoreV1().Secrets("ns")
	must[*corev1.Secret](t)(secrets.Create(t.Context(), &corev1.Secret{ObjectMeta: tokenSecret("opaque", "robot", "").ObjectMeta}, metav1.CreateOptions{}))
	must[*corev1.Secret](t)(secrets.Create(t.Context(), tokenSecret("s", "robot", ""), metav1.CreateOptions{}))
	filled := func() bool {
		o := must[*corev1.Secret](t)(secrets.Get(t.Context(), "s", metav1.GetOptions{}))
		return string(o.Data["token"]) == "ns s robot "+string(sa.UID) && string(o.Data["namespace"]) == "ns" && string(o.Data["ca.crt"]) == "CA" &&
			o.Annotations[corev1.ServiceAccountUIDKey] == string(sa.UID)
	}
	await.Until(t, "the Secret is filled", filled)
	o := must[*corev1.Secret](t)(secrets.Get(t.Context(), "s", metav1.GetOptions{}))
	delete(o.Data, "token")
	o.Data["ca.crt"] = []byte("another")
	must[*corev1.Secret](t)(secrets.Update(t.Context(), o, metav1.UpdateOptions{}))
	await.Until(t, "it is filled again", filled)
	o = must[*corev1.Secret](t)(secrets.Get(t.Context(), "s", metav1.GetOptions{}))
	o.Data["token"] = []byte("mine")
	must[*corev1.Secret](t)(secrets.Update(t.Context(), o, metav1.UpdateOptions{}))
	must[*corev1.Secret](t)(secrets.Create(t.Context(), tokenSecret("later", "robot", string(sa.UID)), metav1.CreateOptions{}))
	await.Until(t, "another one is filled", func() bool {
		return len(must[*corev1.Secret](t)(secrets.Get(t.Context(), "later", metav1.GetOptions{})).Data) == 3
	})
	if o := must[*corev1.Secret](t)(secrets.Get(t.Context(), "s", metav1.GetOptions{})); string(o.Data["token"]) != "mine" {
		t.Error("a token is replaced")
	}
	if o := must[*corev1.Secret](t)(secrets.Get(t.Context(), "opaque", metav1.GetOptions{})); len(o.Data) > 0 {
		t.Errorf("a Secret of another type has %v", o.Data)
	}
}

// Secrets get the CA again when its file changes, and keep their token.
func TestTokenSecretsFollowTheCA(t *testing.T) {
	t.Parallel()
	s, _, ca := tokenServer(t)
	secrets := s.CoreV1().Secrets("ns")
	must[*corev1.Secret](t)(secrets.Create(t.Context(), tokenSecret("s", "robot", ""), metav1.CreateOptions{}))
	var token string
	for _, want := range []string{"CA", "CA and its successor"} {
		if err := os.WriteFile(ca, []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
		await.Until(t, "the Secret has "+want, func() bool {
			o := must[*corev1.Secret](t)(secrets.Get(t.Context(), "s", metav1.GetOptions{}))
			if token == "" {
				token = string(o.Data["token"])
			}
			return string(o.Data["ca.crt"]) == want && string(o.Data["token"]) == token
		})
	}
}

// Secrets go with their account, and those of accounts that do not exist at once.
func TestTokenSecretsGoWithTheirAccount(t *testing.T) {
	t.Parallel()
	s, sa, _ := tokenServer(t)
	secrets := s.CoreV1().Secrets("ns")
	for _, o := range []*corev1.Secret{tokenSecret("kept", "robot", ""), tokenSecret("none", "nobody", ""), tokenSecret("other", "robot", "another-uid")} {
		must[*corev1.Secret](t)(secrets.Create(t.Context(), o, metav1.CreateOptions{}))
	}
	left := func() (names []string) {
		for _, o := range must[*corev1.SecretList](t)(secrets.List(t.Context(), metav1.ListOptions{})).Items {
			names = append(names, o.Name)
		}
		return names
	}
	await.Until(t, "one Secret is left", func() bool { return slices.Equal(left(), []string{"kept"}) })
	if err := s.CoreV1().ServiceAccounts("ns").Delete(t.Context(), sa.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	await.Until(t, "none is left", func() bool { return len(left()) == 0 })
}

// A Secret that is deleted goes from the list of its account; other entries stay.
func TestDeletedTokenSecretsAreForgotten(t *testing.T) {
	t.Parallel()
	s, sa, _ := tokenServer(t)
	accounts, secrets := s.CoreV1().ServiceAccounts("ns"), s.CoreV1().Secrets("ns")
	must[*corev1.Secret](t)(secrets.Create(t.Context(), tokenSecret("s", "robot", ""), metav1.CreateOptions{}))
	await.Until(t, "the Secret is filled", func() bool {
		return len(must[*corev1.Secret](t)(secrets.Get(t.Context(), "s", metav1.GetOptions{})).Data) == 3
	})
	sa.Secrets = []corev1.ObjectReference{{Name: "s"}, {Name: "mountable"}}
	must[*corev1.ServiceAccount](t)(accounts.Update(t.Context(), sa, metav1.UpdateOptions{}))
	if err := secrets.Delete(t.Context(), "s", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	await.Until(t, "the account lists the other one", func() bool {
		sa := must[*corev1.ServiceAccount](t)(accounts.Get(t.Context(), "robot", metav1.GetOptions{}))
		return len(sa.Secrets) == 1 && sa.Secrets[0].Name == "mountable"
	})
}
