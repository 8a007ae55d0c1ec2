package upstream

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Admit refuses the gateway's own id and too many gateways from every client, and
// removes ids from clients that are no front proxies; add appends the gateway's id.
func TestVia(t *testing.T) {
	t.Parallel()
	v := NewVia()
	seven := strings.TrimSuffix(strings.Repeat("g, ", maxGateways-1), ", ")
	for name, c := range map[string]struct {
		received   []string
		frontProxy bool
		code       int
		sent       string
	}{
		"no header":                         {nil, false, 0, v.id},
		"other gateways, by a front proxy":  {[]string{"a, b", "c"}, true, 0, "a, b, c, " + v.id},
		"other gateways, by another client": {[]string{"a, b", "c"}, false, 0, "-, -, -, " + v.id},
		"own id, by a front proxy":          {[]string{v.id}, true, 508, ""},
		"own id, by another client":         {[]string{"a, " + v.id}, false, 508, ""},
		"own id in a second line":           {[]string{"a", v.id + "\t"}, true, 508, ""},
		"own id among empty entries":        {[]string{",," + v.id + ","}, true, 508, ""},
		"part of the own id":                {[]string{v.id[1:]}, true, 0, v.id[1:] + ", " + v.id},
		"the most gateways":                 {[]string{seven}, true, 0, seven + ", " + v.id},
		"one gateway more":                  {[]string{seven + ", g"}, true, 508, ""},
		"one gateway more, without ids":     {[]string{seven + ", g"}, false, 508, ""},
		"very many":                         {[]string{strings.Repeat(",", 1<<19)}, true, 508, ""},
	} {
		h := http.Header{}
		if c.received != nil {
			h[HeaderVia] = c.received
		}
		err := v.Admit(h, func() bool { return c.frontProxy })
		if c.code != 0 {
			if status, ok := err.(apierrors.APIStatus); !ok || int(status.Status().Code) != c.code {
				t.Errorf("%s: %v, want the code %d", name, err, c.code)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if v.add(h); !slices.Equal(h[HeaderVia], []string{c.sent}) {
			t.Errorf("%s: sent on as %q, want %q", name, h[HeaderVia], c.sent)
		}
	}
	if NewVia().id == v.id {
		t.Error("two gateways have one id")
	}
}
