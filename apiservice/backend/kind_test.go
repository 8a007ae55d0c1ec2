package backend

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// valid returns a Backend with an endpoint, after change.
func valid(change func(s *Spec)) *Backend {
	b := &Backend{ObjectMeta: metav1.ObjectMeta{Name: "billing"}, Spec: Spec{Endpoints: []Endpoint{{URL: "https://127.0.0.1:8443"}}}}
	if change != nil {
		change(&b.Spec)
	}
	return b
}

func authority(t testing.TB) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{SerialNumber: big.NewInt(1)}, &x509.Certificate{SerialNumber: big.NewInt(1)}, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// withHeaders is the certificate, with headers in its block.
func withHeaders(t testing.TB, certificate []byte) []byte {
	t.Helper()
	block, _ := pem.Decode(certificate)
	block.Headers = map[string]string{"Name": "ca"}
	return pem.EncodeToMemory(block)
}

// A Backend has endpoints or a Service, at addresses that can exist, with usable certificates.
func TestValidateAddresses(t *testing.T) {
	ca := authority(t)
	at := func(urls ...string) func(*Spec) {
		return func(s *Spec) {
			s.Endpoints = nil
			for _, u := range urls {
				s.Endpoints = append(s.Endpoints, Endpoint{URL: u})
			}
		}
	}
	service := func(v Service) func(*Spec) { return func(s *Spec) { s.Endpoints, s.Service = nil, &v } }
	tls := func(v TLS) func(*Spec) { return func(s *Spec) { s.TLS = &v } }
	weight := func(n int32) func(*Spec) { return func(s *Spec) { s.Endpoints[0].Weight = &n } }
	port := func(n int32) func(*Spec) { return service(Service{Namespace: "a", Name: "b", Port: &n}) }
	check(t, map[string]rule{
		"good":              {nil, nil},
		"good service":      {port(8443), nil},
		"several":           {at("https://a", "https://b:8443", "https://[::1]:8443/"), nil},
		"sockets":           {at("unix:///run/a.sock", "unix:///run/b.sock"), nil},
		"neither":           {at(), []string{"spec.endpoints: Required value: either endpoints or service must be set"}},
		"both":              {func(s *Spec) { s.Service = &Service{Namespace: "a", Name: "b"} }, []string{"spec.service: Forbidden: may not be set together with endpoints"}},
		"too many":          {at(make([]string, MaxEndpoints+1)...), []string{"spec.endpoints: Too many: 257: must have at most 256 items"}},
		"no URL":            {at(""), []string{"spec.endpoints[0].url: Required value"}},
		"no scheme":         {at("127.0.0.1:8443"), []string{`spec.endpoints[0].url: Invalid value: "127.0.0.1:8443": must be https://host:port, http://host:port or unix:///path`}},
		"bad URL":           {at("https://a", "ftp://x"), []string{`spec.endpoints[1].url: Invalid value: "ftp://x": must be https://host:port, http://host:port or unix:///path`}},
		"twice":             {at("https://a", "https://a:443"), []string{`spec.endpoints[1].url: Duplicate value: "https://a:443"`}},
		"twice in capitals": {at("https://h:1", "https://H:1"), []string{`spec.endpoints[1].url: Duplicate value: "https://H:1"`}},
		"pattern":           {at("https://*:1"), []string{`spec.endpoints[0].url: Invalid value: "https://*:1": must have one host, not a pattern`}},
		"no IP address": {at("https://256.1.1.1", "https://1.2.3:1", "https://1.2.3.4:1", "https://[fe80::1%25eth0]:1", "https://h1:1", "https://a_b.c:1"), []string{
			`spec.endpoints[0].url: Invalid value: "https://256.1.1.1": must have a host that is a name or an IP address`, `spec.endpoints[1].url: Invalid value: "https://1.2.3:1"`,
		}},
		"long host":        {at("https://"+strings.Repeat("a", maxHost)+":1", "https://"+strings.Repeat("b", maxHost+1)+":1"), []string{"must have a host of no more than 253 bytes"}},
		"mixed":            {at("https://a", "unix:///run/a", "http://a"), nil},
		"weight":           {weight(1000), nil},
		"no weight":        {weight(0), nil},
		"negative weight":  {weight(-1), []string{"spec.endpoints[0].weight: Invalid value: -1: must be between 0 and 1000"}},
		"too heavy":        {weight(1001), []string{"spec.endpoints[0].weight: Invalid value: 1001: must be between 0 and 1000"}},
		"nameless service": {service(Service{}), []string{"spec.service.namespace: Required value", "spec.service.name: Required value"}},
		"bad service":      {service(Service{Namespace: "A", Name: "b_"}), []string{`spec.service.namespace: Invalid value: "A": a lowercase`, `spec.service.name: Invalid value: "b_": a lowercase`}},
		"port 0":           {port(0), []string{"spec.service.port: Invalid value: 0: port is not valid: must be between 1 and 65535"}},
		"CA":               {tls(TLS{CABundle: ca, ServerName: "billing.internal", ClientCertificate: NoneShown}), nil},
		"no CA":            {tls(TLS{CABundle: []byte("x")}), []string{`spec.tls.caBundle: Invalid value: "1 bytes": must be PEM with at least one certificate`}},
		"broken CA": {tls(TLS{CABundle: append(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("x")})...)}),
			[]string{"holds a certificate that cannot be read: "}},
		"CA with headers": {tls(TLS{CABundle: withHeaders(t, ca)}), []string{"holds a certificate with PEM headers, which is not used"}},
		"and a good one":  {tls(TLS{CABundle: append(withHeaders(t, ca), ca...)}), []string{"holds a certificate with PEM headers, which is not used"}},
		"CA for nothing":  {tls(TLS{CABundle: ca, InsecureSkipVerify: true}), []string{"spec.tls.insecureSkipVerify: Invalid value: true: may not be true if caBundle is present"}},
		"insecure":        {tls(TLS{InsecureSkipVerify: true}), nil},
		"server name":     {tls(TLS{ServerName: "a b"}), []string{`spec.tls.serverName: Invalid value: "a b"`}},
		"certificate":     {tls(TLS{ClientCertificate: "Mine"}), []string{`spec.tls.clientCertificate: Unsupported value: "Mine": supported values: "FrontProxy", "None"`}},
		"TLS in plain": {func(s *Spec) { at("http://a")(s); s.TLS = &TLS{} },
			[]string{`spec.endpoints[0].url: Invalid value: "http://a": must be https where tls is set`}},
	})
	b := valid(nil)
	b.Name = Reserved
	if errs := Validate(b); len(errs) != 1 || errs[0].Error() != `metadata.name: Invalid value: "gateway": is reserved for the gateway` {
		t.Errorf("the gateway's name: %v", errs)
	}
}

