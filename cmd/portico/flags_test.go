package main

import (
	"log/slog"
	"net"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"portico/cmd/internal/datadir"
	"portico/cmd/internal/pki"
	"portico/gateway"
)

func TestBackendFlags(t *testing.T) {
	for _, tc := range []struct {
		name          string
		backends, cas []string
		want          []gateway.Backend
		err           string
	}{
		{name: "none"},
		{
			name: "one authority for all, one of its own", backends: []string{"core=unix:///run/core.sock", "crd=https://crd-0:7444,https://crd-1:7444", "x=https://x:1"},
			cas: []string{"all.crt", "crd=crd.crt"},
			want: []gateway.Backend{
				{Name: "core", URLs: []string{"unix:///run/core.sock"}, CAFile: "all.crt"},
				{Name: "crd", URLs: []string{"https://crd-0:7444", "https://crd-1:7444"}, CAFile: "crd.crt"},
				{Name: "x", URLs: []string{"https://x:1"}, CAFile: "all.crt"},
			},
		},
		{name: "no name", backends: []string{"unix:///x"}, err: "must have the form name=value"},
		{name: "no URL", backends: []string{"core="}, err: "must have the form name=value"},
		{name: "twice", backends: []string{"a=unix:///1", "a=unix:///2"}, err: "the name is used twice"},
		{name: "authority of an unknown backend", backends: []string{"a=unix:///1"}, cas: []string{"b=ca.crt"}, err: `no backend "b"`},
		{name: "two for all", cas: []string{"a.crt", "b.crt"}, err: "for all backends already"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := gatewayFlags{backends: tc.backends, backendCAs: tc.cas}
			err := f.complete()
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Errorf("got %v, want %q", err, tc.err)
				}
				return
			}
			if err != nil || !reflect.DeepEqual(f.cfg.Backends, tc.want) {
				t.Errorf("got %v %v, want %v", f.cfg.Backends, err, tc.want)
			}
		})
	}
}

// `up` passes the flags that its children have on to them, audit flags to the gateway only, and
// every flag that a child gets is one that it has.
func TestChildrenGetTheirFlags(t *testing.T) {
	cmd := newUp()
	if err := cmd.ParseFlags([]string{"--etcd-servers=https://a:2379,https://b:2379", "--etcd-cafile=a", "--max-requests-inflight=7", "--max-long-running-requests=8",
		"--audit-log-path=/x", "--access-log=-", "--profiling", "--discovery-grace=1m", "--tracing-config-file=t", "--v=2", "--feature-gates=CBORServingAndStorage=true"}); err != nil {
		t.Fatal(err)
	}
	s := &stack{flags: upFlags{all: cmd.Flags()}, host: "127.0.0.1", port: "6443", etcd: etcdFlags{servers: []string{"https://a:2379", "https://b:2379"}}}
	var err error
	if s.dir, err = datadir.Open(t.TempDir()); err != nil {
		t.Fatal(err)
	}
	defer s.dir.Close()
	if s.files, err = pki.Ensure(pki.Config{Dir: s.dir.File("pki")}); err != nil {
		t.Fatal(err)
	}
	common := []string{"--etcd-servers=https://a:2379,https://b:2379", "--etcd-cafile=a", "--max-requests-inflight=7", "--profiling=true", "--tracing-config-file=t", "--v=2", "--feature-gates=CBORServingAndStorage=true"}
	gateway := []string{"--max-long-running-requests=8", "--audit-log-path=/x", "--access-log=-", "--discovery-grace=1m0s"}
	for name, args := range map[string][]string{"gateway": s.gatewayArgs(), "core": s.coreArgs(), "crd": s.crdArgs()} {
		child, rest, err := newRoot().Find(append([]string{name}, args...))
		if err != nil {
			t.Fatal(err)
		}
		if err := child.ParseFlags(rest); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for i, want := range append(slices.Clone(common), gateway...) {
			if slices.Contains(args, want) != (i < len(common) || name == "gateway") {
				t.Errorf("%s: %s in %q", name, want, args)
			}
		}
	}
	if err := newUp().ParseFlags([]string{"--max-requests-inflight=-1"}); err == nil || !strings.Contains(err.Error(), "--max-requests-inflight") {
		t.Errorf("a negative limit: %v", err)
	}
}

