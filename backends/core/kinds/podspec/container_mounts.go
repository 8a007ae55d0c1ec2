package podspec

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico/backends/core/kinds/rules"
)

// validateMounts returns the errors of the volume mounts of a container. As in kube-apiserver,
// some errors do not name the mount.
func validateMounts(c *corev1.Container, volumes map[string]*corev1.Volume, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	devices, seen := map[string]string{}, sets.New[string]()
	for _, d := range c.VolumeDevices {
		devices[d.Name] = d.DevicePath
	}
	paths := sets.New(slices.Collect(maps.Values(devices))...)
	for i, m := range c.VolumeMounts {
		at := path.Index(i)
		name, mountPath := at.Child("name"), at.Child("mountPath")
		if m.Name == "" {
			errs = append(errs, field.Required(name, ""))
		}
		volume := volumes[m.Name]
		if volume == nil {
			errs = append(errs, field.NotFound(name, m.Name))
		}
		if m.MountPath == "" {
			errs = append(errs, field.Required(mountPath, ""))
		}
		if seen.Has(m.MountPath) {
			errs = append(errs, field.Invalid(mountPath, m.MountPath, "must be unique"))
		}
		seen.Insert(m.MountPath)
		if _, ok := devices[m.Name]; ok {
			errs = append(errs, field.Invalid(name, m.Name, "must not already exist in volumeDevices"))
		}
		if paths.Has(m.MountPath) {
			errs = append(errs, field.Invalid(mountPath, m.MountPath, "must not already exist as a path in volumeDevices"))
		}
		if m.SubPath != "" && m.SubPathExpr != "" {
			errs = append(errs, field.Invalid(at.Child("subPathExpr"), m.SubPathExpr, "subPathExpr and subPath are mutually exclusive"))
		}
		errs = append(errs, rules.RelativePath(m.SubPath, path.Child("subPath"))...)
		errs = append(errs, rules.RelativePath(m.SubPathExpr, path.Child("subPathExpr"))...)
		errs = append(errs, validatePropagation(c, &m, path)...)
		errs = append(errs, validateBindOptions(m.BindMountOptions, volume, at.Child("bindMountOptions"))...)
	}
	return errs
}

// validatePropagation returns the errors of how mounts below a mount are seen. path is that of
// all mounts.
func validatePropagation(c *corev1.Container, m *corev1.VolumeMount, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if p := m.MountPropagation; p != nil {
		at := path.Child("mountPropagation")
		errs = append(errs, rules.Supported(*p, at, corev1.MountPropagationBidirectional, corev1.MountPropagationHostToContainer, corev1.MountPropagationNone)...)
		s := c.SecurityContext
		if privileged := s != nil && s.Privileged != nil && *s.Privileged; *p == corev1.MountPropagationBidirectional && !privileged {
			errs = append(errs, field.Forbidden(at, "Bidirectional mount propagation is available only to privileged containers"))
		}
	}
	if p := m.RecursiveReadOnly; p != nil {
		at := path.Child("recursiveReadOnly")
		wrong := rules.Supported(*p, at, corev1.RecursiveReadOnlyDisabled, corev1.RecursiveReadOnlyEnabled, corev1.RecursiveReadOnlyIfPossible)
		errs = append(errs, wrong...)
		if len(wrong) > 0 || *p == corev1.RecursiveReadOnlyDisabled {
			return errs
		}
		if !m.ReadOnly {
			errs = append(errs, field.Forbidden(at, "may only be specified when readOnly is true"))
		}
		if m.MountPropagation != nil && *m.MountPropagation != corev1.MountPropagationNone {
			errs = append(errs, field.Forbidden(at, "may only be specified when mountPropagation is None or not specified"))
		}
	}
	return errs
}

func validateBindOptions(options []string, volume *corev1.Volume, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := sets.New[string]()
	for i, o := range options {
		errs = append(errs, rules.Supported(o, path.Index(i), string(corev1.BindMountOptionNoDev), string(corev1.BindMountOptionNoExec), string(corev1.BindMountOptionNoSUID))...)
		if seen.Has(o) {
			errs = append(errs, field.Duplicate(path.Index(i), o))
		}
		seen.Insert(o)
	}
	if len(options) > 0 && volume != nil && volume.Image != nil {
		errs = append(errs, field.Invalid(path, options, "bindMountOptions may not be used with image volumes"))
	}
	return errs
}

// validateDevices returns the errors of the block devices of a container.
func validateDevices(c *corev1.Container, volumes map[string]*corev1.Volume, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	mounts := map[string]string{}
	for _, m := range c.VolumeMounts {
		mounts[m.Name] = m.MountPath
	}
	mountPaths := sets.New(slices.Collect(maps.Values(mounts))...)
	names, paths := sets.New[string](), sets.New[string]()
	for i, d := range c.VolumeDevices {
		name, devicePath := path.Index(i).Child("name"), path.Index(i).Child("devicePath")
		_, mounted := mounts[d.Name]
		volume := volumes[d.Name]
		if d.Name == "" {
			errs = append(errs, field.Required(name, ""))
		}
		if volume == nil {
			errs = append(errs, field.NotFound(name, d.Name))
		}
		if d.DevicePath == "" {
			errs = append(errs, field.Required(devicePath, ""))
		}
		backsteps := len(rules.NoParent(d.DevicePath, devicePath)) > 0
		for _, c := range []struct {
			wrong   bool
			at      *field.Path
			value   string
			message string
		}{
			{names.Has(d.Name), name, d.Name, "must be unique"},
			{volume != nil && volume.PersistentVolumeClaim == nil && volume.Ephemeral == nil, name, d.Name,
				"can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode"},
			{mounted, name, d.Name, "must not already exist in volumeMounts"},
			{paths.Has(d.DevicePath), devicePath, d.DevicePath, "must be unique"},
			{backsteps, devicePath, d.DevicePath, "can not contain backsteps ('..')"},
			{mountPaths.Has(d.DevicePath), devicePath, d.DevicePath, "must not already exist as a path in volumeMounts"},
		} {
			if c.wrong {
				errs = append(errs, field.Invalid(c.at, c.value, c.message))
			}
		}
		if !backsteps {
			paths.Insert(d.DevicePath)
		}
		if d.Name != "" {
			names.Insert(d.Name)
		}
	}
	return errs
}
