package podspec

import (
	"maps"
	"net"
	"path"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico/backends/core/kinds/rules"
)

// This file has the rules of the sources that name a storage system. Those with upper-case
// names are for volumes of pods and persistent volumes.

// partition is the message of numbers of partitions, of which 0 is the whole disk.
var partition = validation.InclusiveRangeError(1, 255)

// Required requires values; pairs are their names and the values.
func Required(path *field.Path, pairs ...string) field.ErrorList {
	var errs field.ErrorList
	for pair := range slices.Chunk(pairs, 2) {
		errs = append(errs, rules.Present(pair[1], path.Child(pair[0]))...)
	}
	return errs
}

func requireAny[T any](list []T, path *field.Path) field.ErrorList {
	if len(list) == 0 {
		return field.ErrorList{field.Required(path, "")}
	}
	return nil
}

func validateEmptyDir(s *corev1.EmptyDirVolumeSource, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if s.SizeLimit != nil && s.SizeLimit.Sign() < 0 {
		errs = append(errs, field.Forbidden(path.Child("sizeLimit"), "SizeLimit field must be a valid resource quantity"))
	}
	if m := s.Mode; m != nil && (*m < 0 || *m > 0o1777) {
		errs = append(errs, field.Invalid(path.Child("mode"), *m, "must be a number between 0 and 01777 (octal), both inclusive"))
	}
	return errs
}

// ValidateHostPath returns the errors of a path of the node.
func ValidateHostPath(s *corev1.HostPathVolumeSource, path *field.Path) field.ErrorList {
	if s.Path == "" {
		return Required(path, "path", "")
	}
	errs := rules.NoParent(s.Path, path.Child("path"))
	if s.Type != nil {
		errs = append(errs, rules.Supported(*s.Type, path.Child("type"), corev1.HostPathUnset, corev1.HostPathBlockDev, corev1.HostPathCharDev,
			corev1.HostPathDirectory, corev1.HostPathDirectoryOrCreate, corev1.HostPathFile, corev1.HostPathFileOrCreate, corev1.HostPathSocket)...)
	}
	return errs
}

func validateGitRepo(s *corev1.GitRepoVolumeSource, path *field.Path) field.ErrorList {
	return append(Required(path, "repository", s.Repository), rules.RelativePath(s.Directory, path.Child("directory"))...)
}

func validateDisk(name, value string, part int32, path *field.Path) field.ErrorList {
	errs := Required(path, name, value)
	if part < 0 || part > 255 {
		errs = append(errs, field.Invalid(path.Child("partition"), part, partition))
	}
	return errs
}

// ValidateGCEDisk returns the errors of a GCE persistent disk.
func ValidateGCEDisk(s *corev1.GCEPersistentDiskVolumeSource, path *field.Path) field.ErrorList {
	return validateDisk("pdName", s.PDName, s.Partition, path)
}

// ValidateAWSDisk returns the errors of an AWS elastic block store.
func ValidateAWSDisk(s *corev1.AWSElasticBlockStoreVolumeSource, path *field.Path) field.ErrorList {
	return validateDisk("volumeID", s.VolumeID, s.Partition, path)
}

// ValidateNFS returns the errors of a path of an NFS server.
func ValidateNFS(s *corev1.NFSVolumeSource, at *field.Path) field.ErrorList {
	errs := Required(at, "server", s.Server, "path", s.Path)
	if !path.IsAbs(s.Path) {
		errs = append(errs, field.Invalid(at.Child("path"), s.Path, "must be an absolute path"))
	}
	return errs
}

const (
	// ISCSIPairMessage is the message about a volume name and a portal that are too long.
	ISCSIPairMessage = "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if iscsi.initiatorName is specified."
	maxISCSIPair     = 64
	wrongISCSIName   = "must be valid format"
)

// ISCSIPairTooLong reports whether a volume name and a portal are too long for an initiator.
func ISCSIPairTooLong(name, portal string) bool { return len(name)+len(":")+len(portal) > maxISCSIPair }

