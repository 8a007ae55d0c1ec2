package resource

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// CauseResourceVersionTooLarge is the cause type that client-go's reflectors
// match to relist (k8s.io/apimachinery meta/v1 CauseTypeResourceVersionTooLarge).
const CauseResourceVersionTooLarge = metav1.CauseTypeResourceVersionTooLarge

// TooLargeRevision is the 504 for a resourceVersion in the future.
func TooLargeRevision(asked, current int64) *apierrors.StatusError {
	err := apierrors.NewTimeoutError(fmt.Sprintf("Too large resource version: %d, current: %d", asked, current), 1)
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{
		Type:    CauseResourceVersionTooLarge,
		Message: "Too large resource version",
	}}
	return err
}

// ExpiredWatch is the 410 for a watch from a revision that is no longer kept. oldest is the
// first revision that is; 0: unknown.
func ExpiredWatch(since, oldest int64) *apierrors.StatusError {
	if oldest == 0 {
		return apierrors.NewResourceExpired("The resourceVersion for the provided watch is too old.")
	}
	return apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %d (%d)", since, oldest))
}

// ExpiredList is the 410 for an exact list of a revision that is no longer kept.
func ExpiredList() *apierrors.StatusError {
	return apierrors.NewResourceExpired("The resourceVersion for the provided list is too old.")
}

// ExpiredContinue is the 410 for the continue token of a revision that is no longer kept.
// inconsistent is a token that continues at the latest revision.
func ExpiredContinue(inconsistent string) *apierrors.StatusError {
	err := apierrors.NewResourceExpired("The provided continue parameter is too old to display a consistent list result. " +
		"You can start a new list without the continue parameter, or use the continue token in this response to retrieve " +
		"the remainder of the results. Continuing with the provided token results in an inconsistent list - objects that " +
		"were created, modified, or deleted between the time the first chunk was returned and now may show up in the list.")
	err.ErrStatus.ListMeta.Continue = inconsistent
	return err
}

// Unavailable is a 503 with Retry-After; seconds may be 0 for none.
func Unavailable(message string, seconds int32) *apierrors.StatusError {
	err := apierrors.NewServiceUnavailable(message)
	if seconds > 0 {
		err.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: seconds}
	}
	return err
}

// MaxUnreadable bounds the errors of UnreadableList.
const MaxUnreadable = 100

// UnreadableList is the 500 for a list of a resource, given the errors of reading those of its
// objects that cannot be read. The message has the first error, the causes are those of all.
func UnreadableList(of schema.GroupResource, errs []error) *apierrors.StatusError {
	details := &metav1.StatusDetails{Group: of.Group, Kind: of.Resource, Name: "list"}
	for _, err := range errs {
		if d := AsStatus(err).Details; d != nil {
			details.Causes = append(details.Causes, d.Causes...)
		}
	}
	message := fmt.Sprintf("failed to read one or more %s from the storage: %v", of, errs[0])
	if len(errs) > 1 {
		message += fmt.Sprintf(" (and %d more)", len(errs)-1)
	}
	if len(errs) >= MaxUnreadable {
		details.Causes = append(details.Causes, metav1.StatusCause{Type: metav1.CauseTypeTooMany, Message: "too many errors, the list is truncated"})
	}
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusInternalServerError, Reason: metav1.StatusReasonStoreReadError,
		Message: message, Details: details,
	}}
}

// ReasonInsufficientStorage is the reason of InsufficientStorage. Kubernetes has no
// reason for the code.
const ReasonInsufficientStorage metav1.StatusReason = "InsufficientStorage"

// InsufficientStorage is the 507 (RFC 4918, 11.5) for a write that the storage has no space
// for. It has no Retry-After: the RFC forbids automatic retries.
func InsufficientStorage(message string) *apierrors.StatusError {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status:  metav1.StatusFailure,
		Code:    http.StatusInsufficientStorage,
		Reason:  ReasonInsufficientStorage,
		Message: message,
	}}
}

// UnsupportedMediaType is the 415 for a request body of a media type that is not among
// accepted.
func UnsupportedMediaType(accepted []string) *apierrors.StatusError {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure,
		Code:   http.StatusUnsupportedMediaType,
		Reason: metav1.StatusReasonUnsupportedMediaType,
		Message: "the body of the request was in an unknown format - accepted media types include: " +
			strings.Join(accepted, ", "),
	}}
}

// tooLargeError is an error that IsTooLarge recognizes.
type tooLargeError struct{ *apierrors.StatusError }

// TooLarge is the 500 without a reason for an object that is too large for the storage.
func TooLarge(message string) error {
	return &tooLargeError{&apierrors.StatusError{ErrStatus: metav1.Status{
		Status:  metav1.StatusFailure,
		Code:    http.StatusInternalServerError,
		Reason:  metav1.StatusReasonUnknown,
		Message: message,
	}}}
}

// IsTooLarge reports whether an error is TooLarge.
func IsTooLarge(err error) bool {
	var large *tooLargeError
	return errors.As(err, &large)
}

// maxStatusText bounds the message of a Status, and the sum of the messages of its causes, in
// bytes: many quote the request.
const maxStatusText = 512 << 10

// AsStatus returns err as a Status for a client. An error that is not a StatusError becomes a
// 500 with its text as message. Texts beyond maxStatusText are cut.
func AsStatus(err error) *metav1.Status {
	var s apierrors.APIStatus
	if errors.As(err, &s) {
		status := s.Status()
		return completeStatus(&status)
	}
	return completeStatus(&metav1.Status{
		Status:  metav1.StatusFailure,
		Code:    http.StatusInternalServerError,
		Message: err.Error(),
	})
}

func completeStatus(s *metav1.Status) *metav1.Status {
	s.Kind, s.APIVersion = "Status", "v1"
	if s.Status == "" {
		s.Status = metav1.StatusFailure
	}
	if s.Code == 0 {
		s.Code = http.StatusInternalServerError
	}
	s.Message = CutText(s.Message, maxStatusText)
	if s.Details != nil && len(s.Details.Causes) > 0 {
		s.Details = boundedDetails(s.Details)
	}
	return s
}

// boundedDetails returns the details with bounded causes. d may be shared and is not changed.
func boundedDetails(d *metav1.StatusDetails) *metav1.StatusDetails {
	size := 0
	for i := range d.Causes {
		size += len(d.Causes[i].Message)
	}
	if size <= maxStatusText {
		return d
	}
	bounded := *d
	bounded.Causes = slices.Clone(d.Causes)
	each := maxStatusText / len(d.Causes)
	for i := range bounded.Causes {
		bounded.Causes[i].Message = CutText(bounded.Causes[i].Message, each)
	}
	return &bounded
}

// CutText returns the text, or its first limit bytes and how many follow.
func CutText(text string, limit int) string {
	more := len(text) - limit
	if more <= 0 {
		return text
	}
	return fmt.Sprintf("%s... (%d bytes more)", strings.ToValidUTF8(text[:limit], ""), more)
}
