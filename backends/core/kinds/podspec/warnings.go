package podspec

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"portico/backends/core/kinds/rules"
)

// deprecatedAnnotations have no effect; fields replace them.
var deprecatedAnnotations = []struct{ name, message string }{
	{"scheduler.alpha.kubernetes.io/critical-pod", `non-functional in v1.16+; use the "priorityClassName" field instead`},
	{"security.alpha.kubernetes.io/sysctls", `non-functional in v1.11+; use the "sysctls" field instead`},
	{"security.alpha.kubernetes.io/unsafe-sysctls", `non-functional in v1.11+; use the "sysctls" field instead`},
}

// maxWarnings bounds the warnings about one object.
const maxWarnings = 1000

const nullSelector = "a null labelSelector results in matching no pod"

// warnings are those about one pod or template.
type warnings struct {
	spec *corev1.PodSpec
	meta *metav1.ObjectMeta
	// path is that of the template, nil for a pod.
	path *field.Path
	out  []string
}

// Warnings returns the warnings about a pod.
func Warnings(pod *corev1.Pod) []string { return warningsOf(&pod.Spec, &pod.ObjectMeta, nil) }

// TemplateWarnings returns the warnings about a template.
func TemplateWarnings(t *corev1.PodTemplateSpec, path *field.Path) []string {
	return warningsOf(&t.Spec, &t.ObjectMeta, path)
}

func warningsOf(spec *corev1.PodSpec, meta *metav1.ObjectMeta, path *field.Path) []string {
	w := &warnings{spec: spec, meta: meta, path: path}
	w.scheduling()
	for _, a := range deprecatedAnnotations {
		w.annotation(a.name, a.message)
	}
	for i := range spec.Volumes {
		w.volume(&spec.Volumes[i], w.at("volumes").Index(i))
	}
	for i := range spec.Volumes {
		w.overlaps(&spec.Volumes[i])
	}
	w.duplicates()
	w.fractions(spec.Overhead, w.at("overhead"))
	if spec.SecurityContext == nil || spec.SecurityContext.SeccompProfile == nil {
		w.annotation(corev1.SeccompPodAnnotationKey, seccompReplaced)
	}
	for c := range Containers(spec) {
		w.container(c.Container, c.Path(w.at()))
	}
	w.ports()
	if grace := spec.TerminationGracePeriodSeconds; grace != nil && *grace < 0 {
		w.add(w.at("terminationGracePeriodSeconds"), "must be >= 0; negative values are invalid and will be treated as 1")
	}
	w.affinity()
	if spec.DNSConfig != nil {
		for i, address := range spec.DNSConfig.Nameservers {
			w.out = append(w.out, validation.GetWarningsForIP(w.at("dnsConfig", "nameservers").Index(i), address)...)
		}
	}
	for i, a := range spec.HostAliases {
		w.out = append(w.out, validation.GetWarningsForIP(w.at("hostAliases").Index(i).Child("ip"), a.IP)...)
	}
	return w.out
}

// at returns the path of a field of the spec.
func (w *warnings) at(names ...string) *field.Path { return w.path.Child("spec", names...) }

func (w *warnings) add(path *field.Path, format string, args ...any) {
	w.addText("%s: "+format, append([]any{path}, args...)...)
}

func (w *warnings) addText(format string, args ...any) {
	if len(w.out) < maxWarnings {
		w.out = append(w.out, fmt.Sprintf(format, args...))
	}
}

// annotation warns of an annotation if there is one.
func (w *warnings) annotation(name, message string) {
	if _, ok := w.meta.Annotations[name]; ok {
		w.add(w.path.Child("metadata", "annotations").Key(name), "%s", message)
	}
}

