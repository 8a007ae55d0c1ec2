package rest

import (
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

func TestCheckValues(t *testing.T) {
	for name, test := range map[string]struct {
		data string
		ok   bool
	}{
		"nothing":              {"", true},
		"as many as there may": {"[" + strings.Repeat("{},", maxValues) + "{}]", true},
		"more":                 {"[" + strings.Repeat("{},", maxValues+1) + "{}]", false},
		"members":              {"{" + strings.Repeat(`"a":0,`, maxValues+1) + `"b":1}`, false},
		"text":                 {`{"a":"` + strings.Repeat(`\",{`, maxValues+1) + `"}`, true},
		"after text":           {`["\\",` + strings.Repeat("0,", maxValues+1) + `0]`, false},
		"no JSON":              {strings.Repeat(`\`, 3) + strings.Repeat(`"`, maxValues) + `,\`, true},
	} {
		if err := checkValues([]byte(test.data)); (err == nil) != test.ok || !test.ok && !apierrors.IsRequestEntityTooLargeError(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
