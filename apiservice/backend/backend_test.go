package backend

import (
	"context"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/randfill"
)

// filled returns a Backend without zero values, different for each seed.
func filled(seed int64) *Backend {
	b := &Backend{}
	fields := func(f *metav1.FieldsV1, _ randfill.Continue) { f.SetRawString("{}") } // it must be JSON
	randfill.NewWithSeed(seed).NilChance(0).NumElements(2, 2).Funcs(fields).Fill(b)
	return b
}

func encoded(t *testing.T, object any) string {
	t.Helper()
	data, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// A copy is equal and shares no memory.
func TestDeepCopySharesNothing(t *testing.T) {
	for seed := range int64(3) {
		b := filled(seed)
		list, before := &BackendList{Items: []Backend{*b}}, encoded(t, b)
		one, all := b.DeepCopy(), list.DeepCopyObject().(*BackendList)
		if !reflect.DeepEqual(b, one) || !reflect.DeepEqual(list, all) {
			t.Fatalf("the copy differs:\n%+v\n%+v", b, one)
		}
		for _, c := range []*Backend{one, &all.Items[0]} {
			c.Spec.TLS.CABundle[0]++
			// Decoding writes into the pointers, maps and slices of the copy.
			if err := json.Unmarshal([]byte(encoded(t, filled(seed+100))), c); err != nil {
				t.Fatal(err)
			}
		}
		if after := encoded(t, b); after != before {
			t.Errorf("a change of the copy changed\n%s\nto\n%s", before, after)
		}
	}
	if (*Backend)(nil).DeepCopy() != nil || (*BackendList)(nil).DeepCopyObject() != nil {
		t.Error("the copy of nil is not nil")
	}
}

// The defaults are the documented ones.
func TestDefaults(t *testing.T) {
	want := Policy{
		Balance: LeastRequest, PanicThresholdPercent: 50,
		HealthCheck: HealthPolicy{Interval: 5 * time.Second, Suspect: 500 * time.Millisecond, Timeout: time.Second, Fall: 3, Rise: 2},
		Outlier:     OutlierPolicy{5, 3, 30 * time.Second, 300 * time.Second, 50},
		Timeouts:    TimeoutPolicy{time.Second, 60 * time.Second, 90 * time.Second, 10 * time.Minute},
		SlowStart:   SlowStartPolicy{10 * time.Second, 10, 100},
		Retries:     RetryPolicy{20, 3, 3},
		Limits:      LimitPolicy{1024, 256},
	}
	if got := DefaultPolicy(); got != want {
		t.Errorf("got %+v", got)
	}
	zero := int32(0)
	s := Spec{
		SlowStart: &SlowStart{Window: &metav1.Duration{}}, Timeouts: &Timeouts{MaxConnectionAge: &metav1.Duration{}},
		Retries: &Retries{BudgetPercent: &zero, MinPerSecond: &zero}, PanicThresholdPercent: &zero, Limits: &Limits{Queue: &zero},
		OutlierDetection: &OutlierDetection{ConsecutiveErrors: &zero, BaseEjectionTime: &metav1.Duration{Duration: time.Hour}},
	}
	got := s.Policy()
	if got.Retries != (RetryPolicy{0, 0, 3}) || got.PanicThresholdPercent != 0 || got.Limits != (LimitPolicy{1024, 0}) ||
		got.Outlier.ConsecutiveErrors != 0 || got.Outlier.MaxEjectionTime != time.Hour ||
		got.SlowStart.Window != 0 || got.Timeouts.MaxConnectionAge != 0 {
		t.Errorf("with 0 for all that 0 turns off: %+v", got)
	}
	if (&Endpoint{}).WeightOf() != 1 || (&Endpoint{Weight: &zero}).WeightOf() != 0 || (&Service{}).PortOf() != 443 {
		t.Error("weights and ports")
	}
	if g, v := (&AutoRegister{}).Priorities(); g != 1000 || v != 15 {
		t.Error(g, v)
	}
	all, some, one := AutoRegister{Groups: []string{"*"}}, AutoRegister{Groups: []string{"a", ""}}, AutoRegister{Groups: []string{"a/v2"}}
	if !all.Takes("x", "v1") || !all.Takes("", "v1") || some.Takes("b", "v1") || !some.Takes("a", "v1") || !some.Takes("", "v1") || !one.Takes("a", "v2") || one.Takes("a", "v1") {
		t.Error("groups to take")
	}
}

// Defaults are not stored, except the port of a Service.
func TestStrategy(t *testing.T) {
	k, err := Kind()
	if err != nil {
		t.Fatal(err)
	}
	b := &Backend{Spec: Spec{Service: &Service{Namespace: "a", Name: "b"}}, Status: Status{Conditions: []metav1.Condition{{Type: "Forged"}}}}
	k.Strategy.Default(b)
	k.Strategy.PrepareCreate(context.Background(), b)
	data, err := json.Marshal(b)
	if err != nil || strings.Contains(string(data), "Forged") || !strings.Contains(string(data), `"spec":{"service":{"namespace":"a","name":"b","port":443}}`) {
		t.Errorf("stored as %s (%v)", data, err)
	}
	old, next := filled(1), filled(2)
	k.Strategy.PrepareUpdate(context.Background(), next, old)
	if !reflect.DeepEqual(next.Status, old.Status) || !reflect.DeepEqual(next.Spec, filled(2).Spec) {
		t.Error("an update of the object changed the status, or not the rest")
	}
	next = filled(2)
	k.Subresources[0].Strategy.PrepareUpdate(context.Background(), next, old)
	if !reflect.DeepEqual(next.Spec, old.Spec) || !reflect.DeepEqual(next.Labels, old.Labels) || !reflect.DeepEqual(next.Status, filled(2).Status) {
		t.Error("an update of the status changed the rest, or not the status")
	}
}

// What may be a mistake is a warning.
func TestWarnings(t *testing.T) {
	none := int32(0)
	for want, s := range map[string]*Spec{
		"":                  {Endpoints: []Endpoint{{URL: "https://a"}, {URL: "https://b", Weight: &none}}},
		"every weight is 0": {Endpoints: []Endpoint{{URL: "https://a", Weight: &none}}},
		"spec.endpoints[0].url: users are named in plain text": {Endpoints: []Endpoint{{URL: "http://a"}}},
		"spec.endpoints[1].url: tls is":                        {Endpoints: []Endpoint{{URL: "https://a"}, {URL: "unix:///run/a"}}, TLS: &TLS{ServerName: "a"}},
		"spec.tls.insecureSkipVerify: ":                        {Service: &Service{}, TLS: &TLS{InsecureSkipVerify: true}},
	} {
		got := warnings(s)
		if want == "" && len(got) != 0 || want != "" && (len(got) != 1 || !strings.Contains(got[0], want)) {
			t.Errorf("%q: %q", want, got)
		}
	}
	if got := warnings(&Spec{Endpoints: []Endpoint{{URL: "http://a"}}, REST: &REST{}}); len(got) != 0 {
		t.Errorf("a REST server over HTTP warns: %q", got)
	}
}

// A row of the table has the health of endpoints, the first groups and the last error.
func TestCells(t *testing.T) {
	for name, c := range map[string]struct {
		b    *Backend
		want []any
	}{
		"new": {&Backend{Spec: Spec{Endpoints: make([]Endpoint, 2)}}, []any{"", "0/2", "Unknown", "<none>", "<unknown>", "LeastRequest", "<none>"}},
		"seen": {&Backend{
			ObjectMeta: metav1.ObjectMeta{Name: "b", CreationTimestamp: metav1.NewTime(time.Now().Add(-49 * time.Hour))},
			Spec:       Spec{Endpoints: make([]Endpoint, 3), Balance: RoundRobin},
			Status: Status{
				Endpoints: []EndpointStatus{{State: EndpointHealthy, LastError: "before"}, {State: EndpointEjected, LastError: "refused", LastErrorTime: metav1.NewTime(time.Now().Add(-3 * time.Minute))}, {State: EndpointHealthy}},
				GroupVersions: []GroupVersionStatus{
					{Group: "", Version: "v1"}, {Group: "apps", Version: "v1"}, {Group: "apps", Version: "v2"}, {Group: "batch"}, {Group: "c"}, {Group: "d"},
				},
				Conditions: []metav1.Condition{{Type: Discovered, Status: "True"}, {Type: Available, Status: "True", Reason: "Passed"}},
			},
		}, []any{"b", "2/3", "True", "core,apps,batch + 2 more...", "2d1h", "RoundRobin", "refused (3m ago)"}},
		"drained": {&Backend{
			Spec:   Spec{Endpoints: make([]Endpoint, 2)},
			Status: Status{Endpoints: []EndpointStatus{{State: EndpointHealthy}, {State: EndpointDraining, LastError: "before"}}},
		}, []any{"", "1/1", "Unknown", "<none>", "<unknown>", "LeastRequest", "<none>"}},
		"failing": {&Backend{Status: Status{
			Endpoints: make([]EndpointStatus, 4), Conditions: []metav1.Condition{{Type: Available, Status: "False", Reason: "FailedDiscoveryCheck"}},
		}}, []any{"", "0/4", "False (FailedDiscoveryCheck)", "<none>", "<unknown>", "LeastRequest", "<none>"}},
	} {
		got, err := cells(c.b)
		if err != nil || !slices.Equal(got, c.want) || len(got) != len(columns()) {
			t.Errorf("%s: %v %v, want %v", name, got, err, c.want)
		}
	}
	if _, err := cells(&metav1.Status{}); err == nil {
		t.Error("another kind has cells")
	}
}