func (w *warnings) scheduling() {
	for _, key := range slices.Sorted(maps.Keys(w.spec.NodeSelector)) {
		if why := rules.DeprecatedNodeLabel(key); why != "" {
			w.add(w.at("nodeSelector").Key(key), "%s", why)
		}
	}
	if w.spec.Affinity != nil && w.spec.Affinity.NodeAffinity != nil {
		n, at := w.spec.Affinity.NodeAffinity, w.at("affinity", "nodeAffinity")
		if r := n.RequiredDuringSchedulingIgnoredDuringExecution; r != nil {
			for i := range r.NodeSelectorTerms {
				term := at.Child("requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms").Index(i)
				w.out = append(w.out, rules.NodeTermWarnings(&r.NodeSelectorTerms[i], false, term)...)
			}
		}
		for i := range n.PreferredDuringSchedulingIgnoredDuringExecution {
			term := at.Child("preferredDuringSchedulingIgnoredDuringExecution").Index(i).Child("preference")
			w.out = append(w.out, rules.NodeTermWarnings(&n.PreferredDuringSchedulingIgnoredDuringExecution[i].Preference, true, term)...)
		}
	}
	for i, c := range w.spec.TopologySpreadConstraints {
		at := w.at("topologySpreadConstraints").Index(i)
		if why := rules.DeprecatedNodeLabel(c.TopologyKey); why != "" {
			w.add(at.Child("topologyKey"), "%s is %s", c.TopologyKey, why)
		}
		if c.LabelSelector == nil {
			w.add(at.Child("labelSelector"), nullSelector)
		}
	}
}

func (w *warnings) affinity() {
	a := w.spec.Affinity
	if a == nil {
		return
	}
	list := func(kind string, required []corev1.PodAffinityTerm, preferred []corev1.WeightedPodAffinityTerm) {
		at := w.at("affinity", kind)
		for i, t := range required {
			if t.LabelSelector == nil {
				w.add(at.Child("requiredDuringSchedulingIgnoredDuringExecution").Index(i).Child("labelSelector"), nullSelector)
			}
		}
		for i, t := range preferred {
			if t.PodAffinityTerm.LabelSelector == nil {
				w.add(at.Child("preferredDuringSchedulingIgnoredDuringExecution").Index(i).Child("podAffinityTerm", "labelSelector"), nullSelector)
			}
		}
	}
	if p := a.PodAffinity; p != nil {
		list("podAffinity", p.RequiredDuringSchedulingIgnoredDuringExecution, p.PreferredDuringSchedulingIgnoredDuringExecution)
	}
	if p := a.PodAntiAffinity; p != nil {
		list("podAntiAffinity", p.RequiredDuringSchedulingIgnoredDuringExecution, p.PreferredDuringSchedulingIgnoredDuringExecution)
	}
}

// duplicates warns of entries of lists that another one hides.
func (w *warnings) duplicates() {
	seen := sets.New[string]()
	for i, a := range w.spec.HostAliases {
		if seen.Has(a.IP) {
			w.add(w.at("hostAliases").Index(i).Child("ip"), "duplicate ip %q", a.IP)
		}
		seen.Insert(a.IP)
	}
	seen = sets.New[string]()
	for i, s := range w.spec.ImagePullSecrets {
		if seen.Has(s.Name) {
			w.add(w.at("imagePullSecrets").Index(i).Child("name"), "duplicate name %q", s.Name)
		}
		seen.Insert(s.Name)
	}
	for i, s := range w.spec.ImagePullSecrets {
		if s.Name == "" {
			w.add(w.at("imagePullSecrets").Index(i).Child("name"), "invalid empty name %q", s.Name)
		}
	}
}

// fractions warns of quantities of memory that are not whole bytes.
func (w *warnings) fractions(list corev1.ResourceList, path *field.Path) {
	for _, name := range []corev1.ResourceName{corev1.ResourceMemory, corev1.ResourceEphemeralStorage} {
		if q, ok := list[name]; ok && q.MilliValue()%1000 != 0 {
			w.add(path.Key(string(name)), "fractional byte value %q is invalid, must be an integer", q.String())
		}
	}
}

const (
	seccompReplaced  = `non-functional in v1.27+; use the "seccompProfile" field instead`
	appArmorReplaced = `deprecated since v1.30; use the "appArmorProfile" field instead`
)

