package routing

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apireg "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico/apiservice"
	"portico/discovery"
	"portico/discovery/aggregate"
	"portico/gateway/proxy"
)

func TestMerge(t *testing.T) {
	now := time.Now()
	s := &Sync{grace: time.Minute, own: []discovery.GroupVersion{
		{Group: apiservice.Group, Version: "v1", GroupPriority: 20001}, {Group: "rbac.authorization.k8s.io", Version: "v1"},
	}}
	known := &Server{Up: &proxy.Way{}, Source: aggregate.NewSource(aggregate.Config{Previous: []discovery.GroupVersion{
		{Group: "a.example.com", Version: "v1", Legacy: []metav1.APIResource{{Name: "things"}}},
	}})}
	mute := &Server{Up: &proxy.Way{}, Source: aggregate.NewSource(aggregate.Config{})}
	blind := &Server{Up: &proxy.Way{}, Source: aggregate.NewSource(aggregate.Config{Previous: []discovery.GroupVersion{
		{Group: "a.example.com", Version: "v1", Stale: true, Legacy: []metav1.APIResource{{Name: "things"}}},
	}})}
	down := apiservice.Condition{Status: apireg.ConditionFalse, Reason: "FailedDiscoveryCheck"}
	of := func(group string) *apireg.APIService {
		return &apireg.APIService{ObjectMeta: metav1.ObjectMeta{Name: apiservice.Name(group, "v1")},
			Spec: apireg.APIServiceSpec{Group: group, Version: "v1", GroupPriorityMinimum: 77, VersionPriority: 7}}
	}
	for name, c := range map[string]struct {
		group                    string
		p                        placement
		routed, available, stale bool
		unknown, listed          bool
		next                     bool
	}{
		"own":                     {"rbac.authorization.k8s.io", placement{local: true, condition: apiservice.Local()}, true, true, false, false, true, false},
		"answering":               {"a.example.com", placement{server: known, condition: apiservice.Passed()}, true, true, false, false, true, false},
		"stale says the server":   {"a.example.com", placement{server: blind, condition: apiservice.Passed()}, true, true, true, false, true, false},
		"never answered":          {"b.example.com", placement{server: mute, condition: down}, true, false, false, true, true, false},
		"no server":               {"c.example.com", placement{condition: down}, true, false, false, true, true, false},
		"nobody serves it":        {"d.example.com", placement{nowhere: true, condition: apiservice.Local()}, false, false, false, false, false, false},
		"down within the grace":   {"a.example.com", placement{server: known, condition: down, verdict: true, since: now.Add(-10 * time.Second)}, true, false, false, false, true, true},
		"down longer than grace":  {"a.example.com", placement{server: known, condition: down, verdict: true, since: now.Add(-2 * time.Minute)}, true, false, true, false, true, false},
		"registration is not his": {apiservice.Group, placement{server: known, condition: apiservice.Passed()}, true, true, false, false, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMerge(s)
			a := of(c.group)
			m.add(a, c.p)
			rt := (&proxy.Table{Routes: m.routes}).Lookup(c.group, "v1")
			if (rt != nil) != c.routed || rt != nil && (rt.Unavailable() == nil) != c.available {
				t.Errorf("route %+v", rt)
			}
			if c.group == apiservice.Group && !rt.Local {
				t.Error("the registration group was given away")
			}
			var entry *discovery.GroupVersion
			for i := range m.entries {
				if m.entries[i].Group == c.group {
					entry = &m.entries[i]
				}
			}
			if (entry != nil) != c.listed || entry != nil && (entry.Stale != c.stale || entry.Unknown != c.unknown) {
				t.Errorf("entry %+v", entry)
			}
			if c.listed && c.group != apiservice.Group && entry.GroupPriority != 77 {
				t.Errorf("priority %d", entry.GroupPriority)
			}
			if m.conditions[a.Name] != c.p.condition || (m.next > 0) != c.next || m.next > time.Minute {
				t.Errorf("condition %+v, next %v", m.conditions[a.Name], m.next)
			}
		})
	}
}
