package podspec

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"portico/backends/core/kinds/rules"
)

// This file has the rules of the sources that make files from data of the API.

const (
	// minTokenLifetime and maxTokenLifetime bound the lifetime of tokens, in seconds.
	minTokenLifetime, maxTokenLifetime = 10 * 60, 1 << 32
	// The bounds of the lifetime of certificates, in seconds; those of signers of the domain
	// kubernetes.io live shorter.
	minCertificateLifetime, maxCertificateLifetime, maxKubernetesLifetime = 60 * 60, 91 * 24 * 60 * 60, 24 * 60 * 60

	duplicatePaths = "conflicting duplicate paths"
)

// fileFields are the fields of a pod that files can have.
var fileFields = []string{"metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"}

// keyTypes are the types of keys of certificates.
var keyTypes = []string{"RSA3072", "RSA4096", "ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519"}

// localPath requires a path below the folder of the volume that no file of the kubelet has.
func localPath(value string, path *field.Path) field.ErrorList {
	errs := rules.RelativePath(value, path)
	if strings.HasPrefix(value, "..") && !strings.HasPrefix(value, "../") {
		errs = append(errs, field.Invalid(path, value, "must not start with '..'"))
	}
	return errs
}

func validateMode(mode *int32, path *field.Path) field.ErrorList {
	if mode != nil && (*mode < 0 || *mode > 0o777) {
		return field.ErrorList{field.Invalid(path, *mode, "must be a number between 0 and 0777 (octal), both inclusive")}
	}
	return nil
}

func validateUser(user *int64, path *field.Path) field.ErrorList {
	if user == nil {
		return nil
	}
	return rules.Invalid(path, *user, validation.IsValidUserID(*user))
}

// validateOwner returns the errors of the mode and the user of all files.
func validateOwner(mode *int32, user *int64, path *field.Path) field.ErrorList {
	return append(validateMode(mode, path.Child("defaultMode")), validateUser(user, path.Child("defaultUser"))...)
}

func validateKeys(items []corev1.KeyToPath, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range items {
		item, at := &items[i], path.Child("items").Index(i)
		errs = append(errs, Required(at, "key", item.Key, "path", item.Path)...)
		errs = append(errs, localPath(item.Path, at.Child("path"))...)
		errs = append(errs, validateMode(item.Mode, at.Child("mode"))...)
		errs = append(errs, validateUser(item.User, at.Child("user"))...)
	}
	return errs
}

func validateSecretFiles(s *corev1.SecretVolumeSource, path *field.Path) field.ErrorList {
	errs := append(Required(path, "secretName", s.SecretName), validateOwner(s.DefaultMode, s.DefaultUser, path)...)
	return append(errs, validateKeys(s.Items, path)...)
}

func validateConfigMapFiles(s *corev1.ConfigMapVolumeSource, path *field.Path) field.ErrorList {
	errs := append(Required(path, "name", s.Name), validateOwner(s.DefaultMode, s.DefaultUser, path)...)
	return append(errs, validateKeys(s.Items, path)...)
}

func validateDownwardAPI(s *corev1.DownwardAPIVolumeSource, path *field.Path) field.ErrorList {
	errs := validateOwner(s.DefaultMode, s.DefaultUser, path)
	for i := range s.Items {
		errs = append(errs, validateDownwardFile(&s.Items[i], path)...)
	}
	return errs
}

// validateDownwardFile returns the errors of a file, which have the path of the list's parent.
func validateDownwardFile(f *corev1.DownwardAPIVolumeFile, path *field.Path) field.ErrorList {
	errs := append(Required(path, "path", f.Path), localPath(f.Path, path.Child("path"))...)
	switch {
	case f.FieldRef != nil:
		errs = append(errs, validateFieldRef(f.FieldRef, fileFields, path.Child("fieldRef"))...)
		if f.ResourceFieldRef != nil {
			errs = append(errs, field.Invalid(path, "resource", "fieldRef and resourceFieldRef can not be specified simultaneously"))
		}
	case f.ResourceFieldRef != nil:
		errs = append(errs, validateResourceRef(f.ResourceFieldRef, true, path.Child("resourceFieldRef"))...)
	default:
		errs = append(errs, field.Required(path, "one of fieldRef and resourceFieldRef is required"))
	}
	errs = append(errs, validateMode(f.Mode, path.Child("mode"))...)
	return append(errs, validateUser(f.User, path.Child("user"))...)
}

