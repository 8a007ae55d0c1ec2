package upstream

import (
	"slices"
	"testing"

	"k8s.io/kubernetes/pkg/kubeapiserver/options"

	"portico/backends/core/plugins"
)

// The core server has the plugins of kube-apiserver in its order, and the same ones on by default.
func TestPluginsAreThoseOfKubeAPIServer(t *testing.T) {
	missing := []string{"ImagePolicyWebhook", "PodGroupProtection"} // backends/core/plugins/plugins.go has the reasons
	want := slices.DeleteFunc(slices.Clone(options.AllOrderedPlugins), func(name string) bool { return slices.Contains(missing, name) })
	if got := plugins.Names(); !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	off := options.DefaultOffAdmissionPlugins()
	for _, name := range plugins.Names() {
		if on := new(plugins.Options).Enables(name); on == off.Has(name) {
			t.Errorf("%s: on by default is %v", name, on)
		}
	}
}