// A Backend registers groups or one REST API.
func TestValidateRegistration(t *testing.T) {
	auto := func(v AutoRegister) func(*Spec) { return func(s *Spec) { s.AutoRegister = &v } }
	rest := func(v REST) func(*Spec) { return func(s *Spec) { s.REST = &v } }
	prefix := func(v string) func(*Spec) { return rest(REST{Group: "a", Version: "v1", PathPrefix: v}) }
	check(t, map[string]rule{
		"all":          {auto(AutoRegister{Groups: []string{"*"}, GroupPriorityMinimum: new(int32(20000)), VersionPriority: new(int32(1000)), OnConflict: ReplaceOther}), nil},
		"some":         {auto(AutoRegister{Groups: []string{"", "a.example.com"}}), nil},
		"none":         {auto(AutoRegister{}), []string{`spec.autoRegister.groups: Required value: name the groups to take; "*" takes all`}},
		"too many":     {auto(AutoRegister{Groups: make([]string, MaxGroups+1)}), []string{"spec.autoRegister.groups: Too many: 257: must have at most 256 items"}},
		"twice":        {auto(AutoRegister{Groups: []string{"a", "a"}}), []string{`spec.autoRegister.groups[1]: Duplicate value: "a"`}},
		"all and some": {auto(AutoRegister{Groups: []string{"a", "*"}}), []string{`spec.autoRegister.groups[1]: Invalid value: "*": must be the only one`}},
		"versions":     {auto(AutoRegister{Groups: []string{"a.example.com/v1", "a.example.com/v2", "/v1"}}), nil},
		"bad version":  {auto(AutoRegister{Groups: []string{"a.example.com/V1"}}), []string{`spec.autoRegister.groups[0]: Invalid value: "a.example.com/V1": a DNS-1035`}},
		"bad group":    {auto(AutoRegister{Groups: []string{"A_"}}), []string{`spec.autoRegister.groups[0]: Invalid value: "A_": a lowercase`}},
		"priorities": {auto(AutoRegister{Groups: []string{"*"}, GroupPriorityMinimum: new(int32(20001)), VersionPriority: new(int32(-1))}),
			[]string{"spec.autoRegister.groupPriorityMinimum: Invalid value: 20001: must be positive and less than 20000", "spec.autoRegister.versionPriority: Invalid value: -1: must be positive and less than 1000"}},
		"no priorities": {auto(AutoRegister{Groups: []string{"*"}, GroupPriorityMinimum: new(int32), VersionPriority: new(int32)}),
			[]string{"spec.autoRegister.groupPriorityMinimum: Invalid value: 0: must be positive", "spec.autoRegister.versionPriority: Invalid value: 0: must be positive"}},
		"conflict":  {auto(AutoRegister{Groups: []string{"*"}, OnConflict: "Fight"}), []string{`spec.autoRegister.onConflict: Unsupported value: "Fight": supported values: "Keep", "Replace"`}},
		"no prefix": {rest(REST{Group: "pets.example.com", Version: "v1", PathPrefix: "/"}), nil},
		"REST":      {rest(REST{Group: "pets.example.com", Version: "v1", OpenAPIPath: "/v3/api-docs?form=json", PathPrefix: "/api/v3"}), nil},
		"empty":     {rest(REST{}), []string{"spec.rest.group: Required value", "spec.rest.version: Required value"}},
		"bad names": {rest(REST{Group: "A_", Version: "1"}), []string{`spec.rest.group: Invalid value: "A_"`, `spec.rest.version: Invalid value: "1"`}},
		"bad paths": {rest(REST{Group: "a", Version: "v1", OpenAPIPath: "x", PathPrefix: "/a/../b"}),
			[]string{`spec.rest.openAPIPath: Invalid value: "x": must begin with one slash`, `spec.rest.pathPrefix: Invalid value: "/a/../b": must not have "." or ".." as a part`}},
		"bad prefix": {rest(REST{Group: "a", Version: "v1", PathPrefix: "/a?b/"}),
			[]string{`spec.rest.pathPrefix: Invalid value: "/a?b/": must not end with a slash`, `spec.rest.pathPrefix: Invalid value: "/a?b/": must not have a query`}},
		"prefix at its bound": {prefix("/" + strings.Repeat("a", maxPathPrefix-1)), nil},
		"long prefix":         {prefix("/" + strings.Repeat("a", maxPathPrefix)), []string{"at most 256 bytes long"}},
		"escaped prefix":      {prefix("/a%20b"), []string{`spec.rest.pathPrefix: Invalid value: "/a%20b": must be a path of letters, digits, `}},
		"prefix with a comma": {prefix("/a,b"), []string{"must be a path of letters, digits, "}},
		"empty part":          {prefix("/a//b"), []string{"must be a path of letters, digits, "}},
		"headers":             {rest(REST{Group: "a", Version: "v1", Headers: []string{"X-Api-Key", "x-scope-orgid", "Teapot", "X-Forwarded", "Security"}}), nil},
		"bad headers": {rest(REST{Group: "a", Version: "v1", Headers: []string{"", "X_Api_Key", "X Key", "X-Key", "x-KEY"}}),
			[]string{`spec.rest.headers[0]: Invalid value: "": must be the name of a header`, `spec.rest.headers[1]: Invalid value: "X_Api_Key": must be the name of a header`,
				`spec.rest.headers[2]: Invalid value: "X Key": must be the name of a header`, `spec.rest.headers[4]: Duplicate value: "x-KEY"`}},
		"credentials": {rest(REST{Group: "a", Version: "v1", Headers: []string{"Cookie", "authorization", "X-Remote-User", "Proxy-Authorization", "Impersonate-User", "X-Forwarded-User", "TE", "X-HTTP-Method-Override"}}),
			[]string{"spec.rest.headers[0]: Invalid value: \"Cookie\": is a header of the gateway or a credential for it", "spec.rest.headers[1]: Invalid", "spec.rest.headers[2]: Invalid",
				"spec.rest.headers[3]: Invalid", "spec.rest.headers[4]: Invalid", "spec.rest.headers[5]: Invalid", "spec.rest.headers[6]: Invalid", "spec.rest.headers[7]: Invalid"}},
		"too many headers": {rest(REST{Group: "a", Version: "v1", Headers: manyHeaders()}), []string{"spec.rest.headers: Too many: 65: must have at most 64 items"}},
		"both": {func(s *Spec) {
			s.REST, s.AutoRegister = &REST{Group: "a", Version: "v1"}, &AutoRegister{Groups: []string{"*"}}
		},
			[]string{"spec.rest: Forbidden: may not be set together with autoRegister"}},
	})
}

