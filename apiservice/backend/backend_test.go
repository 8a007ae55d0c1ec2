package backend

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// filled returns a Backend without zero values, different for each seed.
func filled(seed int) *Backend {
	b := &Backend{}
	fill(reflect.ValueOf(b).Elem(), &seed)
	return b
}

// fill sets every value in v to a number that n counts.
func fill(v reflect.Value, n *int) {
	*n++
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), n)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range v.Len() {
			fill(v.Index(i), n)
		}
	case reflect.Map:
		key := reflect.ValueOf(fmt.Sprint("k", *n))
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, reflect.ValueOf(fmt.Sprint("v", *n)))
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(time.Unix(int64(*n), 0)))
			return
		}
		for i := range v.NumField() {
			fill(v.Field(i), n)
		}
	case reflect.String:
		v.SetString(fmt.Sprint("s", *n))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Uint8:
		v.SetUint(uint64(*n % 256))
	default:
		v.SetInt(int64(*n))
	}
}

// A copy is equal and shares no memory.
func TestDeepCopySharesNothing(t *testing.T) {
	for seed := range 3 {
		b := filled(seed)
		c := b.DeepCopy()
		if !reflect.DeepEqual(b, c) {
			t.Fatalf("the copy differs:\n%+v\n%+v", b, c)
		}
		apart(t, "Backend", reflect.ValueOf(b), reflect.ValueOf(c))
	}
	list := &BackendList{Items: []Backend{*filled(1), *filled(2)}}
	apart(t, "BackendList", reflect.ValueOf(list), reflect.ValueOf(list.DeepCopyObject()))
	if (*Backend)(nil).DeepCopy() != nil || (*BackendList)(nil).DeepCopyObject() != nil {
		t.Error("a copy of nothing is something")
	}
}

// apart fails if two values share memory.
func apart(t *testing.T, path string, a, b reflect.Value) {
	t.Helper()
	switch a.Kind() {
	case reflect.Pointer, reflect.Map, reflect.Slice:
		if a.IsNil() || b.IsNil() {
			return
		}
		if a.Type() == reflect.TypeFor[*time.Location]() { // never changed
			return
		}
		if a.Kind() != reflect.Slice || a.Len() > 0 {
			if a.Pointer() == b.Pointer() {
				t.Errorf("%s is shared", path)
			}
		}
	}
	switch a.Kind() {
	case reflect.Pointer:
		apart(t, path, a.Elem(), b.Elem())
	case reflect.Slice:
		for i := range a.Len() {
			apart(t, fmt.Sprintf("%s[%d]", path, i), a.Index(i), b.Index(i))
		}
	case reflect.Struct:
		for i := range a.NumField() {
			apart(t, path+"."+a.Type().Field(i).Name, a.Field(i), b.Field(i))
		}
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
		t.Errorf("what is off is on: %+v", got)
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
		t.Errorf("a plain REST server warns: %q", got)
	}
}

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
				Endpoints: []EndpointStatus{{State: EndpointHealthy, LastError: "before"}, {State: EndpointEjected, LastError: "refused"}, {State: EndpointHealthy}},
				GroupVersions: []GroupVersionStatus{
					{Group: "", Version: "v1"}, {Group: "apps", Version: "v1"}, {Group: "apps", Version: "v2"}, {Group: "batch"}, {Group: "c"}, {Group: "d"},
				},
				Conditions: []metav1.Condition{{Type: Discovered, Status: "True"}, {Type: Available, Status: "True", Reason: "Passed"}},
			},
		}, []any{"b", "2/3", "True", "core,apps,batch + 2 more...", "2d1h", "RoundRobin", "refused"}},
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
