package plugins

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage/names"
	"k8s.io/utils/ptr"

	"portico/backends/core/kinds/podspec"
	"portico/resource"
	"portico/resource/rest"
)

const (
	defaultServiceAccount = "default"
	// mountableSecrets is the annotation by which a service account limits the secrets of its
	// pods to its own.
	mountableSecrets = "kubernetes.io/enforce-mountable-secrets"
	// tokenVolumePrefix begins the name of the volume with the token, and tokenPath is where
	// containers mount it.
	tokenVolumePrefix = "kube-api-access-"
	tokenPath         = "/var/run/secrets/kubernetes.io/serviceaccount"
	// tokenSeconds is the lifetime of the token in the volume.
	tokenSeconds = 3607
	// defaultAttempts is how often the default service account is looked up, which a
	// controller creates soon after the namespace.
	defaultAttempts = 10
)

// newServiceAccount requires the service account of a pod, by default that named default, and
// adds its token and its image pull secrets.
func newServiceAccount(cfg *Config) (rest.Admission, error) {
	return &serviceAccounts{accounts: cfg.Resource("", "serviceaccounts")}, nil
}

type serviceAccounts struct{ accounts *rest.Resource }

// Mutate implements rest.Admission.
func (s *serviceAccounts) Mutate(ctx context.Context, a *rest.Attributes) error {
	pod := podOf(a)
	if pod == nil || a.Operation != rest.Create {
		return nil
	}
	if isMirror(pod) {
		return validateMirror(a, pod)
	}
	if pod.Spec.ServiceAccountName == "" {
		pod.Spec.ServiceAccountName, pod.Spec.DeprecatedServiceAccount = defaultServiceAccount, defaultServiceAccount
	}
	account, err := s.find(ctx, a, pod)
	if err != nil {
		return err
	}
	if ptr.Deref(pod.Spec.AutomountServiceAccountToken, ptr.Deref(account.AutomountServiceAccountToken, true)) {
		mountToken(&pod.Spec)
	}
	if len(pod.Spec.ImagePullSecrets) == 0 {
		pod.Spec.ImagePullSecrets = slices.Clone(account.ImagePullSecrets)
	}
	return limitSecrets(a, account, pod)
}

// Validate implements rest.Admission.
func (s *serviceAccounts) Validate(ctx context.Context, a *rest.Attributes) error {
	pod, ok := a.Object.(*corev1.Pod)
	sub := subresourceOf(a)
	if !ok || !(sub == "" && a.Operation == rest.Create) && !(sub == "ephemeralcontainers" && a.Operation == rest.Update) {
		return nil
	}
	if isMirror(pod) && sub == "" {
		return validateMirror(a, pod)
	}
	if pod.Spec.ServiceAccountName == "" {
		return forbidden(a, fmt.Errorf("no service account specified for pod %s/%s", a.Key.Namespace, pod.Name))
	}
	account, err := s.find(ctx, a, pod)
	if err != nil {
		return err
	}
	return limitSecrets(a, account, pod)
}

func isMirror(pod *corev1.Pod) bool {
	_, ok := pod.Annotations[corev1.MirrorPodAnnotationKey]
	return ok
}

// validateMirror is for the pods that nodes make for their static pods.
func validateMirror(a *rest.Attributes, pod *corev1.Pod) error {
	if pod.Spec.ServiceAccountName != "" {
		return forbidden(a, fmt.Errorf("a mirror pod may not reference service accounts"))
	}
	if refersToSecret(&pod.Spec) {
		return forbidden(a, fmt.Errorf("a mirror pod may not reference secrets"))
	}
	for _, v := range pod.Spec.Volumes {
		if v.Projected != nil && slices.ContainsFunc(v.Projected.Sources, func(p corev1.VolumeProjection) bool { return p.ServiceAccountToken != nil }) {
			return forbidden(a, fmt.Errorf("a mirror pod may not use ServiceAccountToken volume projections"))
		}
	}
	return nil
}

// find returns the service account of a pod: from the cache, or live.
func (s *serviceAccounts) find(ctx context.Context, a *rest.Attributes, pod *corev1.Pod) (*corev1.ServiceAccount, error) {
	key := resource.Key{Namespace: a.Key.Namespace, Name: pod.Spec.ServiceAccountName}
	account, err := readLive[*corev1.ServiceAccount](ctx, s.accounts, key)
	wait := time.Duration(100+rand.IntN(100)) * time.Millisecond
	for i := 1; i < defaultAttempts && key.Name == defaultServiceAccount && apierrors.IsNotFound(err); i++ {
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, ctx.Err()
		}
		account, err = rest.GetObject[*corev1.ServiceAccount](ctx, s.accounts, key, resource.At{})
	}
	if apierrors.IsNotFound(err) {
		err = apierrors.NewNotFound(schema.GroupResource{Resource: "serviceaccount"}, key.Name)
	}
	if err != nil {
		return nil, forbidden(a, fmt.Errorf("error looking up service account %s: %w", key, err))
	}
	return account, nil
}

// mountToken mounts a volume with the token in every container that mounts nothing there.
func mountToken(spec *corev1.PodSpec) {
	name := ""
	if i := slices.IndexFunc(spec.Volumes, func(v corev1.Volume) bool { return strings.HasPrefix(v.Name, tokenVolumePrefix) }); i >= 0 {
		name = spec.Volumes[i].Name
	}
	volume := name
	if volume == "" {
		volume = names.SimpleNameGenerator.GenerateName(tokenVolumePrefix)
	}
	mounted := false
	for _, list := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range list {
			c := &list[i]
			if !slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == tokenPath }) {
				c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: volume, ReadOnly: true, MountPath: tokenPath})
				mounted = true
			}
		}
	}
	if name == "" && mounted {
		spec.Volumes = append(spec.Volumes, corev1.Volume{Name: volume, VolumeSource: corev1.VolumeSource{Projected: tokenVolume()}})
	}
}

