package portico

import (
	"fmt"
	"maps"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/pflag"
	basecompatibility "k8s.io/component-base/compatibility"
	"k8s.io/kubernetes/cmd/kube-apiserver/app/options"
	"k8s.io/kubernetes/test/utils/ktesting"
)

// processes are the processes of a server, in the order of their start.
var processes = []string{"core", "crd", "gateway"}

// Flags of kube-apiserver.
var (
	// setByCommands are flags for which commands sets values of its own.
	setByCommands = []string{
		"bind-address", "cert-dir", "secure-port", "tls-cert-file", "tls-private-key-file", "client-ca-file", "token-auth-file",
		"etcd-prefix", "advertise-address", "authorization-mode", "runtime-config", "tls-sni-cert-key", "feature-gates", "emulated-version",
		"min-compatibility-version", "service-account-signing-key-file", "service-account-key-file",
	}
	// ignored are flags without an effect that clients see, and switches of what Portico does always or never.
	ignored = []string{
		"enable-aggregator-routing", "endpoint-reconciler-type", "external-hostname", "livez-grace-period", "storage-media-type",
		"watch-cache", "watch-cache-sizes", "default-watch-cache-size", "watch-progress-notify-interval", "delete-collection-workers",
		"aggregator-reject-forwarding-redirect", "enable-garbage-collector", "emulation-forward-compatible", "runtime-config-emulation-forward-compatible",
		"kubelet-timeout", "etcd-compaction-interval", "etcd-count-metric-poll-period", "etcd-db-metric-poll-interval", "etcd-healthcheck-timeout",
		"etcd-readycheck-timeout", "lease-reuse-duration-seconds", "peer-ca-file", "logging-format", "vmodule",
	}
	// gatewayOnly are the beginnings of the names of flags that only the gateway gets.
	gatewayOnly = []string{"audit-", "requestheader-", "tls-", "proxy-client-", "profiling"}
)

// flags returns the flags that set opts, by name. Flags with the values of a kube-apiserver without flags are left out.
func flags(opts *options.ServerRunOptions) map[string][]string {
	fresh := options.NewServerRunOptions()
	fresh.GenericServerRunOptions.ComponentGlobalsRegistry = basecompatibility.NewComponentGlobalsRegistry()
	before := map[string]string{}
	for _, set := range fresh.Flags().FlagSets {
		set.VisitAll(func(f *pflag.Flag) { before[f.Name] = f.Value.String() })
	}
	given := map[string][]string{}
	for _, set := range opts.Flags().FlagSets {
		set.VisitAll(func(f *pflag.Flag) {
			if value := f.Value.String(); value != before[f.Name] {
				given[f.Name] = values(f)
			}
		})
	}
	return given
}

// values returns the values with which a flag is given.
func values(f *pflag.Flag) []string {
	list, ok := f.Value.(pflag.SliceValue)
	switch {
	case ok && f.Value.Type() == "stringArray":
		return list.GetSlice()
	case ok:
		return []string{strings.Join(list.GetSlice(), ",")}
	case f.Value.Type() == "stringSlice": // in a type that has no more than the text
		return []string{strings.Trim(f.Value.String(), "[]")}
	}
	return []string{f.Value.String()}
}

// passOn adds flags to the arguments of each process that has a flag of the name. A test with a flag that no process has is
// skipped.
func passOn(t ktesting.TB, given map[string][]string, to map[string][]string) error {
	known, err := known()
	if err != nil {
		return err
	}
	var lacks []string
	for _, flag := range slices.Sorted(maps.Keys(given)) {
		if slices.Contains(setByCommands, flag) || slices.Contains(ignored, flag) {
			continue
		}
		has := false
		for _, name := range processes {
			if !known[name][flag] || name != "gateway" && slices.ContainsFunc(gatewayOnly, func(prefix string) bool { return strings.HasPrefix(flag, prefix) }) {
				continue
			}
			has = true
			for _, value := range given[flag] {
				to[name] = append(to[name], "--"+flag+"="+value)
			}
		}
		if !has {
			lacks = append(lacks, "--"+flag)
		}
	}
	if len(lacks) > 0 {
		t.Skipf("Portico has no flag %s", strings.Join(lacks, ", "))
	}
	return nil
}

// known returns the flags of each process, by its name.
var known = sync.OnceValues(func() (map[string]map[string]bool, error) {
	all := map[string]map[string]bool{}
	for _, name := range processes {
		out, err := exec.Command(Program(), name, "--help-all").CombinedOutput()
		if err != nil {
			return nil, fmt.Errorf("read the flags of portico %s: %w: %s", name, err, out)
		}
		all[name] = map[string]bool{}
		for _, m := range regexp.MustCompile(`(?m)^ {2,6}(?:-\w, )?--([a-z0-9-]+)`).FindAllSubmatch(out, -1) {
			all[name][string(m[1])] = true
		}
	}
	return all, nil
})
