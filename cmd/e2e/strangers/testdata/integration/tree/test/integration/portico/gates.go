package portico

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/features"
	"k8s.io/apiserver/pkg/util/compatibility"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	clientfeatures "k8s.io/client-go/features"
	"k8s.io/component-base/featuregate"
	"k8s.io/kubernetes/test/utils/ktesting"
)

// gatesOf returns the values of --feature-gates. A test that has other gates, or emulates another version, is skipped.
func gatesOf(t ktesting.TB) (on []string) {
	t.Helper()
	gate := utilfeature.DefaultMutableFeatureGate
	present := compatibility.DefaultKubeEffectiveVersionForTest()
	if v := gate.EmulationVersion(); !v.EqualTo(present.EmulationVersion()) {
		t.Skipf("emulates version %v", v)
	}
	ofClients := clientGates{}
	if err := clientfeatures.AddVersionedFeaturesToExistingFeatureGates(ofClients); err != nil {
		t.Fatalf("read the feature gates of client-go: %v", err)
	}
	var others []string
	for feature, spec := range gate.GetAll() {
		enabled := gate.Enabled(feature)
		switch {
		case ofClients[string(feature)]:
		case slices.Contains([]featuregate.Feature{features.CBORServingAndStorage, "KMSv1"}, feature):
			on = append(on, fmt.Sprintf("%s=%v", feature, enabled))
		case enabled != spec.Default:
			others = append(others, fmt.Sprintf("%s=%v", feature, enabled))
		}
	}
	// With AllAlpha or AllBeta a test does not depend on single gates.
	all := gate.Enabled("AllAlpha") || gate.Enabled("AllBeta")
	if len(others) > 0 && !all {
		slices.Sort(others)
		t.Skipf("has the feature gate %s", strings.Join(others, ", "))
	}
	return on
}

// clientGates has the names of the gates of client-go, which no server has.
type clientGates map[string]bool

// AddVersioned implements the registry of client-go.
func (c clientGates) AddVersioned(in map[clientfeatures.Feature]clientfeatures.VersionedSpecs) error {
	for feature := range in {
		c[string(feature)] = true
	}
	return nil
}
