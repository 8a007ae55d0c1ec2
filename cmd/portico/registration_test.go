package main

import (
	"bytes"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico/apiservice/backend"
)

func TestRegistrationContradictions(t *testing.T) {
	url, groups := []string{"https://h:1"}, []string{"g.example.com"}
	for _, tc := range []struct {
		name string
		r    registration
		want string // "" is fine
	}{
		{"urls and a group", registration{urls: url, groups: groups}, ""},
		{"a version", registration{urls: url, groups: groups, versions: []string{"v1", "v2"}}, ""},
		{"everything", registration{urls: url, allGroups: true}, ""},
		{"a service", registration{service: "ns/name:8443", allGroups: true}, ""},
		{"REST", registration{urls: url, groups: groups, versions: []string{"v1"}, rest: true, openAPIPath: "/x"}, ""},
		{"nowhere", registration{groups: groups}, "say where the server is"},
		{"twice", registration{urls: url, service: "a/b", groups: groups}, "give one of them"},
		{"nothing", registration{urls: url}, "say which groups"},
		{"everything and something", registration{urls: url, allGroups: true, groups: groups}, "--all-groups takes every group"},
		{"versions of two groups", registration{urls: url, groups: []string{"a", "b"}, versions: []string{"v1"}}, "--version is of one --group"},
		{"REST without a version", registration{urls: url, rest: true, groups: groups}, "one --group and one --version"},
		{"a document of none", registration{urls: url, groups: groups, openAPIPath: "/x"}, "are for --rest"},
		{"replacing a version", registration{urls: url, groups: groups, versions: []string{"v1"}, replaceOther: true}, "--replace is for groups"},
		{"replacing by REST", registration{urls: url, groups: groups, versions: []string{"v1"}, rest: true, replaceOther: true}, "--replace is for groups"},
		{"replacing groups", registration{urls: url, groups: groups, replaceOther: true}, ""},
		{"trust and no trust", registration{urls: url, groups: groups, insecure: true, caFile: "f"}, "checks no certificate"},
		{"a service without a name", registration{service: "name", allGroups: true}, "namespace/name"},
		{"a service's port", registration{service: "a/b:https", allGroups: true}, `"https" is no port`},
		{"weights", registration{urls: []string{"https://h:1=90", "https://i:1=0"}, groups: groups}, ""},
		{"a weight of nothing", registration{urls: []string{"=90"}, groups: groups}, "there is a weight and no URL"},
		{"no weight", registration{urls: []string{"https://h:1=99999999999"}, groups: groups}, `the weight "99999999999" is no number from 0 to 1000`},
		{"a weight below nothing", registration{urls: []string{"https://h:1=-3"}, groups: groups}, `the weight "-3" is no number from 0 to 1000`},
		{"a weight in letters", registration{urls: []string{"https://h:1=half"}, groups: groups}, `the weight "half" is no number`},
		{"an empty weight", registration{urls: []string{"https://h:1="}, groups: groups}, `the weight "" is no number`},
		{"no file of authorities", registration{urls: url, groups: groups, caFile: filepath.Join(t.TempDir(), "none")}, "--ca-file: "},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := tc.r.complete()
			if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}

// A Backend that is there keeps its policy and the weights of the endpoints that
// stay, and nothing else of what it said.
func TestRegistrationOfABackendThatIsThere(t *testing.T) {
	weight, port := int32(90), int32(8443)
	old := &backend.Backend{
		ObjectMeta: metav1.ObjectMeta{Name: "x", ResourceVersion: "7", Labels: map[string]string{"a": "b"}},
		Spec: backend.Spec{
			Endpoints: []backend.Endpoint{{URL: "https://stays:1", Weight: &weight}, {URL: "https://goes:1", Weight: &weight}},
			TLS:       &backend.TLS{InsecureSkipVerify: true}, Balance: backend.RoundRobin,
			AutoRegister: &backend.AutoRegister{Groups: []string{"*"}},
		},
	}
	r := registration{name: "x", urls: []string{"https://comes:1", "https://stays:1"}, groups: []string{"g"}, versions: []string{"v1"}, serverName: "s"}
	if err := r.complete(); err != nil {
		t.Fatal(err)
	}
	got := r.backend(old)
	want := backend.Spec{
		Endpoints: []backend.Endpoint{{URL: "https://comes:1"}, {URL: "https://stays:1", Weight: &weight}},
		TLS:       &backend.TLS{ServerName: "s"}, Balance: backend.RoundRobin,
	}
	if !reflect.DeepEqual(got.Spec, want) {
		t.Errorf("got %+v\nwant %+v", got.Spec, want)
	}
	if got.ResourceVersion != "7" || got.Labels["a"] != "b" {
		t.Errorf("metadata is %+v", got.ObjectMeta)
	}
	if old.Spec.TLS.ServerName != "" || len(old.Spec.Endpoints) != 2 {
		t.Error("what was read is changed")
	}
	r = registration{name: "x", service: "ns/n:8443", groups: []string{"a", "b"}, groupPriority: 3, versionPriority: 4, replaceOther: true}
	if err := r.complete(); err != nil {
		t.Fatal(err)
	}
	got = r.backend(old)
	want = backend.Spec{
		Service: &backend.Service{Namespace: "ns", Name: "n", Port: &port}, Balance: backend.RoundRobin,
		AutoRegister: &backend.AutoRegister{Groups: []string{"a", "b"}, GroupPriorityMinimum: new(int32(3)), VersionPriority: new(int32(4)), OnConflict: backend.ReplaceOther},
	}
	if !reflect.DeepEqual(got.Spec, want) {
		t.Errorf("got %+v\nwant %+v", got.Spec, want)
	}
}

// What --dry-run prints is what a file would say, without what only a server
// fills in.
func TestRegistrationPrinted(t *testing.T) {
	ca := filepath.Join(t.TempDir(), "ca.crt")
	block := &pem.Block{Type: "CERTIFICATE", Bytes: foreignCertificate(t).Certificate[0]}
	if err := os.WriteFile(ca, pem.EncodeToMemory(block), 0o600); err != nil {
		t.Fatal(err)
	}
	r := registration{name: "billing", urls: []string{"https://h:1"}, groups: []string{"g"}, versions: []string{"v1"}, caFile: ca}
	if err := r.complete(); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := r.print(&out, "yaml"); err != nil {
		t.Fatal(err)
	}
	text := out.String()
	for _, want := range []string{"kind: Backend\n", "  - url: https://h:1\n", "caBundle: LS0t", "---\n", "kind: APIService\n", "  name: v1.g\n", "gateway.portico.dev/backend: billing\n", "groupPriorityMinimum: 1000\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	for _, not := range []string{"status", "creationTimestamp", "null", "{}", "service:"} {
		if strings.Contains(text, not) {
			t.Errorf("%q is in\n%s", not, text)
		}
	}
}

// What the gateway would refuse is not printed as if it were good.
func TestPrintedIsValid(t *testing.T) {
	for flags, want := range map[string]string{
		"--all-groups": "", "--all-groups --balance=foo": `spec.balance: Unsupported value: "foo"`, "--group=A_ --version=v1": "spec.group", "--all-groups --concurrent=0": "spec.limits.concurrent",
	} {
		var out bytes.Buffer
		err := parsedRegistration(t, "--url=https://h:1 "+flags).print(&out, "yaml")
		if (err == nil) != (want == "") || err != nil && (!strings.Contains(err.Error(), want) || out.Len() > 0) {
			t.Errorf("%s: %v, want %q; printed %q", flags, err, want, out.String())
		}
	}
}

func TestParseEndpoint(t *testing.T) {
	for text, want := range map[string]string{
		"https://h:1":        "https://h:1 -",
		"https://h:1=90":     "https://h:1 90",
		"https://h:1=0":      "https://h:1 0",
		"unix:///a=b/s":      "unix:///a=b/s -",
		"unix:///a=b/s=7":    "unix:///a=b/s 7",
		"unix:///a=b/s=":     "unix:///a=b/s= -",
		"https://h:1=9=1000": "https://h:1=9 1000",
	} {
		e, err := parseEndpoint(text)
		got := e.URL + " -"
		if e.Weight != nil {
			got = fmt.Sprint(e.URL, " ", *e.Weight)
		}
		if err != nil || got != want {
			t.Errorf("%s: %s (%v), want %s", text, got, err, want)
		}
	}
}

// Flags say what becomes of a policy; what they do not say stays.
func TestRegistrationPolicy(t *testing.T) {
	number := func(n int32) *int32 { return &n }
	time1 := &metav1.Duration{Duration: time.Second}
	old := backend.Spec{
		Balance: backend.RoundRobin, HealthCheck: &backend.HealthCheck{Path: "/old", Fall: number(7)}, Timeouts: &backend.Timeouts{Connect: time1},
		Retries: &backend.Retries{BudgetPercent: number(5), MinPerSecond: number(1), Attempts: number(4)}, Limits: &backend.Limits{Queue: number(9)},
	}
	for flags, change := range map[string]func(s *backend.Spec){
		"":                         func(*backend.Spec) {},
		"--balance=ConsistentHash": func(s *backend.Spec) { s.Balance = backend.ConsistentHash },
		"--health-path=/new":       func(s *backend.Spec) { s.HealthCheck = &backend.HealthCheck{Path: "/new", Fall: number(7)} },
		"--health-interval=1s": func(s *backend.Spec) {
			s.HealthCheck = &backend.HealthCheck{Path: "/old", Fall: number(7), Interval: time1}
		},
		"--response-timeout=1s": func(s *backend.Spec) { s.Timeouts = &backend.Timeouts{Connect: time1, ResponseHeader: time1} },
		"--connect-timeout=1s":  func(*backend.Spec) {},
		"--retry-percent=50": func(s *backend.Spec) {
			s.Retries = &backend.Retries{BudgetPercent: number(50), MinPerSecond: number(1), Attempts: number(4)}
		},
		"--retry-percent=0": func(s *backend.Spec) {
			s.Retries = &backend.Retries{BudgetPercent: number(0), MinPerSecond: number(0), Attempts: number(4)}
		},
		"--concurrent=0 --queue=1": func(s *backend.Spec) { s.Limits = &backend.Limits{Concurrent: number(0), Queue: number(1)} },
	} {
		var r registration
		fs := pflag.NewFlagSet("", pflag.ContinueOnError)
		r.add(fs)
		if err := fs.Parse(strings.Fields(flags + " --url=https://h:1")); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(fs.Set("all-groups", "true"), r.complete()); err != nil {
			t.Fatal(err)
		}
		want, before := *(&backend.Backend{Spec: old}).DeepCopy(), *(&backend.Backend{Spec: old}).DeepCopy()
		change(&want.Spec)
		got := r.backend(&backend.Backend{Spec: old}).Spec
		got.Endpoints, got.AutoRegister = nil, nil
		if !reflect.DeepEqual(got, want.Spec) {
			t.Errorf("%s: %+v, want %+v", flags, got, want.Spec)
		}
		if !reflect.DeepEqual(old, before.Spec) {
			t.Errorf("%s: it changed what was there", flags)
		}
	}
}

// A Backend that is never to retry has them again as it had by default.
func TestRetriesAgain(t *testing.T) {
	r := parsedRegistration(t, "--url=https://h:1 --all-groups --retry-percent=30")
	zero, percent, often := int32(0), int32(30), int32(7)
	for name, tc := range map[string]struct{ old, want backend.Retries }{
		"after none":        {backend.Retries{BudgetPercent: &zero, MinPerSecond: &zero}, backend.Retries{BudgetPercent: &percent}},
		"of a budget alone": {backend.Retries{MinPerSecond: &zero}, backend.Retries{BudgetPercent: &percent, MinPerSecond: &zero}},
		"some each second":  {backend.Retries{BudgetPercent: &zero, MinPerSecond: &often}, backend.Retries{BudgetPercent: &percent, MinPerSecond: &often}},
	} {
		if got := r.backend(&backend.Backend{Spec: backend.Spec{Retries: &tc.old}}).Spec.Retries; !reflect.DeepEqual(*got, tc.want) {
			t.Errorf("%s: %+v, want %+v", name, *got, tc.want)
		}
	}
}

// parsedRegistration is what these flags ask for.
func parsedRegistration(t *testing.T, flags string) *registration {
	t.Helper()
	r := &registration{name: "x"}
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	r.add(fs)
	if err := errors.Join(fs.Parse(strings.Fields(flags)), r.complete()); err != nil {
		t.Fatal(err)
	}
	return r
}

// How a Backend that is there takes groups is as it was, unless a flag says.
func TestRegistrationPriorities(t *testing.T) {
	old := backend.AutoRegister{Groups: []string{"old"}, GroupPriorityMinimum: new(int32(7)), VersionPriority: new(int32(8)), OnConflict: backend.ReplaceOther}
	with := func(change func(*backend.AutoRegister)) backend.AutoRegister {
		a := old
		a.Groups = []string{"g"}
		change(&a)
		return a
	}
	for flags, tc := range map[string]struct {
		old  *backend.AutoRegister
		want backend.AutoRegister
	}{
		"":                                     {&old, with(func(*backend.AutoRegister) {})},
		"--group-priority=1000":                {&old, with(func(a *backend.AutoRegister) { a.GroupPriorityMinimum = new(int32(1000)) })},
		"--version-priority=3":                 {&old, with(func(a *backend.AutoRegister) { a.VersionPriority = new(int32(3)) })},
		"--replace=false":                      {&old, with(func(a *backend.AutoRegister) { a.OnConflict = "" })},
		"--replace":                            {&backend.AutoRegister{GroupPriorityMinimum: new(int32(7)), VersionPriority: new(int32(8))}, with(func(*backend.AutoRegister) {})},
		"--replace --no-client-certificate":    {nil, backend.AutoRegister{Groups: []string{"g"}, GroupPriorityMinimum: new(int32(1000)), VersionPriority: new(int32(15)), OnConflict: backend.ReplaceOther}},
		"--group-priority=1 --replace=false":   {nil, backend.AutoRegister{Groups: []string{"g"}, GroupPriorityMinimum: new(int32(1)), VersionPriority: new(int32(15))}},
		"--version-priority=2 --server-name=s": {nil, backend.AutoRegister{Groups: []string{"g"}, GroupPriorityMinimum: new(int32(1000)), VersionPriority: new(int32(2))}},
		"--server-name=s":                      {&backend.AutoRegister{}, backend.AutoRegister{Groups: []string{"g"}, GroupPriorityMinimum: new(int32(1000)), VersionPriority: new(int32(15))}},
	} {
		r := parsedRegistration(t, "--url=https://h:1 --group=g "+flags)
		if got := r.backend(&backend.Backend{Spec: backend.Spec{AutoRegister: tc.old}}).Spec.AutoRegister; !reflect.DeepEqual(*got, tc.want) {
			t.Errorf("%s: %+v, want %+v", flags, *got, tc.want)
		}
	}
	if old.Groups[0] != "old" {
		t.Error("what was read is changed")
	}
}

// A priority that no APIService may have is refused before anything is written.
func TestRegistrationPriorityBounds(t *testing.T) {
	for flag, want := range map[string]string{
		"--group-priority=0": "--group-priority=0: it must be between 1 and 20000", "--group-priority=20001": "between 1 and 20000", "--group-priority=20000": "",
		"--version-priority=0": "--version-priority=0: it must be between 1 and 1000", "--version-priority=-1": "between 1 and 1000", "--version-priority=1": "",
	} {
		for _, groups := range []string{"--all-groups", "--group=g --version=v1"} {
			var r registration
			fs := pflag.NewFlagSet("", pflag.ContinueOnError)
			r.add(fs)
			if err := fs.Parse(strings.Fields("--url=https://h:1 " + groups + " " + flag)); err != nil {
				t.Fatal(err)
			}
			if err := r.complete(); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%s %s: %v, want %q", groups, flag, err, want)
			}
		}
	}
}

