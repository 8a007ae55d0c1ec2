package plugins

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"portico/resource/rest"
)

func accountOf(name string, change ...func(*corev1.ServiceAccount)) *corev1.ServiceAccount {
	sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
	for _, c := range change {
		c(sa)
	}
	return sa
}

// enforced makes a service account limit its pods to the secret named own.
func enforced(sa *corev1.ServiceAccount) {
	sa.Annotations = map[string]string{"kubernetes.io/enforce-mountable-secrets": "true"}
	sa.Secrets = []corev1.ObjectReference{{Name: "own"}}
	sa.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "pull"}}
}

// A pod gets the default service account, its token in every container without another mount at
// the path, and its image pull secrets.
func TestServiceAccountMount(t *testing.T) {
	t.Parallel()
	plugin := newWorld(t, accountOf("default", func(sa *corev1.ServiceAccount) {
		sa.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "pull"}}
	}), accountOf("silent", func(sa *corev1.ServiceAccount) { sa.AutomountServiceAccountToken = ptr.To(false) }))
	sa := plugin.only("ServiceAccount")
	pod := aPod(func(p *corev1.Pod) {
		p.Spec.InitContainers = []corev1.Container{{Name: "init"}}
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "own", VolumeMounts: []corev1.VolumeMount{{Name: "x", MountPath: tokenPath}}})
	})
	if err := admit(t, sa, plugin.write(pod, nil)); err != nil {
		t.Fatal(err)
	}
	s := &pod.Spec
	if s.ServiceAccountName != "default" || s.DeprecatedServiceAccount != "default" || len(s.ImagePullSecrets) != 1 || len(s.Volumes) != 1 {
		t.Fatalf("got %+v", s)
	}
	v := s.Volumes[0]
	if !strings.HasPrefix(v.Name, "kube-api-access-") || len(v.Projected.Sources) != 3 || *v.Projected.DefaultMode != 0o644 ||
		*v.Projected.Sources[0].ServiceAccountToken.ExpirationSeconds != 3607 || v.Projected.Sources[1].ConfigMap.Name != "kube-root-ca.crt" {
		t.Errorf("volume %+v", v)
	}
	for _, c := range append(s.InitContainers, s.Containers...) {
		if want := map[bool]string{true: "x", false: v.Name}[c.Name == "own"]; len(c.VolumeMounts) != 1 || c.VolumeMounts[0].Name != want {
			t.Errorf("container %s: %+v", c.Name, c.VolumeMounts)
		}
	}
	// After a webhook that adds a container the volume is used again.
	s.Containers = append(s.Containers, corev1.Container{Name: "sidecar"})
	if err := admit(t, sa, plugin.write(pod, nil)); err != nil || len(s.Volumes) != 1 || s.Containers[2].VolumeMounts[0].Name != v.Name {
		t.Errorf("again: %v %+v", err, s)
	}
	for name, quiet := range map[string]*corev1.Pod{
		"pod":     aPod(func(p *corev1.Pod) { p.Spec.AutomountServiceAccountToken = ptr.To(false) }),
		"account": aPod(func(p *corev1.Pod) { p.Spec.ServiceAccountName = "silent" }),
	} {
		if err := admit(t, sa, plugin.write(quiet, nil)); err != nil || len(quiet.Spec.Volumes) != 0 {
			t.Errorf("the %s does without: %v %v", name, err, quiet.Spec.Volumes)
		}
	}
	loud := aPod(func(p *corev1.Pod) {
		p.Spec.ServiceAccountName, p.Spec.AutomountServiceAccountToken = "silent", ptr.To(true)
	})
	if err := admit(t, sa, plugin.write(loud, nil)); err != nil || len(loud.Spec.Volumes) != 1 {
		t.Errorf("the pod wants it: %v %v", err, loud.Spec.Volumes)
	}
}

