package handlers

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico/resource/rest"
	"portico/resource/rest/resttest"
)

// The response of a value that fails many rules, each error of which contains it, is bounded.
func TestTextOfErrorsIsBounded(t *testing.T) {
	t.Parallel()
	w := &write{res: &rest.Resource{Kind: resttest.ConfigMaps()}}
	value := strings.Repeat("x", 100_000)
	var errs field.ErrorList
	for i := range 500 {
		errs = append(errs, field.Invalid(field.NewPath("a"), value, fmt.Sprint("rule ", i)))
	}
	err := w.invalid("a", errs)
	var status apierrors.APIStatus
	if !errors.As(err, &status) || len(err.Error()) > 2*maxErrorText || !strings.Contains(err.Error(), "further errors are omitted") || len(status.Status().Details.Causes) < 5 {
		t.Errorf("%d bytes: %.200s", len(err.Error()), err)
	}
	if err := w.invalid("a", errs[:1]); !strings.Contains(err.Error(), value) {
		t.Errorf("one error: %.200s", err)
	}
}
