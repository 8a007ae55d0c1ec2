package podspec

import (
	"cmp"
	"reflect"

	"github.com/distribution/reference"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico/backends/core/kinds/rules"
)

// tokenLifetime is the lifetime of a projected service account token, in seconds.
const tokenLifetime = 60 * 60

// SetDefaults sets the defaults of a pod spec, be it of a pod or a template.
func SetDefaults(spec *corev1.PodSpec) {
	spec.ServiceAccountName = cmp.Or(spec.ServiceAccountName, spec.DeprecatedServiceAccount)
	spec.DeprecatedServiceAccount = spec.ServiceAccountName
	spec.DNSPolicy = cmp.Or(spec.DNSPolicy, corev1.DNSClusterFirst)
	spec.RestartPolicy = cmp.Or(spec.RestartPolicy, corev1.RestartPolicyAlways)
	spec.SchedulerName = cmp.Or(spec.SchedulerName, corev1.DefaultSchedulerName)
	rules.Default(&spec.SecurityContext, corev1.PodSecurityContext{})
	rules.Default(&spec.TerminationGracePeriodSeconds, corev1.DefaultTerminationGracePeriodSeconds)
	for i := range spec.Volumes {
		defaultVolume(&spec.Volumes[i])
	}
	for c := range Containers(spec) {
		defaultContainer(c.Container)
	}
	rules.RoundUp(spec.Overhead)
	if r := spec.Resources; r != nil {
		rules.RoundUp(r.Limits)
		rules.RoundUp(r.Requests)
	}
}

// pullPolicy is the default pull policy of an image: Always for the tag latest, which an
// image without tag and digest has.
func pullPolicy(image string) corev1.PullPolicy {
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return corev1.PullIfNotPresent
	}
	if tagged, ok := reference.TagNameOnly(named).(reference.Tagged); ok && tagged.Tag() == "latest" {
		return corev1.PullAlways
	}
	return corev1.PullIfNotPresent
}

func defaultContainer(c *corev1.Container) {
	c.ImagePullPolicy = cmp.Or(c.ImagePullPolicy, pullPolicy(c.Image))
	c.TerminationMessagePath = cmp.Or(c.TerminationMessagePath, corev1.TerminationMessagePathDefault)
	c.TerminationMessagePolicy = cmp.Or(c.TerminationMessagePolicy, corev1.TerminationMessageReadFile)
	for i := range c.Ports {
		c.Ports[i].Protocol = cmp.Or(c.Ports[i].Protocol, corev1.ProtocolTCP)
	}
	for i := range c.Env {
		if from := c.Env[i].ValueFrom; from != nil {
			defaultFieldRef(from.FieldRef)
			if from.FileKeyRef != nil {
				rules.Default(&from.FileKeyRef.Optional, false)
			}
		}
	}
	rules.RoundUp(c.Resources.Limits)
	rules.RoundUp(c.Resources.Requests)
	for _, p := range probes(c) {
		defaultProbe(p)
	}
	for _, get := range httpGets(c) {
		get.Path = cmp.Or(get.Path, "/")
		get.Scheme = cmp.Or(get.Scheme, corev1.URISchemeHTTP)
	}
}

func defaultProbe(p *corev1.Probe) {
	p.TimeoutSeconds = cmp.Or(p.TimeoutSeconds, 1)
	p.PeriodSeconds = cmp.Or(p.PeriodSeconds, 10)
	p.SuccessThreshold = cmp.Or(p.SuccessThreshold, 1)
	p.FailureThreshold = cmp.Or(p.FailureThreshold, 3)
	if p.GRPC != nil {
		rules.Default(&p.GRPC.Service, "")
	}
}

func defaultFieldRef(ref *corev1.ObjectFieldSelector) {
	if ref != nil {
		ref.APIVersion = cmp.Or(ref.APIVersion, "v1")
	}
}