func (w *warnings) container(c *corev1.Container, path *field.Path) {
	s, pod := c.SecurityContext, w.spec.SecurityContext
	if s == nil || s.SeccompProfile == nil {
		w.annotation(corev1.SeccompContainerAnnotationKeyPrefix+c.Name, seccompReplaced)
	}
	if key := corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix + c.Name; w.path != nil && (s == nil || s.AppArmorProfile == nil) {
		if pod == nil || pod.AppArmorProfile == nil || !equality.Semantic.DeepEqual(pod.AppArmorProfile, appArmorProfile(w.meta.Annotations[key])) {
			w.annotation(key, appArmorReplaced)
		}
	}
	w.fractions(c.Resources.Limits, path.Child("resources", "limits"))
	w.fractions(c.Resources.Requests, path.Child("resources", "requests"))
	seen := sets.New[string]()
	for i, v := range c.Env {
		ref := "$(" + v.Name + ")"
		if seen.Has(v.Name) && (v.ValueFrom != nil || v.Value == ref || !strings.Contains(v.Value, ref)) {
			w.add(path.Child("env").Index(i), "hides previous definition of %q, which may be dropped when using apply", v.Name)
		}
		seen.Insert(v.Name)
	}
}

// appArmorProfile returns the profile that an annotation names, nil for none.
func appArmorProfile(name string) *corev1.AppArmorProfile {
	local, ok := strings.CutPrefix(name, corev1.DeprecatedAppArmorBetaProfileNamePrefix)
	switch {
	case name == corev1.DeprecatedAppArmorBetaProfileNameUnconfined:
		return &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeUnconfined}
	case name == corev1.DeprecatedAppArmorBetaProfileRuntimeDefault:
		return &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeRuntimeDefault}
	case ok && local != "":
		return &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeLocalhost, LocalhostProfile: &local}
	}
	return nil
}

// ports warns of ports that two containers define.
func (w *warnings) ports() {
	type definition struct {
		corev1.ContainerPort
		path *field.Path
	}
	byNumber, byName := map[string][]definition{}, map[string]*field.Path{}
	var all []definition
	for c := range Containers(w.spec) {
		for i, p := range c.Ports {
			all = append(all, definition{p, c.Path(w.at()).Child("ports").Index(i)})
		}
	}
	for _, p := range all {
		if p.HostIP != "" && p.HostPort == 0 {
			w.add(p.path, "hostIP set without hostPort: %+v", p.ContainerPort)
		}
		key := fmt.Sprintf("%d/%s", p.ContainerPort.ContainerPort, p.Protocol)
		for _, other := range byNumber[key] {
			switch {
			case len(w.out) >= maxWarnings:
				return
			case p.HostIP == other.HostIP && p.HostPort == other.HostPort:
				w.add(p.path, "duplicate port definition with %s", other.path)
			case p.HostPort == 0 || other.HostPort == 0:
				w.add(p.path, "overlapping port definition with %s", other.path)
			case p.HostPort == other.HostPort && (p.HostIP == "") != (other.HostIP == ""):
				w.add(p.path, "dangerously ambiguous port definition with %s", other.path)
			}
		}
		byNumber[key] = append(byNumber[key], p)
	}
	for _, p := range all {
		if first := byName[p.Name]; p.Name != "" && first != nil {
			w.add(p.path, "duplicate port name %q with %s, services and probes that select ports by name will use %s", p.Name, first, first)
		} else {
			byName[p.Name] = p.path
		}
	}
}

// volume warns of the sources of a volume that are deprecated.
func (w *warnings) volume(v *corev1.Volume, path *field.Path) {
	const gone = "deprecated in %s, non-functional in %s+"
	for _, s := range []struct {
		set     bool
		name    string
		message string
	}{
		{v.PhotonPersistentDisk != nil, "photonPersistentDisk", fmt.Sprintf(gone, "v1.11", "v1.16")},
		{v.GitRepo != nil, "gitRepo", "deprecated in v1.11, and disabled by default in v1.33+"},
		{v.ScaleIO != nil, "scaleIO", fmt.Sprintf(gone, "v1.16", "v1.22")},
		{v.Flocker != nil, "flocker", fmt.Sprintf(gone, "v1.22", "v1.25")},
		{v.StorageOS != nil, "storageOS", fmt.Sprintf(gone, "v1.22", "v1.25")},
		{v.Quobyte != nil, "quobyte", fmt.Sprintf(gone, "v1.22", "v1.25")},
		{v.Glusterfs != nil, "glusterfs", fmt.Sprintf(gone, "v1.25", "v1.26")},
		{v.CephFS != nil, "cephfs", fmt.Sprintf(gone, "v1.28", "v1.31")},
		{v.RBD != nil, "rbd", fmt.Sprintf(gone, "v1.28", "v1.31")},
	} {
		if s.set {
			w.add(path.Child(s.name), "%s", s.message)
		}
	}
	if v.Ephemeral != nil && v.Ephemeral.VolumeClaimTemplate != nil {
		w.out = append(w.out, ClaimWarnings(&v.Ephemeral.VolumeClaimTemplate.Spec, path.Child("ephemeral", "volumeClaimTemplate", "spec"))...)
	}
}