// tokenVolume is the token, the certificate of the server, and the namespace.
func tokenVolume() *corev1.ProjectedVolumeSource {
	return &corev1.ProjectedVolumeSource{DefaultMode: ptr.To(corev1.ProjectedVolumeSourceDefaultMode), Sources: []corev1.VolumeProjection{
		{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token", ExpirationSeconds: ptr.To[int64](tokenSeconds)}},
		{ConfigMap: &corev1.ConfigMapProjection{
			LocalObjectReference: corev1.LocalObjectReference{Name: "kube-root-ca.crt"}, Items: []corev1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}},
		}},
		{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{
			{Path: "namespace", FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.namespace"}},
		}}},
	}}
}

// limitSecrets rejects secrets that a service account with the annotation does not refer to. A
// write of ephemeral containers is about these alone.
func limitSecrets(a *rest.Attributes, account *corev1.ServiceAccount, pod *corev1.Pod) error {
	if enforced, _ := strconv.ParseBool(account.Annotations[mountableSecrets]); !enforced {
		return nil
	}
	ephemeral := subresourceOf(a) != ""
	if ephemeral {
		return limitContainerSecrets(a, account, pod, true)
	}
	for _, v := range pod.Spec.Volumes {
		if v.Secret != nil && !mountable(account, v.Secret.SecretName) {
			return forbidden(a, fmt.Errorf("volume with secret.secretName=%q is not allowed because service account %s does not reference that secret", v.Secret.SecretName, account.Name))
		}
	}
	if err := limitContainerSecrets(a, account, pod, false); err != nil {
		return err
	}
	for i, ref := range pod.Spec.ImagePullSecrets {
		if !slices.Contains(account.ImagePullSecrets, ref) {
			return forbidden(a, fmt.Errorf("imagePullSecrets[%d].name=%q is not allowed because service account %s does not reference that imagePullSecret", i, ref.Name, account.Name))
		}
	}
	return nil
}

func mountable(account *corev1.ServiceAccount, secret string) bool {
	return slices.ContainsFunc(account.Secrets, func(r corev1.ObjectReference) bool { return r.Name == secret })
}

// limitContainerSecrets is limitSecrets for the environments of containers.
func limitContainerSecrets(a *rest.Attributes, account *corev1.ServiceAccount, pod *corev1.Pod, ephemeral bool) error {
	reject := func(c podspec.Container, with, secret string) error {
		return forbidden(a, fmt.Errorf("%s %s with %s referencing secret.secretName=%q is not allowed because service account %s does not reference that secret",
			kindOfContainer(c), c.Name, with, secret, account.Name))
	}
	for c := range podspec.Containers(&pod.Spec) {
		if c.Ephemeral != ephemeral {
			continue
		}
		for _, env := range c.Env {
			if env.ValueFrom != nil && env.ValueFrom.SecretKeyRef != nil && !mountable(account, env.ValueFrom.SecretKeyRef.Name) {
				return reject(c, "envVar "+env.Name, env.ValueFrom.SecretKeyRef.Name)
			}
		}
		for _, from := range c.EnvFrom {
			if from.SecretRef != nil && !mountable(account, from.SecretRef.Name) {
				return reject(c, "envFrom", from.SecretRef.Name)
			}
		}
	}
	return nil
}

// kindOfContainer names a container in messages.
func kindOfContainer(c podspec.Container) string {
	switch {
	case c.Init:
		return "init container"
	case c.Ephemeral:
		return "ephemeral container"
	}
	return "container"
}

// refersToSecret reports whether a pod refers to a secret by a name.
func refersToSecret(spec *corev1.PodSpec) bool {
	if slices.ContainsFunc(spec.ImagePullSecrets, func(r corev1.LocalObjectReference) bool { return r.Name != "" }) {
		return true
	}
	for c := range podspec.Containers(spec) {
		if slices.ContainsFunc(c.EnvFrom, func(e corev1.EnvFromSource) bool { return e.SecretRef != nil && e.SecretRef.Name != "" }) ||
			slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool {
				return e.ValueFrom != nil && e.ValueFrom.SecretKeyRef != nil && e.ValueFrom.SecretKeyRef.Name != ""
			}) {
			return true
		}
	}
	for i := range spec.Volumes {
		if volumeRefersToSecret(&spec.Volumes[i].VolumeSource) {
			return true
		}
	}
	return false
}

func volumeRefersToSecret(s *corev1.VolumeSource) bool {
	var ref *corev1.LocalObjectReference
	switch {
	case s.Secret != nil:
		return s.Secret.SecretName != ""
	case s.AzureFile != nil:
		return s.AzureFile.SecretName != ""
	case s.Projected != nil:
		return slices.ContainsFunc(s.Projected.Sources, func(p corev1.VolumeProjection) bool { return p.Secret != nil && p.Secret.Name != "" })
	case s.CephFS != nil:
		ref = s.CephFS.SecretRef
	case s.Cinder != nil:
		ref = s.Cinder.SecretRef
	case s.FlexVolume != nil:
		ref = s.FlexVolume.SecretRef
	case s.RBD != nil:
		ref = s.RBD.SecretRef
	case s.ScaleIO != nil:
		ref = s.ScaleIO.SecretRef
	case s.ISCSI != nil:
		ref = s.ISCSI.SecretRef
	case s.StorageOS != nil:
		ref = s.StorageOS.SecretRef
	case s.CSI != nil:
		ref = s.CSI.NodePublishSecretRef
	}
	return ref != nil && ref.Name != ""
}