// projected is a projected volume with what its rules depend on.
type projected struct {
	*corev1.ProjectedVolumeSource
	o Options
}

func validateProjected(s *projected, path *field.Path) field.ErrorList {
	p := projection{path: path, o: s.o, files: map[string]bool{}, errs: validateOwner(s.DefaultMode, s.DefaultUser, path)}
	for i := range s.Sources {
		p.source(&s.Sources[i], path.Child("sources").Index(i))
	}
	return p.errs
}

// projection collects the errors of the sources of a projected volume.
type projection struct {
	path *field.Path
	o    Options
	// files are the paths of the files of all sources.
	files map[string]bool
	errs  field.ErrorList
}

// claim adds an error with the value shown if a source before has a file with that path.
func (p *projection) claim(file, shown string) {
	if p.files[file] {
		p.errs = append(p.errs, field.Invalid(p.path, shown, duplicatePaths))
	}
	p.files[file] = true
}

// object validates a source that is an object with keys.
func (p *projection) object(name string, items []corev1.KeyToPath, path *field.Path) {
	p.errs = append(p.errs, Required(path, "name", name)...)
	p.errs = append(p.errs, validateKeys(items, path)...)
	for _, item := range items {
		if item.Path != "" {
			p.claim(item.Path, name)
		}
	}
}

func (p *projection) source(s *corev1.VolumeProjection, path *field.Path) {
	count := 0
	if o := s.Secret; o != nil {
		count++
		p.object(o.Name, o.Items, path.Child("secret"))
	}
	if o := s.ConfigMap; o != nil {
		count++
		p.object(o.Name, o.Items, path.Child("configMap"))
	}
	if d := s.DownwardAPI; d != nil {
		count++
		for i := range d.Items {
			p.errs = append(p.errs, validateDownwardFile(&d.Items[i], path.Child("downwardAPI"))...)
			if file := d.Items[i].Path; file != "" {
				p.claim(file, file)
			}
		}
	}
	if t := s.ServiceAccountToken; t != nil {
		count++
		p.errs = append(p.errs, validateToken(t, path.Child("serviceAccountToken"), p.path.Child("path"), p.o)...)
	}
	if b := s.ClusterTrustBundle; b != nil {
		count++
		p.errs = append(p.errs, validateTrustBundle(b, path.Child("clusterTrustBundle"))...)
		p.claim(b.Path, b.Path)
	}
	if c := s.PodCertificate; c != nil {
		count++
		p.errs = append(p.errs, validatePodCertificate(c, path.Child("podCertificate"), p.claim)...)
	}
	if count > 1 {
		p.errs = append(p.errs, field.Forbidden(path, "may not specify more than 1 volume type per source"))
	}
}

// ValidateTokenLifetime returns the errors of the lifetime of a token.
func ValidateTokenLifetime(seconds int64, path *field.Path) field.ErrorList {
	switch {
	case seconds < minTokenLifetime:
		return field.ErrorList{field.Invalid(path, seconds, "may not specify a duration less than 10 minutes")}
	case seconds > maxTokenLifetime:
		return field.ErrorList{field.Invalid(path, seconds, "may not specify a duration larger than 2^32 seconds")}
	}
	return nil
}

// validateToken returns the errors of a token; those of its path have the path filePath, as in
// kube-apiserver.
func validateToken(t *corev1.ServiceAccountTokenProjection, path, filePath *field.Path, o Options) field.ErrorList {
	var errs field.ErrorList
	if t.ExpirationSeconds == nil {
		errs = append(errs, field.Required(path.Child("expirationSeconds"), ""))
	} else {
		errs = append(errs, ValidateTokenLifetime(*t.ExpirationSeconds, path.Child("expirationSeconds"))...)
	}
	if t.Path == "" {
		errs = append(errs, field.Required(filePath, ""))
	} else if !o.stored(hasUnsafeTokenPath) {
		errs = append(errs, localPath(t.Path, filePath)...)
	}
	return append(errs, validateUser(t.User, path.Child("user"))...)
}