func manyHeaders() (names []string) {
	for i := range maxHeaders + 1 {
		names = append(names, fmt.Sprint("X-", i))
	}
	return names
}

// The policy is within its bounds.
func TestValidatePolicy(t *testing.T) {
	n := func(v int32) *int32 { return &v }
	d := func(v time.Duration) *metav1.Duration { return &metav1.Duration{Duration: v} }
	check(t, map[string]rule{
		"all 0 that may be": {func(s *Spec) {
			s.PanicThresholdPercent = n(0)
			s.OutlierDetection = &OutlierDetection{ConsecutiveErrors: n(0), ConsecutiveLocalErrors: n(0), MaxEjectionPercent: n(0)}
			s.Retries, s.Limits = &Retries{BudgetPercent: n(0), MinPerSecond: n(0)}, &Limits{Queue: n(0)}
			s.SlowStart, s.Timeouts = &SlowStart{Window: d(0)}, &Timeouts{MaxConnectionAge: d(0)}
		}, nil},
		"balance": {func(s *Spec) { s.Balance = "Fair" }, []string{`spec.balance: Unsupported value: "Fair": supported values: "LeastRequest", "RoundRobin", "ConsistentHash"`}},
		"panic":   {func(s *Spec) { s.PanicThresholdPercent = n(101) }, []string{"spec.panicThresholdPercent: Invalid value: 101: must be between 0 and 100"}},
		"check": {func(s *Spec) {
			s.HealthCheck = &HealthCheck{Path: "readyz", Interval: d(99 * time.Millisecond), Timeout: d(0), Fall: n(-1), Rise: n(1001)}
		}, []string{
			`spec.healthCheck.path: Invalid value: "readyz": must begin with one slash`,
			`spec.healthCheck.interval: Invalid value: "99ms": must be between 100ms and 1h0m0s`,
			`spec.healthCheck.timeout: Invalid value: "0s": must be between 1ms and 1h0m0s`,
			"spec.healthCheck.fall: Invalid value: -1: must be between 1 and 1000", "spec.healthCheck.rise: Invalid value: 1001: must be between 1 and 1000",
		}},
		"outliers": {func(s *Spec) {
			s.OutlierDetection = &OutlierDetection{ConsecutiveErrors: n(-1), ConsecutiveLocalErrors: n(1001), BaseEjectionTime: d(-time.Second), MaxEjectionTime: d(25 * time.Hour), MaxEjectionPercent: n(-1)}
		}, []string{
			"spec.outlierDetection.consecutiveErrors: Invalid value: -1: must be between 0 and 1000", "spec.outlierDetection.consecutiveLocalErrors: Invalid value: 1001",
			`spec.outlierDetection.baseEjectionTime: Invalid value: "-1s": must be between 1ms and 24h0m0s`, `spec.outlierDetection.maxEjectionTime: Invalid value: "25h0m0s"`,
			"spec.outlierDetection.maxEjectionPercent: Invalid value: -1: must be between 0 and 100",
		}},
		"ejections": {func(s *Spec) { s.OutlierDetection = &OutlierDetection{MaxEjectionTime: d(time.Second)} },
			[]string{`spec.outlierDetection.maxEjectionTime: Invalid value: "1s": must not be less than baseEjectionTime, 30s`}},
		"slow start": {func(s *Spec) {
			s.SlowStart = &SlowStart{Window: d(2 * time.Hour), MinWeightPercent: n(0), AggressionPercent: n(1001)}
		}, []string{
			`spec.slowStart.window: Invalid value: "2h0m0s": must be between 0s and 1h0m0s`,
			"spec.slowStart.minWeightPercent: Invalid value: 0: must be between 1 and 100", "spec.slowStart.aggressionPercent: Invalid value: 1001: must be between 10 and 1000",
		}},
		"age": {func(s *Spec) { s.Timeouts = &Timeouts{MaxConnectionAge: d(time.Millisecond)} },
			[]string{`spec.timeouts.maxConnectionAge: Invalid value: "1ms": must be between 1s and 168h0m0s`}},
		"timeouts": {func(s *Spec) { s.Timeouts = &Timeouts{Connect: d(0), ResponseHeader: d(-1), Idle: d(2 * time.Hour)} },
			[]string{`spec.timeouts.connect: Invalid value: "0s"`, `spec.timeouts.responseHeader: Invalid value: "-1ns"`, `spec.timeouts.idle: Invalid value: "2h0m0s": must be between 1ms and 1h0m0s`}},
		"retries": {func(s *Spec) { s.Retries = &Retries{BudgetPercent: n(101), MinPerSecond: n(-1), Attempts: n(11)} },
			[]string{"spec.retries.budgetPercent: Invalid value: 101", "spec.retries.minPerSecond: Invalid value: -1", "spec.retries.attempts: Invalid value: 11: must be between 1 and 10"}},
		"0 that may not be": {func(s *Spec) {
			s.HealthCheck, s.Retries = &HealthCheck{Fall: n(0), Rise: n(0)}, &Retries{Attempts: n(0)}
		}, []string{
			"spec.healthCheck.fall: Invalid value: 0: must be between 1 and 1000", "spec.healthCheck.rise: Invalid value: 0: must be between 1 and 1000",
			"spec.retries.attempts: Invalid value: 0: must be between 1 and 10",
		}},
		"limits": {func(s *Spec) { s.Limits = &Limits{Concurrent: n(0), Queue: n(1_000_001)} },
			[]string{"spec.limits.concurrent: Invalid value: 0: must be between 1 and 1000000", "spec.limits.queue: Invalid value: 1000001"}},
	})
}

