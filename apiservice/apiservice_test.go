package apiservice

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apireg "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico/apiservice/backend"
)

// valid returns an APIService with a service, changed by change.
func valid(change func(a *apireg.APIService)) *apireg.APIService {
	a := &apireg.APIService{
		ObjectMeta: metav1.ObjectMeta{Name: "v1.widgets.example.com"},
		Spec: apireg.APIServiceSpec{
			Group: "widgets.example.com", Version: "v1", GroupPriorityMinimum: 1000, VersionPriority: 15,
			Service: &apireg.ServiceReference{Namespace: "default", Name: "api"},
		},
	}
	if change != nil {
		change(a)
	}
	return a
}

// The errors are those of kube-aggregator.
func TestValidate(t *testing.T) {
	port := func(n int32) func(a *apireg.APIService) {
		return func(a *apireg.APIService) { a.Spec.Service.Port = &n }
	}
	for name, c := range map[string]struct {
		change func(a *apireg.APIService)
		want   []string // one substring per error, in order
	}{
		"good":       {nil, nil},
		"good local": {func(a *apireg.APIService) { a.Spec.Service = nil }, nil},
		"core group": {func(a *apireg.APIService) { a.Name, a.Spec.Group, a.Spec.Service = "v1.", "", nil }, nil},
		"name":       {func(a *apireg.APIService) { a.Name = "other" }, []string{"metadata.name: Invalid value: \"other\": must be `spec.version+\".\"+spec.group`: \"v1.widgets.example.com\""}},
		"empty group of another version": {func(a *apireg.APIService) { a.Name, a.Spec.Group, a.Spec.Version = "v2.", "", "v2" },
			[]string{"spec.group: Required value: only v1 may have an empty group and it better be legacy kube"}},
		"bad group":         {func(a *apireg.APIService) { a.Name, a.Spec.Group = "v1.A_B", "A_B" }, []string{"spec.group: Invalid value: \"A_B\""}},
		"bad version":       {func(a *apireg.APIService) { a.Name, a.Spec.Version = "1.widgets.example.com", "1" }, []string{"spec.version: Invalid value: \"1\""}},
		"group priority 0":  {func(a *apireg.APIService) { a.Spec.GroupPriorityMinimum = 0 }, []string{"spec.groupPriorityMinimum: Invalid value: 0: must be positive and less than 20000"}},
		"group priority":    {func(a *apireg.APIService) { a.Spec.GroupPriorityMinimum = 20001 }, []string{"must be positive and less than 20000"}},
		"priority at limit": {func(a *apireg.APIService) { a.Spec.GroupPriorityMinimum, a.Spec.VersionPriority = 20000, 1000 }, nil},
		"version priority":  {func(a *apireg.APIService) { a.Spec.VersionPriority = 1001 }, []string{"spec.versionPriority: Invalid value: 1001: must be positive and less than 1000"}},
		"local with CA": {func(a *apireg.APIService) { a.Spec.Service, a.Spec.CABundle = nil, []byte("x") },
			[]string{"spec.caBundle: Invalid value: \"1 bytes\": local APIServices may not have a caBundle"}},
		"local without TLS": {func(a *apireg.APIService) { a.Spec.Service, a.Spec.InsecureSkipTLSVerify = nil, true },
			[]string{"spec.insecureSkipTLSVerify: Invalid value: true: local APIServices may not have insecureSkipTLSVerify"}},
		"nameless service": {func(a *apireg.APIService) { a.Spec.Service = &apireg.ServiceReference{} },
			[]string{"spec.service.namespace: Required value", "spec.service.name: Required value"}},
		"port 0":     {port(0), []string{"spec.service.port: Invalid value: 0: port is not valid: must be between 1 and 65535"}},
		"port 65536": {port(65536), []string{"spec.service.port: Invalid value: 65536"}},
		"insecure with CA": {func(a *apireg.APIService) { a.Spec.InsecureSkipTLSVerify, a.Spec.CABundle = true, []byte("x") },
			[]string{"spec.insecureSkipTLSVerify: Invalid value: true: may not be true if caBundle is present"}},
	} {
		t.Run(name, func(t *testing.T) {
			errs := Validate(valid(c.change))
			if len(errs) != len(c.want) {
				t.Fatalf("got %v, want %q", errs, c.want)
			}
			for i, err := range errs {
				if !strings.Contains(err.Error(), c.want[i]) {
					t.Errorf("got %q, want %q", err, c.want[i])
				}
			}
		})
	}
}

