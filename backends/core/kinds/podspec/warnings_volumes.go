package podspec

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
)

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