// A written status has known states.
func TestValidateStatus(t *testing.T) {
	good := metav1.Condition{Type: Available, Status: "True", Reason: "Passed", LastTransitionTime: metav1.Now()}
	for name, c := range map[string]struct {
		status Status
		want   []string
	}{
		"good": {Status{
			Endpoints: []EndpointStatus{{URL: "https://a", State: EndpointHealthy}}, Conditions: []metav1.Condition{good},
			GroupVersions: []GroupVersionStatus{{Version: "v1", Freshness: "Stale"}},
		}, nil},
		"bad": {Status{
			Endpoints: []EndpointStatus{{URL: "https://a", State: "Ill"}, {}}, Conditions: []metav1.Condition{good, {Type: Registered, Status: "Maybe", Reason: "A", LastTransitionTime: metav1.Now()}},
			GroupVersions: []GroupVersionStatus{{Freshness: "Old"}},
		}, []string{
			`status.endpoints[0].state: Unsupported value: "Ill"`, "status.endpoints[1].url: Required value", "status.endpoints[1].state: Required value",
			`status.groupVersions[0].freshness: Unsupported value: "Old": supported values: "Current", "Stale"`, `status.conditions[1].status: Unsupported value: "Maybe"`,
		}},
	} {
		errs := validateStatus(&c.status)
		compare(t, name, fmt.Sprint(errs), len(errs), func(i int) string { return errs[i].Error() }, c.want)
	}
}

