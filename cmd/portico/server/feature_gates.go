package server

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
)

// featureGates is the value of --feature-gates: what each gate switches, by name. Gates of
// kube-apiserver without an effect here are not accepted.
type featureGates map[string]*bool

// AddFeatureGates adds --feature-gates. The defaults are those of kube-apiserver.
func AddFeatureGates(fs *pflag.FlagSet, cbor, kmsV1 *bool) {
	fs.Var(featureGates{"CBORServingAndStorage": cbor, "KMSv1": kmsV1}, "feature-gates", "comma-separated `gates` as NAME=true or false. "+
		"There are: CBORServingAndStorage (alpha, default false): requests, responses and watches in CBOR; "+
		"KMSv1 (deprecated, default false): KMS plugins of API version v1 in --encryption-provider-config")
}

// Set implements pflag.Value. As for kube-apiserver, kube: may precede a name.
func (g featureGates) Set(text string) error {
	for part := range strings.SplitSeq(text, ",") {
		if part == "" {
			continue
		}
		name, value, _ := strings.Cut(part, "=")
		name = strings.TrimPrefix(strings.TrimSpace(name), "kube:")
		gate, known := g[name]
		if !known {
			return fmt.Errorf("feature gate %q is unknown or has no effect here; there are: %s", name, strings.Join(slices.Sorted(maps.Keys(g)), ", "))
		}
		on, err := strconv.ParseBool(strings.TrimSpace(value))
		if err != nil {
			return fmt.Errorf("feature gate %s: must be true or false, not %q", name, value)
		}
		*gate = on
	}
	return nil
}

// String implements pflag.Value. It returns the gates that are on.
func (g featureGates) String() string {
	var on []string
	for name, gate := range g {
		if *gate {
			on = append(on, name+"=true")
		}
	}
	slices.Sort(on)
	return strings.Join(on, ",")
}

// Type implements pflag.Value.
func (featureGates) Type() string { return "gates" }
