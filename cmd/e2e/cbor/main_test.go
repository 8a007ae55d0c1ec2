// Package cbor has no code: its tests run clients that prefer CBOR against an installation with
// the feature gate CBORServingAndStorage. The gates of client-go are those of the process, so
// that its other tests are in other packages. The installation also has --allow-privileged=false.
//
// Runs in: tests.
package cbor

import (
	"os"
	"testing"

	"k8s.io/client-go/features"

	"portico/cmd/e2e"
)

// preferring are the feature gates of client-go with CBOR.
type preferring struct{ features.Gates }

func (g preferring) Enabled(key features.Feature) bool {
	return key == features.ClientsAllowCBOR || key == features.ClientsPreferCBOR || g.Gates.Enabled(key)
}

func TestMain(m *testing.M) {
	features.ReplaceFeatureGates(preferring{features.FeatureGates()})
	os.Exit(e2e.MainUnlessShort(m, "--feature-gates=CBORServingAndStorage=true", "--allow-privileged=false"))
}