type rule struct {
	change func(*Spec)
	want   []string // the beginning of each error, or a part of it, in order
}

func check(t *testing.T, rules map[string]rule) {
	t.Helper()
	for name, c := range rules {
		errs := Validate(valid(c.change))
		if name == "too many" && len(errs) > 1 {
			errs = errs[:1] // that it is refused matters
		}
		compare(t, name, fmt.Sprint(errs), len(errs), func(i int) string { return errs[i].Error() }, c.want)
	}
}

func compare(t *testing.T, name, all string, n int, get func(int) string, want []string) {
	t.Helper()
	if n != len(want) {
		t.Errorf("%s: got %s, want %q", name, all, want)
		return
	}
	for i := range want {
		if got := get(i); !strings.Contains(got, want[i]) {
			t.Errorf("%s: got %q, want %q", name, got, want[i])
		}
	}
}

// The URL of an endpoint is parsed to its address, or the error says what it must be.
func TestParseURL(t *testing.T) {
	long := "unix:///" + strings.Repeat("x", maxSocketPath)
	for text, want := range map[string]any{
		"https://a":               Address{HTTPS, "a:443", "a", ""},
		"http://a":                Address{HTTP, "a:80", "a", ""},
		"https://[::1]:1/":        Address{HTTPS, "[::1]:1", "[::1]:1", ""},
		"unix:///run/a.sock":      Address{Unix, "", "", "/run/a.sock"},
		long[:len(long)-1]:        Address{Unix, "", "", long[7 : len(long)-1]},
		long:                      "no more than 107 bytes",
		"":                        "must be https://",
		"a:443":                   "must be",
		"https://":                "must have a host",
		"https:a":                 "must have a host",
		"https://:443":            "must have a host",
		"https://a:":              "must have a port",
		"https://a:0":             "port between",
		"https://a:65536":         "port between",
		"https://a:x":             "must be a URL: ",
		"https://a/b":             "must not have a path",
		"https://u:p@a":           "must not have a user",
		"https://a?b":             "a query",
		"https://a?":              "a query",
		"https://a#b":             "a fragment",
		"https://a#":              "a fragment",
		"unix://run/a.sock":       "three slashes",
		"unix:run":                "three slashes",
		"unix://":                 "three slashes",
		"unix:///":                "shortest path",
		"unix:///a/../b":          "shortest path",
		"unix:///a%00b":           "shortest path",
		"unix:///a/":              "shortest path",
		strings.Repeat("x", 1025): "no more than 1024 bytes",
		"https://a\x7f":           "must be a URL: net/url: invalid control character",
	} {
		got, err := ParseURL(text)
		switch want := want.(type) {
		case Address:
			if err != nil || got != want {
				t.Errorf("%q: %+v %v", text, got, err)
			}
		case string:
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%q: %+v %v, want %q", text, got, err, want)
			}
		}
	}
}

