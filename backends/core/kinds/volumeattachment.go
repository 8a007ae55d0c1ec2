package kinds

import (
	"math"
	"unicode/utf8"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"portico/backends/core/kinds/podspec"
	"portico/backends/core/kinds/rules"
	"portico/resource/rest"
)

const (
	// maxAttachmentMetadata and maxVolumeError bound the metadata and the message of an error
	// of an attachment, in bytes.
	maxAttachmentMetadata = 256 << 10
	maxVolumeError        = 1024
	// maxAttacher bounds the name of the driver, in characters.
	maxAttacher = 63
)

// volumeAttachments is the row of storage.k8s.io/v1 VolumeAttachment.
func volumeAttachments() *rest.Kind {
	type attachment = storagev1.VolumeAttachment
	return &rest.Kind{
		Info: storageInfo("volumeattachments", "VolumeAttachment"),
		Strategy: rest.Strategy{
			Default: onDefault(func(a *attachment) {
				if spec := a.Spec.Source.InlineVolumeSpec; spec != nil {
					defaultVolumeSpec(spec)
				}
			}),
			PrepareCreate:  onCreate(func(a *attachment) { a.Status = storagev1.VolumeAttachmentStatus{} }),
			PrepareUpdate:  onUpdate(func(a, old *attachment) { old.Status.DeepCopyInto(&a.Status) }),
			Validate:       check(validateNewAttachment),
			ValidateUpdate: checkUpdate(validateAttachmentUpdate),
		},
		Subresources: []rest.Subresource{{Name: "status", Strategy: &rest.Strategy{
			Resets: []string{"metadata", "spec"},
			PrepareUpdate: onUpdate(func(a, old *attachment) {
				old.Spec.DeepCopyInto(&a.Spec)
				metav1.ResetObjectMetaForStatus(&a.ObjectMeta, &old.ObjectMeta)
			}),
			ValidateUpdate: checkUpdate(validateAttachmentUpdate),
		}}},
		Columns: []metav1.TableColumnDefinition{
			nameColumn(),
			{Name: "Attacher", Type: "string", Format: "name", Description: "The driver that attaches the volume."},
			column("PV", "string", "The volume."),
			column("Node", "string", "The node that the volume is attached to."),
			column("Attached", "boolean", "Whether the volume is attached."),
			ageColumn(),
		},
		Cells: cells(func(a *attachment) []any {
			return []any{a.Name, a.Spec.Attacher, ptr.Deref(a.Spec.Source.PersistentVolumeName, ""), a.Spec.NodeName, a.Status.Attached, age(a.CreationTimestamp)}
		}),
		ReturnDeleted: true,
	}
}

// validateNewAttachment has other messages about the driver than updates.
func validateNewAttachment(a *storagev1.VolumeAttachment) field.ErrorList {
	name, path := a.Spec.Attacher, field.NewPath("spec", "attacher")
	var errs field.ErrorList
	if name == "" {
		errs = append(errs, field.Required(path, ""))
	} else {
		if utf8.RuneCountInString(name) > maxAttacher {
			errs = append(errs, field.TooLongCharacters(path, "", maxAttacher))
		}
		//lint:ignore SA1019 the rule of kube-apiserver
		errs = append(errs, rules.Invalid(path, name, content.IsDNS1123SubdomainCaseless(name))...)
	}
	return append(errs, validateAttachment(a)...)
}

// validateAttachment validates everything but the driver.
func validateAttachment(a *storagev1.VolumeAttachment) field.ErrorList {
	spec, path := &a.Spec, field.NewPath("spec")
	errs := validateAttachmentSource(&spec.Source, path.Child("source"))
	errs = append(errs, rules.Subdomain(spec.NodeName, path.Child("nodeName"))...)
	status := field.NewPath("status")
	if mapBytes(a.Status.AttachmentMetadata) > maxAttachmentMetadata {
		errs = append(errs, field.TooLong(status.Child("attachmentMetadata"), "", maxAttachmentMetadata))
	}
	errs = append(errs, validateVolumeError(a.Status.AttachError, status.Child("attachError"))...)
	return append(errs, validateVolumeError(a.Status.DetachError, status.Child("detachError"))...)
}

func validateAttachmentSource(s *storagev1.VolumeAttachmentSource, path *field.Path) field.ErrorList {
	const one = "must specify exactly one of inlineVolumeSpec and persistentVolumeName"
	var errs field.ErrorList
	name, inline := s.PersistentVolumeName, s.InlineVolumeSpec
	switch {
	case name == nil && inline == nil:
		return field.ErrorList{field.Required(path, one)}
	case name != nil && inline != nil:
		errs = append(errs, field.Forbidden(path, one))
	case inline != nil:
		return validateInlineVolume(inline, path.Child("inlineVolumeSpec"))
	case *name == "":
		errs = append(errs, field.Required(path.Child("persistentVolumeName"), "must specify non empty persistentVolumeName"))
	}
	return append(errs, rules.Subdomain(*name, path.Child("persistentVolumeName"))...)
}

func validateVolumeError(e *storagev1.VolumeError, path *field.Path) field.ErrorList {
	if e == nil {
		return nil
	}
	var errs field.ErrorList
	if len(e.Message) > maxVolumeError {
		errs = append(errs, field.TooLong(path.Child("message"), "", maxVolumeError))
	}
	if code := e.ErrorCode; code != nil && *code < 0 {
		errs = append(errs, field.Invalid(path.Child("errorCode"), *code, validation.InclusiveRangeError(0, math.MaxInt32)))
	}
	return errs
}

func validateAttachmentUpdate(a, old *storagev1.VolumeAttachment) field.ErrorList {
	errs := append(podspec.ValidateDriverName(a.Spec.Attacher, field.NewPath("spec", "attacher")), validateAttachment(a)...)
	return append(errs, rules.Immutable(a.Spec, old.Spec, field.NewPath("spec"))...)
}