// iscsiNames are the forms of names of iSCSI nodes, by their prefixes.
var iscsiNames = map[string]*regexp.Regexp{
	"iqn": regexp.MustCompile(`iqn\.\d{4}-\d{2}\.([[:alnum:]-.]+)(:[^,;*&$|\s]+)$`),
	"eui": regexp.MustCompile(`^eui.[[:alnum:]]{16}$`),
	"naa": regexp.MustCompile(`^naa.[[:alnum:]]{32}$`),
}

func validateISCSIName(name, wrongPrefix string, path *field.Path) field.ErrorList {
	form := iscsiNames[name[:min(len(name), 3)]]
	switch {
	case form == nil:
		return field.ErrorList{field.Invalid(path, name, wrongPrefix)}
	case !form.MatchString(name):
		return field.ErrorList{field.Invalid(path, name, wrongISCSIName)}
	}
	return nil
}

func validateISCSI(s *corev1.ISCSIVolumeSource, path *field.Path) field.ErrorList {
	secret := s.SecretRef != nil || !s.DiscoveryCHAPAuth && !s.SessionCHAPAuth
	return ValidateISCSITarget(s.TargetPortal, s.IQN, s.Lun, secret, s.InitiatorName, wrongISCSIName+" starting with iqn, eui, or naa", path)
}

// ValidateISCSI returns the errors of the iSCSI disk of the persistent volume with that name.
func ValidateISCSI(s *corev1.ISCSIPersistentVolumeSource, volume string, path *field.Path) field.ErrorList {
	secret := s.SecretRef != nil || !s.DiscoveryCHAPAuth && !s.SessionCHAPAuth
	errs := ValidateISCSITarget(s.TargetPortal, s.IQN, s.Lun, secret, s.InitiatorName, wrongISCSIName, path)
	if s.InitiatorName != nil && ISCSIPairTooLong(volume, s.TargetPortal) {
		errs = append(errs, field.Invalid(path.Child("targetportal"), s.TargetPortal, ISCSIPairMessage))
	}
	if s.SecretRef != nil {
		errs = append(errs, Required(path.Child("secretRef"), "name", s.SecretRef.Name)...)
	}
	return errs
}

// ValidateISCSITarget returns the errors of an iSCSI disk.
func ValidateISCSITarget(portal, iqn string, lun int32, secret bool, initiator *string, wrongPrefix string, path *field.Path) field.ErrorList {
	errs := Required(path, "targetPortal", portal, "iqn", iqn)
	if iqn != "" {
		errs = append(errs, validateISCSIName(iqn, wrongPrefix, path.Child("iqn"))...)
	}
	errs = append(errs, validateLun(lun, path)...)
	if !secret {
		errs = append(errs, field.Required(path.Child("secretRef"), ""))
	}
	if initiator != nil {
		errs = append(errs, validateISCSIName(*initiator, wrongPrefix, path.Child("initiatorname"))...)
	}
	return errs
}

func validateLun(lun int32, path *field.Path) field.ErrorList {
	if lun < 0 || lun > 255 {
		return field.ErrorList{field.Invalid(path.Child("lun"), lun, validation.InclusiveRangeError(0, 255))}
	}
	return nil
}

func validateGlusterfs(s *corev1.GlusterfsVolumeSource, path *field.Path) field.ErrorList {
	return Required(path, "endpoints", s.EndpointsName, "path", s.Path)
}

// ValidateFlocker returns the errors of a Flocker volume.
func ValidateFlocker(s *corev1.FlockerVolumeSource, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	switch {
	case s.DatasetName == "" && s.DatasetUUID == "":
		errs = append(errs, field.Required(path, "one of datasetName and datasetUUID is required"))
	case s.DatasetName != "" && s.DatasetUUID != "":
		errs = append(errs, field.Invalid(path, "resource", "datasetName and datasetUUID can not be specified simultaneously"))
	}
	if strings.Contains(s.DatasetName, "/") {
		errs = append(errs, field.Invalid(path.Child("datasetName"), s.DatasetName, "must not contain '/'"))
	}
	return errs
}