// noSource reports whether no field of a volume source is set.
func noSource(source any) bool { return reflect.ValueOf(source).IsZero() }

func defaultVolume(v *corev1.Volume) {
	if noSource(v.VolumeSource) {
		v.EmptyDir = &corev1.EmptyDirVolumeSource{}
	}
	if v.HostPath != nil {
		rules.Default(&v.HostPath.Type, corev1.HostPathUnset)
	}
	if v.Secret != nil {
		rules.Default(&v.Secret.DefaultMode, corev1.SecretVolumeSourceDefaultMode)
	}
	if v.ConfigMap != nil {
		rules.Default(&v.ConfigMap.DefaultMode, corev1.ConfigMapVolumeSourceDefaultMode)
	}
	if v.DownwardAPI != nil {
		rules.Default(&v.DownwardAPI.DefaultMode, corev1.DownwardAPIVolumeSourceDefaultMode)
		defaultDownwardItems(v.DownwardAPI.Items)
	}
	if v.Projected != nil {
		rules.Default(&v.Projected.DefaultMode, corev1.ProjectedVolumeSourceDefaultMode)
		for _, s := range v.Projected.Sources {
			if s.DownwardAPI != nil {
				defaultDownwardItems(s.DownwardAPI.Items)
			}
			if s.ServiceAccountToken != nil {
				rules.Default(&s.ServiceAccountToken.ExpirationSeconds, tokenLifetime)
			}
		}
	}
	if v.Image != nil {
		v.Image.PullPolicy = cmp.Or(v.Image.PullPolicy, pullPolicy(v.Image.Reference))
	}
	if v.Ephemeral != nil && v.Ephemeral.VolumeClaimTemplate != nil {
		SetClaimDefaults(&v.Ephemeral.VolumeClaimTemplate.Spec)
	}
	defaultStorageSystem(&v.VolumeSource)
}

func defaultDownwardItems(items []corev1.DownwardAPIVolumeFile) {
	for _, item := range items {
		defaultFieldRef(item.FieldRef)
	}
}

// defaultStorageSystem sets the defaults of the sources that name a storage system.
func defaultStorageSystem(v *corev1.VolumeSource) {
	if v.ISCSI != nil {
		v.ISCSI.ISCSIInterface = cmp.Or(v.ISCSI.ISCSIInterface, "default")
	}
	if v.RBD != nil {
		v.RBD.RBDPool = cmp.Or(v.RBD.RBDPool, "rbd")
		v.RBD.RadosUser = cmp.Or(v.RBD.RadosUser, "admin")
		v.RBD.Keyring = cmp.Or(v.RBD.Keyring, "/etc/ceph/keyring")
	}
	if v.AzureDisk != nil {
		SetAzureDiskDefaults(v.AzureDisk)
	}
	if v.ScaleIO != nil {
		v.ScaleIO.StorageMode = cmp.Or(v.ScaleIO.StorageMode, "ThinProvisioned")
		v.ScaleIO.FSType = cmp.Or(v.ScaleIO.FSType, "xfs")
	}
}

// SetAzureDiskDefaults sets the defaults of an Azure disk, of a volume or a persistent
// volume.
func SetAzureDiskDefaults(d *corev1.AzureDiskVolumeSource) {
	rules.Default(&d.CachingMode, corev1.AzureDataDiskCachingReadWrite)
	rules.Default(&d.FSType, "ext4")
	rules.Default(&d.ReadOnly, false)
	rules.Default(&d.Kind, corev1.AzureSharedBlobDisk)
}

// SetClaimDefaults sets the defaults of the spec of a claim or a claim template.
func SetClaimDefaults(spec *corev1.PersistentVolumeClaimSpec) {
	rules.Default(&spec.VolumeMode, corev1.PersistentVolumeFilesystem)
	rules.RoundUp(spec.Resources.Limits)
	rules.RoundUp(spec.Resources.Requests)
}