// --feature-gates has kube-apiserver's syntax, and takes gates with an effect only.
func TestFeatureGates(t *testing.T) {
	const known = "; there are: CBORServingAndStorage"
	for value, want := range map[string]struct {
		on  bool
		err string
	}{
		"":                                  {},
		"CBORServingAndStorage=true":        {on: true},
		" kube:CBORServingAndStorage = T ,": {on: true},
		"CBORServingAndStorage=true,CBORServingAndStorage=false": {},
		"CBORServingAndStorage":                                  {err: `feature gate CBORServingAndStorage: must be true or false, not ""`},
		"CBORServingAndStorage=yes":                              {err: `feature gate CBORServingAndStorage: must be true or false, not "yes"`},
		"CBORServingAndStorage=true,WatchList=true":              {on: true, err: `feature gate "WatchList" is unknown or has no effect here` + known},
		"NoSuchGate=true":                                        {err: `feature gate "NoSuchGate" is unknown or has no effect here` + known},
	} {
		var f coreFlags
		cmd := &cobra.Command{}
		f.add(cmd)
		err := cmd.ParseFlags([]string{"--feature-gates=" + value})
		if f.cfg.CBOR != want.on || (err == nil) != (want.err == "") || err != nil && !strings.HasSuffix(err.Error(), want.err) {
			t.Errorf("%q: %v, %v", value, f.cfg.CBOR, err)
		}
	}
}

// /flagz shows no passwords, and /debug/flags/v accepts numbers only.
func TestFlagValues(t *testing.T) {
	cmd := newGateway()
	if err := cmd.ParseFlags([]string{"--etcd-servers=https://user:pass@etcd-0:2379,https://etcd-1:2379", "--listen=0.0.0.0:6443"}); err != nil {
		t.Fatal(err)
	}
	if v := flagValues(cmd.Flags()); v["listen"] != "0.0.0.0:6443" || v["etcd-servers"] != "[https://user:xxxxx@etcd-0:2379,https://etcd-1:2379]" {
		t.Errorf("got %q", v)
	}
	before := logLevel.Level()
	defer logLevel.Set(before)
	if err := setVerbosity("4"); err != nil || logLevel.Level() != slog.LevelDebug {
		t.Errorf("level 4: %v, %v", err, logLevel.Level())
	}
	if err := setVerbosity("many"); err == nil || logLevel.Level() != slog.LevelDebug {
		t.Errorf("no number: %v, %v", err, logLevel.Level())
	}
}

func TestFreeAddress(t *testing.T) {
	t.Parallel()
	host, port, err := freeAddress("127.0.0.1:0")
	if err != nil || host != "127.0.0.1" || port == "0" {
		t.Fatal(host, port, err)
	}
	ln, err := net.Listen("tcp", net.JoinHostPort(host, port))
	if err != nil {
		t.Fatal("the address is not free:", err)
	}
	defer ln.Close()
	if _, _, err := freeAddress(ln.Addr().String()); err == nil || !strings.Contains(err.Error(), "in use by another process") {
		t.Errorf("busy: %v", err)
	}
}

func TestReachableHost(t *testing.T) {
	for host, want := range map[string]string{"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "127.0.0.1", "::1": "::1", "10.0.0.1": "10.0.0.1", "api.example.com": "api.example.com"} {
		if got := reachableHost(host); got != want {
			t.Errorf("%q: got %q", host, got)
		}
	}
}

func TestShellQuote(t *testing.T) {
	for s, want := range map[string]string{"/a/b-c.d": "/a/b-c.d", "/my data": "'/my data'", "/it's": `'/it'\''s'`, "/$HOME": "'/$HOME'"} {
		if got := shellQuote(s); got != want {
			t.Errorf("%q: got %s", s, got)
		}
	}
}