func validateRBD(s *corev1.RBDVolumeSource, path *field.Path) field.ErrorList {
	return append(requireAny(s.CephMonitors, path.Child("monitors")), Required(path, "image", s.RBDImage)...)
}

// ValidateRBD returns the errors of the RADOS block device of a persistent volume.
func ValidateRBD(s *corev1.RBDPersistentVolumeSource, path *field.Path) field.ErrorList {
	return validateRBD(&corev1.RBDVolumeSource{CephMonitors: s.CephMonitors, RBDImage: s.RBDImage}, path)
}

func validateCinder(s *corev1.CinderVolumeSource, path *field.Path) field.ErrorList {
	return append(Required(path, "volumeID", s.VolumeID), requireSecretName(s.SecretRef, path)...)
}

// requireSecretName requires the name in a reference, if there is one.
func requireSecretName(ref *corev1.LocalObjectReference, path *field.Path) field.ErrorList {
	if ref == nil {
		return nil
	}
	return Required(path.Child("secretRef"), "name", ref.Name)
}

func validateCephFS(s *corev1.CephFSVolumeSource, path *field.Path) field.ErrorList {
	return requireAny(s.Monitors, path.Child("monitors"))
}

// ValidateCephFS returns the errors of the Ceph file system of a persistent volume.
func ValidateCephFS(s *corev1.CephFSPersistentVolumeSource, path *field.Path) field.ErrorList {
	return requireAny(s.Monitors, path.Child("monitors"))
}

// ValidateQuobyte returns the errors of a Quobyte volume.
func ValidateQuobyte(s *corev1.QuobyteVolumeSource, path *field.Path) field.ErrorList {
	const pairs = "must be a host:port pair or multiple pairs separated by commas"
	errs := Required(path, "volume", s.Volume)
	switch {
	case s.Registry == "":
		errs = append(errs, field.Required(path.Child("registry"), pairs))
	case len(s.Tenant) > 64:
		errs = append(errs, field.Required(path.Child("tenant"), "must be a UUID and may not exceed a length of 64 characters"))
	default:
		for pair := range strings.SplitSeq(s.Registry, ",") {
			if _, _, err := net.SplitHostPort(pair); err != nil {
				return append(errs, field.Invalid(path.Child("registry"), s.Registry, pairs))
			}
		}
	}
	return errs
}

// ValidateFC returns the errors of a Fibre Channel disk.
func ValidateFC(s *corev1.FCVolumeSource, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	names := path.Child("targetWWNs")
	switch {
	case len(s.TargetWWNs) == 0 && len(s.WWIDs) == 0:
		errs = append(errs, field.Required(names, "must specify either targetWWNs or wwids, but not both"))
	case len(s.TargetWWNs) != 0 && len(s.WWIDs) != 0:
		errs = append(errs, field.Invalid(names, s.TargetWWNs, "targetWWNs and wwids can not be specified simultaneously"))
	}
	if len(s.TargetWWNs) == 0 {
		return errs
	}
	if s.Lun == nil {
		return append(errs, field.Required(path.Child("lun"), "lun is required if targetWWNs is specified"))
	}
	return append(errs, validateLun(*s.Lun, path)...)
}

func validateFlex(s *corev1.FlexVolumeSource, path *field.Path) field.ErrorList {
	errs := Required(path, "driver", s.Driver)
	for _, key := range slices.Sorted(maps.Keys(s.Options)) {
		domain, _, _ := strings.Cut(key, "/")
		domain = "." + strings.ToLower(domain)
		if strings.HasSuffix(domain, ".kubernetes.io") || strings.HasSuffix(domain, ".k8s.io") {
			errs = append(errs, field.Invalid(path.Child("options").Key(key), key, "kubernetes.io and k8s.io namespaces are reserved"))
		}
	}
	return errs
}

// ValidateFlex returns the errors of the flex volume of a persistent volume.
func ValidateFlex(s *corev1.FlexPersistentVolumeSource, path *field.Path) field.ErrorList {
	return validateFlex(&corev1.FlexVolumeSource{Driver: s.Driver, Options: s.Options}, path)
}