// SetPodDefaults sets the defaults that only a Pod gets, SetDefaults included.
func SetPodDefaults(pod *corev1.Pod) {
	spec := &pod.Spec
	SetDefaults(spec)
	if p := spec.TerminationGracePeriodSeconds; p != nil && *p < 0 {
		*p = 1
	}
	rules.Default(&spec.EnableServiceLinks, corev1.DefaultEnableServiceLinks)
	for c := range Containers(spec) {
		if c.Ephemeral {
			continue
		}
		requestLimits(&c.Resources)
		if spec.HostNetwork {
			for i := range c.Ports {
				c.Ports[i].HostPort = cmp.Or(c.Ports[i].HostPort, c.Ports[i].ContainerPort)
			}
		}
	}
	defaultPodIPs(&pod.Status)
}

// requestLimits requests the limits that have no request.
func requestLimits(r *corev1.ResourceRequirements) {
	if r.Limits == nil {
		return
	}
	if r.Requests == nil {
		r.Requests = corev1.ResourceList{}
	}
	for name, limit := range r.Limits {
		if _, ok := r.Requests[name]; !ok {
			r.Requests[name] = limit.DeepCopy()
		}
	}
}

// defaultPodIPs makes podIP the first of podIPs; podIP wins if they differ.
func defaultPodIPs(status *corev1.PodStatus) {
	switch {
	case status.PodIP == "" && len(status.PodIPs) > 0:
		status.PodIP = status.PodIPs[0].IP
	case status.PodIP != "" && (len(status.PodIPs) == 0 || status.PodIPs[0].IP != status.PodIP):
		status.PodIPs = []corev1.PodIP{{IP: status.PodIP}}
	}
}

// MergeLabelKeys extends the selectors of a new pod by the labels of the pod that they name.
func MergeLabelKeys(spec *corev1.PodSpec, labels map[string]string) {
	merge := func(s *metav1.LabelSelector, keys []string, operator metav1.LabelSelectorOperator) {
		for _, key := range keys {
			if value, ok := labels[key]; ok && s != nil {
				s.MatchExpressions = append(s.MatchExpressions, metav1.LabelSelectorRequirement{Key: key, Operator: operator, Values: []string{value}})
			}
		}
	}
	for _, t := range podTerms(spec.Affinity, nil) {
		merge(t.LabelSelector, t.MatchLabelKeys, metav1.LabelSelectorOpIn)
		merge(t.LabelSelector, t.MismatchLabelKeys, metav1.LabelSelectorOpNotIn)
	}
	for _, c := range spec.TopologySpreadConstraints {
		merge(c.LabelSelector, c.MatchLabelKeys, metav1.LabelSelectorOpIn)
	}
}

// AppArmorFields gives the containers of a new pod the profiles that annotations name, where
// they have none. It returns warnings about these annotations.
func AppArmorFields(spec *corev1.PodSpec, annotations map[string]string) (warnings []string) {
	if isOS(spec, corev1.Windows) {
		return nil
	}
	var pod *corev1.AppArmorProfile
	if spec.SecurityContext != nil {
		pod = spec.SecurityContext.AppArmorProfile
	}
	for c := range Containers(spec) {
		key := appArmorAnnotation + c.Name
		text, ok := annotations[key]
		if !ok || c.SecurityContext != nil && c.SecurityContext.AppArmorProfile != nil {
			continue
		}
		p := appArmorProfile(text)
		if len(validateAppArmor(p, nil)) > 0 {
			p = nil
		}
		if p != nil && equality.Semantic.DeepEqual(p, pod) {
			continue
		}
		warnings = append(warnings, field.NewPath("metadata", "annotations").Key(key).String()+": "+appArmorReplaced)
		if p == nil {
			continue
		}
		if c.SecurityContext == nil {
			c.SecurityContext = &corev1.SecurityContext{}
		}
		c.SecurityContext.AppArmorProfile = p
	}
	return warnings
}
