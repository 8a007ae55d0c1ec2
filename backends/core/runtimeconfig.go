package core

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico/backends/core/kinds"
	"portico/resource/rest"
)

// versionPatterns are the switches of --runtime-config for many versions, in the order in which
// they apply.
var versionPatterns = []struct {
	name    string
	pattern *regexp.Regexp
}{
	{"api/all", regexp.MustCompile(``)},
	{"api/ga", regexp.MustCompile(`^v\d+$`)},
	{"api/beta", regexp.MustCompile(`^v\d+beta\d+$`)},
	{"api/alpha", regexp.MustCompile(`^v\d+alpha\d+$`)},
}

// needed are the resources that the gateway and the CRD server read: no installation works
// without them.
var needed = []schema.GroupResource{
	{Resource: "configmaps"}, {Resource: "namespaces"}, {Resource: "secrets"}, {Resource: "serviceaccounts"}, {Resource: "services"},
	{Group: "discovery.k8s.io", Resource: "endpointslices"},
	{Group: "admissionregistration.k8s.io", Resource: "validatingwebhookconfigurations"},
	{Group: "admissionregistration.k8s.io", Resource: "mutatingwebhookconfigurations"},
	{Group: "admissionregistration.k8s.io", Resource: "validatingadmissionpolicies"},
	{Group: "admissionregistration.k8s.io", Resource: "validatingadmissionpolicybindings"},
	{Group: "admissionregistration.k8s.io", Resource: "mutatingadmissionpolicies"},
	{Group: "admissionregistration.k8s.io", Resource: "mutatingadmissionpolicybindings"},
}

// shardGroups are the groups that a core server can have without v1: no other kind of the core
// server needs to read them in its own process.
var shardGroups = []string{"apps", "autoscaling", "batch", "coordination.k8s.io"}

// CheckRuntimeConfig checks the items of Config.RuntimeConfig of a core server that is the only
// one of its installation.
func CheckRuntimeConfig(items []string) error {
	if len(items) == 0 {
		return nil
	}
	served, err := servedKinds(kinds.All(kinds.Config{}), items)
	if err == nil && !slices.ContainsFunc(served, func(k *rest.Kind) bool { return k.Resource == "namespaces" }) {
		return errors.New("v1 cannot be switched off: no other core server has it")
	}
	return err
}

// switches are the parsed items of --runtime-config: what is served of the rows. Those of
// resources override those of versions.
type switches struct {
	versions  map[schema.GroupVersion]bool
	resources map[schema.GroupVersionResource]bool
}

func (s *switches) serves(r schema.GroupVersionResource) bool {
	if on, ok := s.resources[r]; ok {
		return on
	}
	return s.versions[r.GroupVersion()]
}

// servedKinds returns the kinds that are served by the items of --runtime-config: the rows
// themselves, or copies without the versions that are switched off.
func servedKinds(all []*rest.Kind, items []string) ([]*rest.Kind, error) {
	s, err := parseSwitches(all, items)
	if err != nil {
		return nil, err
	}
	var out []*rest.Kind
	left := slices.Clone(needed)
	for _, k := range all {
		versions := slices.DeleteFunc(slices.Clone(k.Versions), func(v string) bool { return !s.serves(k.GVR(v)) })
		if len(versions) == 0 {
			continue
		}
		if len(versions) < len(k.Versions) {
			part := *k
			part.StorageVersion, part.Versions = k.Storage(), versions
			k = &part
		}
		out = append(out, k)
		left = slices.DeleteFunc(left, func(r schema.GroupResource) bool { return r == k.GroupResource() })
	}
	if slices.ContainsFunc(left, func(r schema.GroupResource) bool { return r.Resource == "namespaces" }) {
		return out, checkShard(out)
	}
	if len(left) > 0 {
		return nil, fmt.Errorf("%s cannot be switched off: the gateway and the CRD server need it", left[0])
	}
	return out, nil
}

// checkShard checks the kinds of a server without namespaces.
func checkShard(served []*rest.Kind) error {
	if len(served) == 0 {
		return fmt.Errorf("nothing is left: switch on a group/version of %s, or v1 with the groups that need it", strings.Join(shardGroups, ", "))
	}
	for _, k := range served {
		if !slices.Contains(shardGroups, k.Group) {
			return fmt.Errorf("%s needs v1 in the same process: without namespaces a core server has groups of %s only",
				k.GroupResource(), strings.Join(shardGroups, ", "))
		}
	}
	return nil
}

// parseSwitches reads the items: the later of two with one key holds, as in kube-apiserver.
// Versions that are not stable are off by default.
func parseSwitches(all []*rest.Kind, items []string) (*switches, error) {
	values := map[string]string{}
	for _, item := range items {
		key, value, _ := strings.Cut(item, "=")
		values[strings.TrimSpace(key)] = strings.TrimSpace(value)
	}
	s := &switches{versions: map[schema.GroupVersion]bool{}, resources: map[schema.GroupVersionResource]bool{}}
	known := map[schema.GroupVersionResource]bool{}
	for _, k := range all {
		for _, v := range k.Versions {
			s.versions[schema.GroupVersion{Group: k.Group, Version: v}] = versionPatterns[1].pattern.MatchString(v)
			known[k.GVR(v)] = true
		}
	}
	for _, p := range versionPatterns {
		value, ok := values[p.name]
		if !ok {
			continue
		}
		if value != "true" && value != "false" {
			return nil, fmt.Errorf("invalid value %s=%s: must be true or false", p.name, value)
		}
		for gv := range s.versions {
			if p.pattern.MatchString(gv.Version) {
				s.versions[gv] = value == "true"
			}
		}
		delete(values, p.name)
	}
	for _, key := range slices.Sorted(maps.Keys(values)) {
		if err := s.set(key, values[key], known); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// set applies an item for a version or a resource.
func (s *switches) set(key, value string, known map[schema.GroupVersionResource]bool) error {
	on := true
	if value != "" {
		var err error
		if on, err = strconv.ParseBool(value); err != nil {
			return fmt.Errorf("invalid value of %s: %s: must be true or false", key, value)
		}
	}
	parts := strings.Split(key, "/")
	if len(parts) == 1 {
		parts = []string{"", parts[0]} // v1 is the core group
	}
	gv := schema.GroupVersion{Group: parts[0], Version: parts[1]}
	if _, ok := s.versions[gv]; !ok || len(parts) > 3 {
		return fmt.Errorf("unknown group/version %s: the core server has %s", key, strings.Join(s.names(), ", "))
	}
	if len(parts) == 2 {
		s.versions[gv] = on
		return nil
	}
	r := gv.WithResource(parts[2])
	if !known[r] {
		return fmt.Errorf("unknown resource %s: the core server has no such resource in %s; names are plural and in lower case", key, gv)
	}
	s.resources[r] = on
	return nil
}

// names returns the group/versions that there are, in order.
func (s *switches) names() (out []string) {
	for gv := range s.versions {
		out = append(out, gv.String())
	}
	slices.Sort(out)
	return out
}
