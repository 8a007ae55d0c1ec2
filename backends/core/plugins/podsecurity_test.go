package plugins

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

func labelled(pairs ...string) *corev1.Namespace {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns", Labels: map[string]string{}}}
	for i := 0; i < len(pairs); i += 2 {
		ns.Labels["pod-security.kubernetes.io/"+pairs[i]] = pairs[i+1]
	}
	return ns
}

func privileged(p *corev1.Pod) {
	p.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{Privileged: ptr.To(true)}
}

// Pods are checked by the labels of their namespace, templates of pods warn.
func TestPodSecurity(t *testing.T) {
	t.Parallel()
	const violates = `pods "p" is forbidden: violates PodSecurity "baseline:latest": privileged (container "c" must not set securityContext.privileged=true)`
	template := func(change func(*corev1.Pod)) *appsv1.Deployment {
		return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "d"}, Spec: appsv1.DeploymentSpec{Template: corev1.PodTemplateSpec{Spec: aPod(change).Spec}}}
	}
	w := newWorld(t, labelled())
	expect(t, "no labels", admit(t, w.only("PodSecurity"), w.write(aPod(privileged), nil)), "")

	w = newWorld(t, labelled("enforce", "baseline"))
	plugin := w.only("PodSecurity")
	expect(t, "enforced", admit(t, plugin, w.write(aPod(privileged), nil)), violates)
	expect(t, "permitted", admit(t, plugin, w.write(aPod(), nil)), "")
	expect(t, "status", admit(t, plugin, w.write(aPod(privileged), aPod(privileged), subresource("status"))), "")
	if len(w.warnings) != 0 {
		t.Errorf("warnings %q", w.warnings)
	}
	expect(t, "template", admit(t, plugin, w.write(template(privileged), nil)), "")
	if len(w.warnings) != 1 || w.warnings[0] != `would violate PodSecurity "baseline:latest": privileged (container "c" must not set securityContext.privileged=true)` {
		t.Errorf("warnings %q", w.warnings)
	}

	// A namespace with wrong labels is refused; one with pods that violate its new level warns.
	w = newWorld(t, labelled(), aPod(privileged))
	plugin = w.only("PodSecurity")
	if err := admit(t, plugin, w.write(labelled("enforce", "strict"), nil)); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "pod-security.kubernetes.io/enforce") {
		t.Errorf("wrong level: %v", err)
	}
	expect(t, "relabelled", admit(t, plugin, w.write(labelled("enforce", "baseline"), labelled())), "")
	if len(w.warnings) != 2 || !strings.Contains(w.warnings[1], "p: privileged") {
		t.Errorf("warnings %q", w.warnings)
	}
}

// The configuration has defaults and exemptions.
func TestPodSecurityConfiguration(t *testing.T) {
	t.Parallel()
	head := map[string]any{"apiVersion": "pod-security.admission.config.k8s.io/v1", "kind": "PodSecurityConfiguration"}
	with := func(key string, value any) map[string]any {
		return map[string]any{"apiVersion": head["apiVersion"], "kind": head["kind"], "defaults": map[string]any{"enforce": "restricted"}, key: value}
	}
	for name, tc := range map[string]struct {
		config map[string]any
		err    string
	}{
		"defaults":         {with("exemptions", map[string]any{}), `violates PodSecurity "restricted:latest": privileged`},
		"exempt namespace": {with("exemptions", map[string]any{"namespaces": []string{"ns"}}), ""},
		"exempt user":      {with("exemptions", map[string]any{"usernames": []string{"alice"}}), ""},
	} {
		w := newWorld(t, labelled())
		w.configure("PodSecurity", tc.config)
		expect(t, name, admit(t, w.only("PodSecurity"), w.write(aPod(privileged), nil)), tc.err)
	}
	for text, config := range map[string]any{`unknown field "default"`: with("default", 1), "defaults.enforce": with("defaults", map[string]any{"enforce": "strict"})} {
		w := newWorld(t)
		w.configure("PodSecurity", config)
		if err := w.options.Check(); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v", text, err)
		}
	}
}