func validateAzureFile(s *corev1.AzureFileVolumeSource, path *field.Path) field.ErrorList {
	return Required(path, "secretName", s.SecretName, "shareName", s.ShareName)
}

// ValidateAzureDisk returns the errors of an Azure disk.
func ValidateAzureDisk(s *corev1.AzureDiskVolumeSource, path *field.Path) field.ErrorList {
	errs := Required(path, "diskName", s.DiskName, "diskURI", s.DataDiskURI)
	if s.CachingMode != nil {
		errs = append(errs, rules.Supported(*s.CachingMode, path.Child("cachingMode"),
			corev1.AzureDataDiskCachingNone, corev1.AzureDataDiskCachingReadOnly, corev1.AzureDataDiskCachingReadWrite)...)
	}
	if s.Kind == nil {
		return errs
	}
	errs = append(errs, rules.Supported(*s.Kind, path.Child("kind"), corev1.AzureDedicatedBlobDisk, corev1.AzureManagedDisk, corev1.AzureSharedBlobDisk)...)
	start, form := "https://", "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd"
	if *s.Kind == corev1.AzureManagedDisk {
		start, form = "/subscriptions/", "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}"
	}
	if !strings.HasPrefix(s.DataDiskURI, start) {
		errs = append(errs, field.NotSupported(path.Child("diskURI"), s.DataDiskURI, []string{form}))
	}
	return errs
}

// ValidateVsphere returns the errors of a vSphere disk.
func ValidateVsphere(s *corev1.VsphereVirtualDiskVolumeSource, path *field.Path) field.ErrorList {
	return Required(path, "volumePath", s.VolumePath)
}

// ValidatePhoton returns the errors of a Photon disk.
func ValidatePhoton(s *corev1.PhotonPersistentDiskVolumeSource, path *field.Path) field.ErrorList {
	return Required(path, "pdID", s.PdID)
}

// ValidatePortworx returns the errors of a Portworx volume.
func ValidatePortworx(s *corev1.PortworxVolumeSource, path *field.Path) field.ErrorList {
	return Required(path, "volumeID", s.VolumeID)
}

func validateScaleIO(s *corev1.ScaleIOVolumeSource, path *field.Path) field.ErrorList {
	return Required(path, "gateway", s.Gateway, "system", s.System, "volumeName", s.VolumeName)
}

// ValidateStorageOS returns the errors of the names of a StorageOS volume.
func ValidateStorageOS(name, namespace string, path *field.Path) field.ErrorList {
	errs := Required(path, "volumeName", name)
	if name != "" {
		errs = append(errs, rules.DNSLabel(name, path.Child("volumeName"))...)
	}
	if namespace != "" {
		errs = append(errs, rules.DNSLabel(namespace, path.Child("volumeNamespace"))...)
	}
	return errs
}

func validateStorageOS(s *corev1.StorageOSVolumeSource, path *field.Path) field.ErrorList {
	return append(ValidateStorageOS(s.VolumeName, s.VolumeNamespace, path), requireSecretName(s.SecretRef, path)...)
}

// maxDriverName is the most bytes of the name of a CSI driver.
const maxDriverName = 63

// ValidateDriverName returns the errors of the name of a CSI driver.
func ValidateDriverName(name string, path *field.Path) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	var errs field.ErrorList
	if len(name) > maxDriverName {
		errs = append(errs, field.TooLong(path, "", maxDriverName))
	}
	return append(errs, rules.Invalid(path, name, validation.IsDNS1123Subdomain(strings.ToLower(name)))...)
}

func validateCSI(s *corev1.CSIVolumeSource, path *field.Path) field.ErrorList {
	errs := ValidateDriverName(s.Driver, path.Child("driver"))
	if ref := s.NodePublishSecretRef; ref != nil {
		errs = append(errs, Required(path.Child("nodePublishSecretRef"), "name", ref.Name)...)
		if ref.Name != "" {
			errs = append(errs, rules.Subdomain(ref.Name, path.Child("name"))...) // as upstream
		}
	}
	return errs
}
