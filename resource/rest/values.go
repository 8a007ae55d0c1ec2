package rest

import (
	"bytes"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// maxValues is how many values JSON for a Go type may have, about: three bytes of
// it are a struct of some hundred bytes, so that three megabytes take a gigabyte.
// So many do not fit into what etcd stores of an object, if each has six bytes.
const maxValues = 250_000

// checkValues is the 413 for JSON of too many values. It need not be JSON: what is
// not says its decoder.
func checkValues(data []byte) error {
	// Most bodies have fewer signs than that altogether, in their strings, too.
	if bytes.Count(data, []byte(",")) <= maxValues {
		return nil
	}
	values, text := 0, false
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case text && c == '\\':
			i++
		case c == '"':
			text = !text
		case c == ',' && !text:
			values++
		}
	}
	if values > maxValues {
		return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("the body has more than %d values", maxValues))
	}
	return nil
}