// What a service account does not permit is a 403.
func TestServiceAccountRejects(t *testing.T) {
	t.Parallel()
	w := newWorld(t, accountOf("default", enforced), accountOf("free"))
	plugin := w.only("ServiceAccount")
	mirror := func(p *corev1.Pod) { p.Annotations = map[string]string{"kubernetes.io/config.mirror": "x"} }
	env := func(secret string) corev1.EnvVar {
		return corev1.EnvVar{Name: "E", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: secret}}}}
	}
	from := func(secret string) corev1.EnvFromSource {
		return corev1.EnvFromSource{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: secret}}}
	}
	volume := func(secret string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: secret}}}}
		}
	}
	for _, tc := range []struct {
		name   string
		change func(*corev1.Pod)
		err    string
	}{
		{"nothing", func(*corev1.Pod) {}, ""},
		{"absent", func(p *corev1.Pod) { p.Spec.ServiceAccountName = "gone" }, `pods "p" is forbidden: error looking up service account ns/gone: serviceaccount "gone" not found`},
		{"own volume", volume("own"), ""},
		{"volume", volume("other"), `volume with secret.secretName="other" is not allowed because service account default does not reference that secret`},
		{"permissive", func(p *corev1.Pod) { volume("other")(p); p.Spec.ServiceAccountName = "free" }, ""},
		{"env", func(p *corev1.Pod) { p.Spec.Containers[0].Env = []corev1.EnvVar{env("own"), env("other")} }, `container c with envVar E referencing secret.secretName="other" is not allowed because service account default`},
		{"init env", func(p *corev1.Pod) {
			p.Spec.InitContainers = []corev1.Container{{Name: "i", EnvFrom: []corev1.EnvFromSource{from("other")}}}
		}, `init container i with envFrom referencing secret.secretName="other" is not allowed`},
		{"pull", func(p *corev1.Pod) { p.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "other"}} }, `imagePullSecrets[0].name="other" is not allowed because service account default does not reference that imagePullSecret`},
		{"own pull", func(p *corev1.Pod) { p.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "pull"}} }, ""},
		{"mirror", mirror, ""},
		{"mirror account", func(p *corev1.Pod) { mirror(p); p.Spec.ServiceAccountName = "default" }, "a mirror pod may not reference service accounts"},
		{"mirror secret", func(p *corev1.Pod) { mirror(p); volume("own")(p) }, "a mirror pod may not reference secrets"},
		{"mirror env", func(p *corev1.Pod) { mirror(p); p.Spec.Containers[0].EnvFrom = []corev1.EnvFromSource{from("own")} }, "a mirror pod may not reference secrets"},
		{"mirror token", func(p *corev1.Pod) {
			mirror(p)
			p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{Projected: tokenVolume()}}}
		}, "a mirror pod may not use ServiceAccountToken volume projections"},
	} {
		pod := aPod(tc.change)
		expect(t, tc.name, admit(t, plugin, w.write(pod, nil)), tc.err)
		if tc.err != "" {
			continue
		}
		// Updates are not asked about.
		expect(t, tc.name+", update", admit(t, plugin, w.write(aPod(volume("other")), pod)), "")
	}
	pod := aPod(func(p *corev1.Pod) {
		p.Spec.ServiceAccountName = "default"
		p.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "e", Env: []corev1.EnvVar{env("other")}}}}
	})
	expect(t, "ephemeral", admit(t, plugin, w.write(pod, aPod(), subresource("ephemeralcontainers"))), `ephemeral container e with envVar E referencing secret.secretName="other"`)
}

// The default service account is awaited: a controller creates it soon after the namespace.
func TestServiceAccountAwaited(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	plugin := w.only("ServiceAccount")
	done := make(chan error, 1)
	go func() {
		time.Sleep(150 * time.Millisecond)
		_, err := rest.CreateObject(t.Context(), w.resources["serviceaccounts"], accountOf("default"))
		done <- err
	}()
	if err := admit(t, plugin, w.write(aPod(), nil)); err != nil {
		t.Error(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// expect checks the message of an error, which is a 403.
func expect(t *testing.T, name string, err error, want string) {
	t.Helper()
	switch {
	case want == "" && err != nil, want != "" && (err == nil || !strings.Contains(err.Error(), want)):
		t.Errorf("%s: got %v, want %q", name, err, want)
	case want != "" && !apierrors.IsForbidden(err):
		t.Errorf("%s: not a 403: %#v", name, err)
	}
}
