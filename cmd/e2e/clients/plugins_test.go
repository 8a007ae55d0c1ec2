package clients

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"portico/cmd/e2e"
)

func newPod(name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
}

// A container that a webhook adds gets what the plugins give to the others: they are called
// again after it.
func TestPluginsAfterWebhook(t *testing.T) {
	t.Parallel()
	up := e2e.SharedInstallation(t)
	ns := e2e.NewNamespace(t, up.Client(t))
	hook := e2e.StartWebhook(t, func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		return &admissionv1.AdmissionResponse{
			Allowed: true, PatchType: new(admissionv1.PatchTypeJSONPatch),
			Patch: []byte(`[{"op":"add","path":"/spec/containers/-","value":{"name":"sidecar","image":"i"}}]`),
		}
	})
	e2e.CallWebhook(t, up, "sidecar", hook, `[""]`, `["pods"]`, `{"matchLabels":{"kubernetes.io/metadata.name":"`+ns+`"}}`)
	defer up.Do(t, http.MethodDelete, e2e.Admission+"mutatingwebhookconfigurations/sidecar", "")
	pods := up.Client(t).CoreV1().Pods(ns)
	e2e.Eventually(t, "the webhook adds a container, and the plugin its token", func() error {
		pod, err := pods.Create(t.Context(), newPod("p"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		switch {
		case err != nil:
			return err
		case len(pod.Spec.Containers) != 2:
			return errNotYet
		case len(pod.Spec.Containers[1].VolumeMounts) != 1 || len(pod.Spec.Volumes) != 1:
			t.Fatalf("%+v", pod.Spec)
		}
		return nil
	})
}

// An installation has the plugins of its flags with their configuration, and counts their calls.
func TestPluginsOfFlags(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "admission.yaml")
	e2e.WriteFile(t, file, `apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: EventRateLimit
  configuration:
    apiVersion: eventratelimit.admission.k8s.io/v1alpha1
    kind: Configuration
    limits: [{type: Namespace, qps: 1, burst: 2}]
- name: PodSecurity
  configuration:
    apiVersion: pod-security.admission.config.k8s.io/v1
    kind: PodSecurityConfiguration
    defaults: {enforce: baseline}
`)
	up := e2e.Install(t, t.TempDir(), "--admission-control-config-file="+file, "--disable-admission-plugins=ServiceAccount,DefaultTolerationSeconds",
		"--enable-admission-plugins=EventRateLimit,OwnerReferencesPermissionEnforcement,NamespaceAutoProvision,AlwaysPullImages")
	client := up.Client(t)
	pods := client.CoreV1().Pods("provisioned")
	pod, err := pods.Create(t.Context(), newPod("p"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if s := &pod.Spec; len(s.Volumes) != 0 || len(s.Tolerations) != 0 || s.Containers[0].ImagePullPolicy != corev1.PullAlways || *s.Priority != 0 {
		t.Errorf("%+v", s)
	}
	root := newPod("root")
	root.Spec.HostPID = true
	if _, err := pods.Create(t.Context(), root, metav1.CreateOptions{}); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), `violates PodSecurity "baseline:latest"`) {
		t.Errorf("by the configured default: %v", err)
	}
	for i := range 3 {
		_, err = client.CoreV1().Events("provisioned").Create(t.Context(), &corev1.Event{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "e-"}, InvolvedObject: corev1.ObjectReference{Namespace: "provisioned"},
		}, metav1.CreateOptions{})
		if i < 2 && err != nil {
			t.Error(err)
		}
	}
	if !apierrors.IsTooManyRequests(err) {
		t.Errorf("third event: %v", err)
	}
	checkOwnerPermissions(t, up, pod)
	for _, name := range []string{"AlwaysPullImages", "PodSecurity", "NamespaceLifecycle"} {
		if text := up.Metrics(t, "core"); !strings.Contains(text, `name="`+name+`"`) || !strings.Contains(text, "pod_security_evaluations_total{") {
			t.Errorf("no metric of %s", name)
		}
	}
}

// checkOwnerPermissions: a user that may create but not delete ConfigMaps may not make a pod wait
// for one, and may not give one another owner.
func checkOwnerPermissions(t *testing.T, up *e2e.Installation, pod *corev1.Pod) {
	t.Helper()
	admin := up.Client(t)
	rules := []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"create", "update"}}}
	if _, err := admin.RbacV1().Roles(pod.Namespace).Create(t.Context(), &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "writer"}, Rules: rules}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.RbacV1().RoleBindings(pod.Namespace).Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "writer"}, RoleRef: rbacv1.RoleRef{Kind: "Role", Name: "writer", APIGroup: rbacv1.GroupName},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, Name: "writer", APIGroup: rbacv1.GroupName}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(up.UserConfig(t, "writer"))
	if err != nil {
		t.Fatal(err)
	}
	maps := client.CoreV1().ConfigMaps(pod.Namespace)
	owned := func(block bool) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "owned", OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID, BlockOwnerDeletion: &block},
		}}}
	}
	e2e.Eventually(t, "the role counts", func() error {
		if _, err = maps.Create(t.Context(), owned(true), metav1.CreateOptions{}); err != nil && !strings.Contains(err.Error(), "cannot set blockOwnerDeletion") {
			return err
		}
		return nil
	})
	if err == nil {
		t.Error("a user without rights on the owner blocks its deletion")
	}
	made, err := maps.Create(t.Context(), owned(false), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	made.OwnerReferences = nil
	if _, err := maps.Update(t.Context(), made, metav1.UpdateOptions{}); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "cannot set an ownerRef on a resource you can't delete") {
		t.Errorf("a user that may not delete an object changes its owners: %v", err)
	}
}
