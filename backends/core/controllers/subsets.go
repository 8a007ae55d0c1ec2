package controllers

import (
	"bytes"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/dump"
)

// subsetsEqual compares subsets, but not the resourceVersions of pods.
var subsetsEqual = conversion.EqualitiesOrDie(func(a, b corev1.ObjectReference) bool {
	a.ResourceVersion, b.ResourceVersion = "", ""
	return a == b
})

// addressKey identifies an address.
type addressKey struct {
	ip  string
	uid types.UID
}

// portAddresses are the addresses of one port, and whether they are ready.
type portAddresses struct {
	port  *corev1.EndpointPort // nil: the addresses have no ports
	ready map[addressKey]bool
}

// repack returns subsets in the canonical form of kube-controller-manager: ports with the same
// addresses are in one subset. An address that is not ready in one subset is not ready.
func repack(subsets []corev1.EndpointSubset) []corev1.EndpointSubset {
	known := map[addressKey]corev1.EndpointAddress{}
	byPort := map[string]*portAddresses{}
	add := func(port *corev1.EndpointPort, list []corev1.EndpointAddress, ready bool) {
		name := ""
		if port != nil {
			name = dump.ForHash(*port)
		}
		p := byPort[name]
		if p == nil {
			p = &portAddresses{port: port, ready: map[addressKey]bool{}}
			byPort[name] = p
		}
		for _, a := range list {
			key := addressKey{ip: a.IP}
			if a.TargetRef != nil {
				key.uid = a.TargetRef.UID
			}
			if _, ok := known[key]; !ok {
				known[key] = a
			}
			was, ok := p.ready[key]
			p.ready[key] = ready && (was || !ok)
		}
	}
	for i := range subsets {
		s := &subsets[i]
		for j := range s.Ports {
			add(&s.Ports[j], s.Addresses, true)
			add(&s.Ports[j], s.NotReadyAddresses, false)
		}
		if len(s.Ports) == 0 {
			add(nil, s.Addresses, true)
			add(nil, s.NotReadyAddresses, false)
		}
	}
	return group(byPort, known)
}

// group makes one subset of ports with the same addresses, and sorts all.
func group(byPort map[string]*portAddresses, known map[addressKey]corev1.EndpointAddress) []corev1.EndpointSubset {
	bySet := map[string]*corev1.EndpointSubset{}
	for _, p := range byPort {
		var s corev1.EndpointSubset
		for key, ready := range p.ready {
			if ready {
				s.Addresses = append(s.Addresses, known[key])
			} else {
				s.NotReadyAddresses = append(s.NotReadyAddresses, known[key])
			}
		}
		slices.SortFunc(s.Addresses, compareAddresses)
		slices.SortFunc(s.NotReadyAddresses, compareAddresses)
		set := dump.ForHash(s)
		if bySet[set] == nil {
			bySet[set] = &s
		}
		if p.port != nil {
			bySet[set].Ports = append(bySet[set].Ports, *p.port)
		}
	}
	out := []corev1.EndpointSubset{}
	for _, s := range bySet {
		sortByHash(s.Ports)
		out = append(out, *s)
	}
	sortByHash(out)
	return out
}

func compareAddresses(a, b corev1.EndpointAddress) int {
	if c := strings.Compare(a.IP, b.IP); c != 0 {
		return c
	}
	uid := func(a corev1.EndpointAddress) string {
		if a.TargetRef == nil {
			return ""
		}
		return string(a.TargetRef.UID)
	}
	return strings.Compare(uid(a), uid(b))
}

// sortByHash sorts a list by the hashes that kube-controller-manager sorts by.
func sortByHash[T any](list []T) {
	slices.SortFunc(list, func(a, b T) int { return bytes.Compare(hashOf(a), hashOf(b)) })
}

func hashOf(v any) []byte {
	h := fnv.New128a()
	fmt.Fprint(h, dump.ForHash(v))
	return h.Sum(nil)
}
