package resource

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// The texts of a Status are bounded; the error is not changed.
func TestStatusTextIsBounded(t *testing.T) {
	long := strings.Repeat("é", maxStatusText)
	invalid := apierrors.NewInvalid(schema.GroupKind{Kind: "X"}, "a", field.ErrorList{
		field.Invalid(field.NewPath("a"), long, "no"), field.Invalid(field.NewPath("b"), "short", "no"),
	})
	for name, err := range map[string]error{
		"error":   errors.New(long),
		"status":  apierrors.NewBadRequest(long),
		"wrapped": fmt.Errorf("write: %w", invalid),
	} {
		s := AsStatus(err)
		if len(s.Message) > maxStatusText+100 || !strings.HasSuffix(s.Message, " bytes more)") || !utf8.ValidString(s.Message) {
			t.Errorf("%s: a message of %d bytes that ends %s", name, len(s.Message), s.Message[len(s.Message)-20:])
		}
		if s.Details == nil || len(s.Details.Causes) == 0 {
			continue
		}
		if c := s.Details.Causes; len(c) != 2 || len(c[0].Message) > maxStatusText || c[1].Message != `Invalid value: "short": no` {
			t.Errorf("%s: %d causes, the first of %d bytes, then %s", name, len(c), len(c[0].Message), c[1].Message)
		}
	}
	if len(invalid.ErrStatus.Details.Causes[0].Message) <= len(long) {
		t.Error("the error itself was cut")
	}
	if got := AsStatus(errors.New(long[:maxStatusText])).Message; got != long[:maxStatusText] {
		t.Errorf("a text that may be was cut to %d bytes", len(got))
	}
}