// volumeFile is the path of a file of a volume, and what it is from if not from the only
// source.
type volumeFile struct{ path, source string }

func (f volumeFile) String() string {
	if f.source == "" {
		return fmt.Sprintf("%q", f.path)
	}
	return fmt.Sprintf("%q (%s)", f.path, f.source)
}

func keyFiles(items []corev1.KeyToPath, source string) []volumeFile {
	var out []volumeFile
	for _, item := range items {
		out = append(out, volumeFile{item.Path, source})
	}
	return out
}

func downwardFiles(items []corev1.DownwardAPIVolumeFile, source string) []volumeFile {
	var out []volumeFile
	for _, item := range items {
		out = append(out, volumeFile{item.Path, source})
	}
	return out
}

// maxCompared is how many files of a volume are compared with each other.
const maxCompared = 250

// overlaps warns of files of a volume that have the same path, or of which one is in the other.
func (w *warnings) overlaps(v *corev1.Volume) {
	var files []volumeFile
	source := ""
	switch {
	case v.ConfigMap != nil:
		source, files = fmt.Sprintf("ConfigMap %q", v.ConfigMap.Name), keyFiles(v.ConfigMap.Items, "")
	case v.Secret != nil:
		source, files = fmt.Sprintf("Secret %q", v.Secret.SecretName), keyFiles(v.Secret.Items, "")
	case v.DownwardAPI != nil:
		source, files = "DownwardAPI", downwardFiles(v.DownwardAPI.Items, "")
	case v.Projected != nil:
		source = "Projected"
		for _, s := range v.Projected.Sources {
			if noSource(s) {
				w.addText("volume %q (Projected) has no sources provided", v.Name)
			}
			files = append(files, projectedFiles(&s)...)
		}
	}
	for i := range files[:min(len(files), maxCompared)] {
		files[i].path = strings.TrimRight(files[i].path, "/")
		for _, other := range files[:i] {
			path, before := files[i].path, other.path
			if path != "" && before != "" && (strings.HasPrefix(before+"/", path+"/") || strings.HasPrefix(path+"/", before+"/")) {
				w.addText("volume %q (%s): overlapping paths: %s with %s", v.Name, source, files[i], other)
			}
		}
	}
}

// projectedFiles returns the files of a source of a projected volume.
func projectedFiles(s *corev1.VolumeProjection) []volumeFile {
	switch {
	case s.ConfigMap != nil && s.ConfigMap.Items != nil:
		return keyFiles(s.ConfigMap.Items, fmt.Sprintf("ConfigMap %q", s.ConfigMap.Name))
	case s.Secret != nil && s.Secret.Items != nil:
		return keyFiles(s.Secret.Items, fmt.Sprintf("Secret %q", s.Secret.Name))
	case s.DownwardAPI != nil && s.DownwardAPI.Items != nil:
		return downwardFiles(s.DownwardAPI.Items, "DownwardAPI")
	case s.ServiceAccountToken != nil:
		return []volumeFile{{s.ServiceAccountToken.Path, "ServiceAccountToken"}}
	case s.ClusterTrustBundle != nil:
		name := ptr.Deref(s.ClusterTrustBundle.Name, ptr.Deref(s.ClusterTrustBundle.SignerName, ""))
		return []volumeFile{{s.ClusterTrustBundle.Path, fmt.Sprintf("ClusterTrustBundle %q", name)}}
	case s.PodCertificate != nil:
		c := s.PodCertificate
		return []volumeFile{
			{c.CertificateChainPath, "PodCertificate chain"}, {c.KeyPath, "PodCertificate key"}, {c.CredentialBundlePath, "PodCertificate credential bundle"},
		}
	}
	return nil
}