// What a REST server is made of has no priorities.
func TestRegistrationOfRESTPriorities(t *testing.T) {
	for _, flag := range []string{"--group-priority=1000", "--version-priority=15"} {
		r := &registration{}
		fs := pflag.NewFlagSet("", pflag.ContinueOnError)
		r.add(fs)
		if err := fs.Parse([]string{"--url=http://h:1", "--rest", "--group=g.x", "--version=v1", flag}); err != nil {
			t.Fatal(err)
		}
		if err := r.complete(); err == nil || !strings.Contains(err.Error(), "leave them out with --rest") {
			t.Errorf("%s: %v", flag, err)
		}
	}
}

func TestRegisterValues(t *testing.T) {
	for _, tc := range []struct {
		dryRun, output string
		says           bool
		want           string
	}{
		{"none", "yaml", false, ""}, {"client", "yaml", true, ""}, {"client", "json", true, ""}, {"none", "json", true, "-o json is the form that --dry-run=client prints"},
		{"server", "yaml", false, "must be none or client"}, {"client", "name", true, "must be yaml or json"},
	} {
		f := registerFlags{dryRun: tc.dryRun, output: tc.output}
		if err := f.check(tc.says); (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%+v: %v", tc, err)
		}
	}
	f := registerFlags{dryRun: "none", output: "yaml", wait: -time.Second}
	if err := f.check(false); err == nil || err.Error() != "--wait=-1s: it must not be negative; 0 is not at all" {
		t.Error(err)
	}
}

func TestStatusLine(t *testing.T) {
	at := field.NewPath("spec", "endpoints").Index(0).Child("url")
	invalid := apierrors.NewInvalid(schema.GroupKind{Group: "g", Kind: "Backend"}, "x", field.ErrorList{field.Required(at, "")})
	if got, want := statusLine(invalid), `Backend.g "x" is invalid: spec.endpoints[0].url: Required value`; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	bad := apierrors.NewBadRequest("two\n  lines")
	bad.ErrStatus.Details = &metav1.StatusDetails{Causes: []metav1.StatusCause{{Field: "spec.a", Message: "is\nbad"}}}
	if got, want := statusLine(bad), "two lines; spec.a: is bad"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := statusLine(&apierrors.StatusError{ErrStatus: metav1.Status{Reason: metav1.StatusReasonConflict}}); got != "Conflict" {
		t.Errorf("without a message: %q", got)
	}
}