// A condition has one of three values.
func TestStatusConditionValues(t *testing.T) {
	s := &apireg.APIServiceStatus{Conditions: []apireg.APIServiceCondition{{Type: "Available", Status: "Maybe"}, {Type: "X", Status: "Unknown"}}}
	errs := validateStatus(s)
	if len(errs) != 1 || !strings.Contains(errs[0].Error(), `status.conditions[0].status: Unsupported value: "Maybe"`) {
		t.Errorf("got %v", errs)
	}
}

// Set changes lastTransitionTime with the status only, and nothing if the condition is the same.
func TestSet(t *testing.T) {
	a, start := valid(nil), time.Date(2026, 1, 2, 3, 4, 5, 600, time.UTC)
	a.Status.Conditions = []apireg.APIServiceCondition{{Type: "Other", Status: "True"}}
	failed := FailedDiscoveryCheck("https://a", errors.New("refused"))
	for i, c := range []struct {
		set     Condition
		changed bool
		since   int // hours after start
	}{{Passed(), true, 0}, {Passed(), false, 0}, {Local(), true, 0}, {failed, true, 3}} {
		changed := Set(a, c.set, start.Add(time.Duration(i)*time.Hour))
		got, ok := Current(a)
		at := a.Status.Conditions[1].LastTransitionTime.Time
		if changed != c.changed || !ok || got != c.set || !at.Equal(start.Truncate(time.Second).Add(time.Duration(c.since)*time.Hour)) || len(a.Status.Conditions) != 2 {
			t.Errorf("%d: changed %v, %+v since %v", i, changed, got, at)
		}
	}
}

