package registration

import (
	"bytes"
	"errors"
	"fmt"
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
	"portico/cmd/internal/pki"
	"portico/cmd/portico/client"
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
		{"nowhere", registration{groups: groups}, "--url or --service is missing"},
		{"twice", registration{urls: url, service: "a/b", groups: groups}, "--url and --service exclude each other"},
		{"nothing", registration{urls: url}, "--group or --all-groups is missing"},
		{"everything and something", registration{urls: url, allGroups: true, groups: groups}, "--all-groups excludes --group and --version"},
		{"versions of two groups", registration{urls: url, groups: []string{"a", "b"}, versions: []string{"v1"}}, "--version needs exactly one --group"},
		{"REST without a version", registration{urls: url, rest: true, groups: groups}, "one --group and one --version"},
		{"a document of none", registration{urls: url, groups: groups, openAPIPath: "/x"}, "need --rest"},
		{"replacing a version", registration{urls: url, groups: groups, versions: []string{"v1"}, replaceOther: true}, ""},
		{"replacing by REST", registration{urls: url, groups: groups, versions: []string{"v1"}, rest: true, replaceOther: true}, "--replace does not apply"},
		{"replacing groups", registration{urls: url, groups: groups, replaceOther: true}, ""},
		{"trust and no trust", registration{urls: url, groups: groups, insecure: true, caFile: "f"}, "excludes --ca-file"},
		{"a service without a name", registration{service: "name", allGroups: true}, "namespace/name"},
		{"a service's port", registration{service: "a/b:https", allGroups: true}, `"https" is not a port`},
		{"weights", registration{urls: []string{"https://h:1=90", "https://i:1=0"}, groups: groups}, ""},
		{"a weight of nothing", registration{urls: []string{"=90"}, groups: groups}, "the URL is missing"},
		{"no weight", registration{urls: []string{"https://h:1=99999999999"}, groups: groups}, `the weight "99999999999" must be a number from 0 to 1000`},
		{"a weight below nothing", registration{urls: []string{"https://h:1=-3"}, groups: groups}, `the weight "-3" must be a number from 0 to 1000`},
		{"a weight in letters", registration{urls: []string{"https://h:1=half"}, groups: groups}, `the weight "half" must be a number`},
		{"an empty weight", registration{urls: []string{"https://h:1="}, groups: groups}, `the weight "" must be a number`},
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

// The Backend that is applied has the fields that flags set and no others, so that those of an
// earlier command, such as a weight of 0, return to their defaults.
func TestRegistrationMakesOneBackend(t *testing.T) {
	number := func(n int32) *int32 { return &n }
	at := []backend.Endpoint{{URL: "https://h:1"}}
	all := &backend.AutoRegister{Groups: []string{"*"}}
	for flags, want := range map[string]backend.Spec{
		"--url=https://h:1 --all-groups":                      {Endpoints: at, AutoRegister: all},
		"--url=https://h:1=0 --group=a --group=b":             {Endpoints: []backend.Endpoint{{URL: "https://h:1", Weight: number(0)}}, AutoRegister: &backend.AutoRegister{Groups: []string{"a", "b"}}},
		"--url=https://h:1 --group=a --version=v1,v2":         {Endpoints: at, AutoRegister: &backend.AutoRegister{Groups: []string{"a/v1", "a/v2"}}},
		"--service=ns/n:8443 --all-groups --server-name=s":    {Service: &backend.Service{Namespace: "ns", Name: "n", Port: number(8443)}, TLS: &backend.TLS{ServerName: "s"}, AutoRegister: all},
		"--url=https://h:1 --all-groups --replace":            {Endpoints: at, AutoRegister: &backend.AutoRegister{Groups: []string{"*"}, OnConflict: backend.ReplaceOther}},
		"--url=https://h:1 --all-groups --replace=false":      {Endpoints: at, AutoRegister: all},
		"--url=http://h:1 --rest --group=a --version=v1":      {Endpoints: []backend.Endpoint{{URL: "http://h:1"}}, REST: &backend.REST{Group: "a", Version: "v1"}},
		"--url=https://h:1 --all-groups --balance=RoundRobin": {Endpoints: at, AutoRegister: all, Balance: backend.RoundRobin},
		"--url=https://h:1 --all-groups --health-path=/x":     {Endpoints: at, AutoRegister: all, HealthCheck: &backend.HealthCheck{Path: "/x"}},
	} {
		if got := parsedRegistration(t, flags).backend().Spec; !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, want %+v", flags, got, want)
		}
	}
}

// --dry-run prints a Backend without the fields that the server sets, and fails for one that the
// gateway would refuse.
func TestRegistrationPrinted(t *testing.T) {
	dir := t.TempDir()
	if err := pki.EnsureAuthorities(dir); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	r := parsedRegistration(t, "--url=https://h:1 --group=g --version=v1 --ca-file="+filepath.Join(dir, "serving-ca.crt"))
	if err := r.print(&out, "yaml"); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]bool{
		"kind: Backend\n": true, "  - url: https://h:1\n": true, "caBundle: LS0t": true, "    - g/v1\n": true,
		"status": false, "creationTimestamp": false, "null": false, "{}": false, "service:": false,
	} {
		if strings.Contains(out.String(), text) != want {
			t.Errorf("%q is there: %t, want %t, in\n%s", text, !want, want, &out)
		}
	}
	for flags, want := range map[string]string{
		"--all-groups --balance=foo": `spec.balance: Unsupported value: "foo"`, "--group=A_ --version=v1": "spec.autoRegister.groups[0]",
	} {
		out.Reset()
		if err := parsedRegistration(t, "--url=https://h:1 "+flags).print(&out, "yaml"); err == nil || !strings.Contains(err.Error(), want) || out.Len() > 0 {
			t.Errorf("%s: %v, want %q; printed %q", flags, err, want, &out)
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

// parsedRegistration returns the registration of these flags.
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

func TestRegisterValues(t *testing.T) {
	for _, tc := range []struct {
		dryRun, output string
		says           bool
		want           string
	}{
		{"none", "yaml", false, ""}, {"client", "yaml", true, ""}, {"client", "json", true, ""}, {"none", "json", true, "-o json needs --dry-run=client"},
		{"server", "yaml", false, "must be none or client"}, {"client", "name", true, "must be yaml or json"},
	} {
		f := registerFlags{dryRun: tc.dryRun, output: tc.output}
		if err := f.check(tc.says); (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%+v: %v", tc, err)
		}
	}
	f := registerFlags{dryRun: "none", output: "yaml", wait: -time.Second}
	if err := f.check(false); err == nil || err.Error() != "--wait must not be negative (0 means do not wait)" {
		t.Error(err)
	}
}

func TestStatusLine(t *testing.T) {
	at := field.NewPath("spec", "endpoints").Index(0).Child("url")
	invalid := apierrors.NewInvalid(schema.GroupKind{Group: "g", Kind: "Backend"}, "x", field.ErrorList{field.Required(at, "")})
	if got, want := client.StatusLine(invalid), `Backend.g "x" is invalid: spec.endpoints[0].url: Required value`; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	bad := apierrors.NewBadRequest("two\n  lines")
	bad.ErrStatus.Details = &metav1.StatusDetails{Causes: []metav1.StatusCause{{Field: "spec.a", Message: "is\nbad"}}}
	if got, want := client.StatusLine(bad), "two lines; spec.a: is bad"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := client.StatusLine(&apierrors.StatusError{ErrStatus: metav1.Status{Reason: metav1.StatusReasonConflict}}); got != "Conflict" {
		t.Errorf("without a message: %q", got)
	}
}