func hasUnsafeTokenPath(spec *corev1.PodSpec) bool {
	for i := range spec.Volumes {
		if p := spec.Volumes[i].Projected; p != nil {
			for _, s := range p.Sources {
				if s.ServiceAccountToken != nil && len(localPath(s.ServiceAccountToken.Path, nil)) > 0 {
					return true
				}
			}
		}
	}
	return false
}

func validateTrustBundle(b *corev1.ClusterTrustBundleProjection, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	switch name := ptr.Deref(b.Name, ""); {
	case b.Name != nil && b.SignerName != nil:
		errs = append(errs, field.Invalid(path, b, "only one of name and signerName may be used"))
	case b.Name != nil:
		if name == "" {
			errs = append(errs, field.Required(path.Child("name"), "must be a valid object name"))
		}
		i := strings.LastIndex(name, ":") // after the signer
		for _, m := range rules.TrustBundleName(name, strings.ReplaceAll(name[:max(i, 0)], ":", "/"), false) {
			errs = append(errs, field.Invalid(path.Child("name"), name, "not a valid clustertrustbundlename: "+m))
		}
		if b.LabelSelector != nil {
			errs = append(errs, field.Invalid(path.Child("labelSelector"), b.LabelSelector, "labelSelector must be unset if name is specified"))
		}
	case b.SignerName != nil:
		if *b.SignerName == "" {
			errs = append(errs, field.Required(path.Child("signerName"), "must be a valid signer name"))
		}
		errs = append(errs, rules.SignerName(*b.SignerName, path.Child("signerName"))...)
		errs = append(errs, metav1validation.ValidateLabelSelector(b.LabelSelector, metav1validation.LabelSelectorValidationOptions{}, path.Child("labelSelector"))...)
	default:
		errs = append(errs, field.Required(path, "either name or signerName must be specified"))
	}
	errs = append(errs, Required(path, "path", b.Path)...)
	errs = append(errs, validateUser(b.User, path.Child("user"))...)
	return append(errs, localPath(b.Path, path.Child("path"))...)
}

func validatePodCertificate(c *corev1.PodCertificateProjection, path *field.Path, claim func(file, shown string)) field.ErrorList {
	errs := rules.SignerName(c.SignerName, path.Child("signerName"))
	errs = append(errs, rules.UserAnnotations(c.UserAnnotations, path.Child("userAnnotations"))...)
	errs = append(errs, validateUser(c.User, path.Child("user"))...)
	errs = append(errs, rules.Supported(c.KeyType, path.Child("keyType"), keyTypes...)...)
	if s := c.MaxExpirationSeconds; s != nil {
		at, most := path.Child("maxExpirationSeconds"), int32(maxCertificateLifetime)
		if rules.KubernetesSigner(c.SignerName) {
			most = maxKubernetesLifetime
		}
		switch {
		case *s < minCertificateLifetime:
			errs = append(errs, field.Invalid(at, *s, fmt.Sprintf("if provided, maxExpirationSeconds must be >= %d", minCertificateLifetime)))
		case *s > most:
			errs = append(errs, field.Invalid(at, *s, fmt.Sprintf("if provided, maxExpirationSeconds must be <= %d", most)))
		}
	}
	files := 0
	for _, f := range []struct{ name, file string }{
		{"credentialBundlePath", c.CredentialBundlePath}, {"keyPath", c.KeyPath}, {"certificateChainPath", c.CertificateChainPath},
	} {
		if f.file != "" {
			files++
			errs = append(errs, localPath(f.file, path.Child(f.name))...)
			claim(f.file, f.file)
		}
	}
	if files == 0 {
		errs = append(errs, field.Required(path, "specify at least one of credentialBundlePath, keyPath, and certificateChainPath"))
	}
	return errs
}

func validateImage(v *volume, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	emptyReference := func(spec *corev1.PodSpec) bool {
		return slices.ContainsFunc(spec.Volumes, func(v corev1.Volume) bool { return v.Image != nil && v.Image.Reference == "" })
	}
	if !v.o.stored(emptyReference) {
		errs = append(errs, Required(path, "reference", v.Image.Reference)...)
	}
	return append(errs, rules.Enum(v.Image.PullPolicy, path.Child("pullPolicy"), corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever)...)
}
