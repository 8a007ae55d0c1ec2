package clients

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"portico/cmd/e2e"
)

// A typed client works in JSON and in protobuf.
func TestTypedClients(t *testing.T) {
	t.Parallel()
	up := e2e.SharedInstallation(t)
	for _, contentType := range []string{"application/json", "application/vnd.kubernetes.protobuf"} {
		t.Run(contentType, func(t *testing.T) {
			t.Parallel()
			cfg := up.Config(t)
			cfg.ContentType = contentType
			client, err := kubernetes.NewForConfig(cfg)
			if err != nil {
				t.Fatal(err)
			}
			secrets := client.CoreV1().Secrets(e2e.NewNamespace(t, client))
			made, err := secrets.Create(t.Context(), &corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{Name: "s", Labels: map[string]string{"app": "a"}},
				Data:       map[string][]byte{"k": {0, 1, 255}},
			}, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if made.UID == "" || made.ResourceVersion == "" || made.Type != corev1.SecretTypeOpaque || string(made.Data["k"]) != "\x00\x01\xff" {
				t.Errorf("created: %+v", made)
			}
			if _, err := secrets.Create(t.Context(), made.DeepCopy(), metav1.CreateOptions{}); err == nil {
				t.Error("created with a resourceVersion")
			}
			stale := made.DeepCopy()
			made.Labels["app"] = "b"
			if _, err = secrets.Update(t.Context(), made, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			if _, err := secrets.Update(t.Context(), stale, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
				t.Errorf("update of a stale object: %v", err)
			}
			if _, err := secrets.Patch(t.Context(), "s", types.StrategicMergePatchType, []byte(`{"metadata":{"labels":{"tier":"x"}}}`), metav1.PatchOptions{}); err != nil {
				t.Error(err)
			}
			list, err := secrets.List(t.Context(), metav1.ListOptions{LabelSelector: "app=b,tier=x", FieldSelector: "metadata.name=s"})
			if err != nil || len(list.Items) != 1 {
				t.Errorf("list: %v %v", list, err)
			}
			if err := secrets.Delete(t.Context(), "s", metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions("other")}); !apierrors.IsConflict(err) {
				t.Errorf("delete of another uid: %v", err)
			}
			if err := secrets.Delete(t.Context(), "s", metav1.DeleteOptions{}); err != nil {
				t.Error(err)
			}
			if _, err := secrets.Get(t.Context(), "s", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				t.Errorf("get of the deleted: %v", err)
			}
		})
	}
}