// The messages are those of kube-aggregator.
func TestConditionTexts(t *testing.T) {
	ref := &apireg.ServiceReference{Namespace: "ns", Name: "svc"}
	for want, c := range map[string]Condition{
		"True Local Local APIServices are always available":                             Local(),
		"True Passed all checks passed":                                                 Passed(),
		`False ServiceNotFound service/svc in "ns" is not present`:                      ServiceNotFound(ref),
		`Unknown ServiceAccessError service/svc in "ns" cannot be checked due to: gone`: ServiceAccessError(ref, errors.New("gone")),
		"False ServiceNotFound no server is named for extensions/v1beta1, by spec.service or by the annotation gateway.portico.dev/backend, " +
			"and the gateway does not serve it itself": NotServed(&apireg.APIService{Spec: apireg.APIServiceSpec{Group: "extensions", Version: "v1beta1"}}),
		`False ServicePortError service/svc in "ns" is not listening on port 443`:                                ServicePortError(ref),
		`False EndpointsNotFound cannot find endpointslices for service/svc in "ns"`:                             EndpointsNotFound(ref),
		`False MissingEndpoints endpointslices for service/svc in "ns" have no addresses with port name "https"`: MissingEndpoints(ref, "https"),
		`False FailedDiscoveryCheck failing or missing response from https://x/apis: refused`:                    FailedDiscoveryCheck("https://x/apis", errors.New("refused")),
	} {
		if got := string(c.Status) + " " + c.Reason + " " + c.Message; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// Groups are in the order of their highest priority, and versions in the order of theirs.
func TestOrdered(t *testing.T) {
	service := func(version, group string, gp, vp int32) *apireg.APIService {
		return &apireg.APIService{ObjectMeta: metav1.ObjectMeta{Name: Name(group, version)},
			Spec: apireg.APIServiceSpec{Group: group, Version: version, GroupPriorityMinimum: gp, VersionPriority: vp}}
	}
	in := []*apireg.APIService{
		service("v1", "b", 1000, 100), service("v1", "a", 1000, 100), service("v1alpha1", "high", 3000, 1),
		service("v1", "high", 10, 15), service("v2", "high", 10, 15), service("v1beta1", "high", 10, 15),
	}
	first := in[0]
	var got []string
	for _, a := range Ordered(in) {
		got = append(got, a.Name)
	}
	if want := []string{"v2.high", "v1.high", "v1beta1.high", "v1alpha1.high", "v1.a", "v1.b"}; !slices.Equal(got, want) || in[0] != first {
		t.Errorf("got %v, want %v; the argument is %v", got, want, in)
	}
	want := []string{"v10", "v2", "v1", "v11beta2", "v10beta3", "v3beta1", "v12alpha1", "v11alpha2", "final", "foo1", "foo10", "foo2"} // of one priority
	in, got = nil, nil
	for _, version := range slices.Sorted(slices.Values(want)) {
		in = append(in, service(version, "g", 10, 15))
	}
	for _, a := range Ordered(in) {
		got = append(got, a.Spec.Version)
	}
	if !slices.Equal(got, want) {
		t.Errorf("versions of one priority: %v, want %v", got, want)
	}
}

// A creator does not set the status. The resource and its status are written apart, and field ownership
// is tracked.
func TestStrategy(t *testing.T) {
	k, err := Kind()
	if err != nil {
		t.Fatal(err)
	}
	a := valid(func(a *apireg.APIService) {
		a.Status.Conditions = []apireg.APIServiceCondition{{Type: "Forged", Status: "True"}}
	})
	k.Strategy.Default(a)
	if *a.Spec.Service.Port != 443 {
		t.Errorf("port %d", *a.Spec.Service.Port)
	}
	k.Strategy.PrepareCreate(context.Background(), a)
	if len(a.Status.Conditions) != 0 {
		t.Errorf("a creator set the status: %v", a.Status)
	}
	// The main resource keeps the status, the status view keeps the rest.
	old := valid(func(a *apireg.APIService) { Set(a, Passed(), time.Now()) })
	next := valid(func(a *apireg.APIService) { a.Spec.VersionPriority = 7 })
	k.Strategy.PrepareUpdate(context.Background(), next, old)
	if c, _ := Current(next); c != Passed() || next.Spec.VersionPriority != 7 {
		t.Errorf("update: %+v", next)
	}
	next = valid(func(a *apireg.APIService) {
		a.Spec.VersionPriority = 7
		a.ResourceVersion = "12"
		Set(a, Local(), time.Now())
	})
	k.Subresources[0].Strategy.PrepareUpdate(context.Background(), next, old)
	if c, _ := Current(next); c != Local() || next.Spec.VersionPriority != 15 || next.ResourceVersion != "12" {
		t.Errorf("status update: %+v", next)
	}
	converter, err := k.Ownership()
	if err != nil {
		t.Fatal(err)
	}
	a.SetGroupVersionKind(k.GVK("v1"))
	if _, err := converter.ObjectToTyped(a); err != nil {
		t.Error(err)
	}
}

// A new APIService that names no server is not available until the gateway says so.
func TestConditionOfNewAPIServices(t *testing.T) {
	k, err := Kind()
	if err != nil {
		t.Fatal(err)
	}
	for name, annotations := range map[string]map[string]string{"": nil, "core": {BackendAnnotation: "core"}} {
		a := valid(func(a *apireg.APIService) { a.Spec.Service, a.Annotations = nil, annotations })
		k.Strategy.PrepareCreate(context.Background(), a)
		if c, known := Current(a); known != (name != "") || known && c != Local() {
			t.Errorf("of the Backend %q: %+v", name, c)
		}
	}
}

// The column SERVICE names the Service or the Backend.
func TestServiceColumn(t *testing.T) {
	for want, a := range map[string]*apireg.APIService{
		"ns/svc":       {ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{BackendAnnotation: "todo"}}, Spec: apireg.APIServiceSpec{Service: &apireg.ServiceReference{Namespace: "ns", Name: "svc"}}},
		"backend/todo": {ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{BackendAnnotation: "todo"}}},
		"Local":        {ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{BackendAnnotation: backend.Reserved}}},
	} {
		if row, err := cells(a); err != nil || len(row) != len(columns()) || row[1] != want {
			t.Errorf("%v %v, want %q", row, err, want)
		}
	}
}

// The observer is named where upstream's message ends with an error. Conditions of several observers
// agree.
func TestObservedBy(t *testing.T) {
	failed := FailedDiscoveryCheck("https://a", errors.New("dial tcp (really): refused"))
	named := failed.ObservedBy("one")
	if want := failed.Message + " (observed by one)"; named.Message != want || named.ObservedBy("two").Message != failed.Message+" (observed by two)" {
		t.Errorf("messages %q and %q", named.Message, named.ObservedBy("two").Message)
	}
	if !named.Agrees(failed) || !failed.Agrees(named) || !named.Agrees(failed.ObservedBy("two")) {
		t.Error("conditions that differ in the observer do not agree")
	}
	if other := FailedDiscoveryCheck("https://a", errors.New("timeout")).ObservedBy("one"); named.Agrees(other) || named.Agrees(Passed()) {
		t.Error("different verdicts agree")
	}
	for _, c := range []Condition{Local(), Passed()} {
		if c.ObservedBy("one") != c {
			t.Errorf("upstream's message became %q", c.ObservedBy("one").Message)
		}
	}
	if failed.ObservedBy("") != failed {
		t.Error("an empty observer is named")
	}
}
