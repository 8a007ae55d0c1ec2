package server

import (
	"reflect"
	"strings"
	"testing"

	"github.com/spf13/cobra"

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
			var f gatewayFlags
			f.add(new(cobra.Command))
			f.backends, f.backendCAs = tc.backends, tc.cas
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

// --feature-gates has kube-apiserver's syntax, and takes gates with an effect only.
func TestFeatureGates(t *testing.T) {
	const known = "; there are: CBORServingAndStorage, KMSv1"
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

// /flagz shows no passwords.
func TestFlagValues(t *testing.T) {
	cmd := NewGateway()
	if err := cmd.ParseFlags([]string{"--etcd-servers=https://user:pass@etcd-0:2379,https://etcd-1:2379", "--listen=0.0.0.0:6443"}); err != nil {
		t.Fatal(err)
	}
	if v := flagValues(cmd.Flags()); v["listen"] != "[0.0.0.0:6443]" || v["etcd-servers"] != "[https://user:xxxxx@etcd-0:2379,https://etcd-1:2379]" {
		t.Errorf("got %q", v)
	}
}