// A valid address is parsed again to the same address.
func FuzzParseURL(f *testing.F) {
	for _, s := range []string{"https://a:1", "http://[::1%25lo]:2", "unix:///run/a", "https://a:443/", "unix:///a%2Fb", "https://%41"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		a, err := ParseURL(text)
		if err != nil {
			return
		}
		if (a.Host == "") == (a.Path == "") || a.Scheme == Unix != (a.Path != "") || len(a.Path) > maxSocketPath || strings.Contains(a.Path+a.Host, "\x00") {
			t.Fatalf("%q is %+v", text, a)
		}
		if a.Scheme == Unix {
			return // a path may need escaping to be read again
		}
		if again, err := ParseURL(a.Scheme + "://" + strings.ReplaceAll(a.Host, "%", "%25")); err != nil || again.where() != a.where() {
			t.Fatalf("%q is %+v, which is %+v (%v)", text, a, again, err)
		}
	})
}

// Two URLs have one address however the scheme and the host are written.
func TestSameAddress(t *testing.T) {
	for _, tc := range []struct {
		a, b string
		same bool
	}{
		{"https://a", "http://A.:443", true},
		{"https://a", "http://a", false},
		{"https://a:0443", "https://a", true},
		{"https://localhost:1", "http://127.0.0.1:1", true},
		{"https://[::1]:1", "https://[0:0:0:0:0:0:0:1]:1", true},
		{"https://[::1]:1", "https://me.localhost:1", true},
		{"https://0.0.0.0:1", "https://[::]:1", true},
		{"https://[::ffff:10.0.0.1]:1", "https://10.0.0.1:1", true},
		{"https://127.0.0.2:1", "https://127.0.0.1:1", false},
		{"https://localhost:1", "https://localhost:2", false},
		{"https://localhost.example.com:1", "https://localhost:1", false},
		{"unix:///a", "unix:///a", true},
		{"unix:///a", "unix:///A", false},
		{"unix:///a", "https://a", false},
		{"nonsense", "nonsense", false},
	} {
		if got := SameAddress(tc.a, tc.b); got != tc.same || SameAddress(tc.b, tc.a) != tc.same {
			t.Errorf("%s and %s: %v", tc.a, tc.b, got)
		}
	}
}
