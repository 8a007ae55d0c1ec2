package up

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"portico/cmd/internal/datadir"
	"portico/cmd/internal/pki"
	"portico/cmd/portico/config"
	"portico/cmd/portico/server"
)

// configured returns a stack of `up` with a configuration file.
func configured(t *testing.T, sections string, args ...string) (*stack, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "portico.yaml")
	if err := os.WriteFile(file, []byte("apiVersion: config.portico.dev/v1alpha1\nkind: PorticoConfiguration\n"+sections), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := New()
	root := &cobra.Command{Use: "portico"}
	root.AddCommand(cmd)
	if err := cmd.ParseFlags(append(args, "--config="+file)); err != nil {
		t.Fatal(err)
	}
	processes := config.Processes{CheckValue: server.CheckValue, New: func() []*cobra.Command {
		return []*cobra.Command{New(), server.NewGateway(), server.NewCore(), server.NewCRD(), server.NewEtcd()}
	}}
	cmd.SetContext(t.Context())
	if err := config.Apply(processes)(cmd, nil); err != nil {
		t.Fatal(err)
	}
	flags := upFlags{all: cmd.Flags()}
	if err := flags.readConfig(); err != nil {
		return nil, err
	}
	dir, err := datadir.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dir.Close() })
	files, err := pki.Ensure(pki.Config{Dir: dir.File("pki")})
	if err != nil {
		t.Fatal(err)
	}
	return &stack{flags: flags, dir: dir, files: files, addresses: gatewayAddresses{listen: []string{"127.0.0.1:6443"}, hosts: []string{"127.0.0.1"}, port: "6443"}, etcd: server.EtcdFlags{Servers: []string{"unix:///e"}}}, nil
}

// What the file gives in the section of a child is not overridden by section up, what it gives in
// section up reaches children, and a flag of up is stronger than both.
func TestChildrenGetTheirSections(t *testing.T) {
	s, err := configured(t, `
all: {event-ttl: 2h, profiling: true, service-account-issuer: "https://tokens.example.com"}
up: {max-requests-inflight: 7, enable-priority-and-fairness: true, max-mutating-requests-inflight: 8, discovery-grace: 1m}
gateway: {max-requests-inflight: 9, backend: ["b=https://b:1"], state-dir: /elsewhere, v: 3}
etcd: {v: 0}
`, "--v=1", "--max-mutating-requests-inflight=10")
	if err != nil {
		t.Fatal(err)
	}
	file := "--config=" + s.flags.all.Lookup("config").Value.String()
	for _, tc := range []struct {
		child         string
		args          []string
		want, without []string
	}{
		{"gateway", s.gatewayArgs(), []string{file, "--v=1", "--max-mutating-requests-inflight=10", "--enable-priority-and-fairness=true", "--discovery-grace=1m0s", "--backend=b=https://b:1", "--backend=core=unix://" + s.coreSocket()},
			[]string{"--max-requests-inflight", "--profiling", "--state-dir", "--service-account-issuer", "--event-ttl"}},
		{"core", s.coreArgs(), []string{file, "--v=1", "--root-ca-file=" + s.files.ServingCAFile},
			[]string{"--event-ttl", "--service-account-issuer", "--profiling"}},
		{"crd", s.crdArgs(), []string{file}, []string{"--event-ttl", "--max-requests-inflight"}},
		{"etcd", s.etcdArgs(), []string{file, "--data-dir=" + s.dir.File("etcd")}, []string{"--v", "--max-requests-inflight"}},
	} {
		for _, want := range tc.want {
			if !slices.Contains(tc.args, want) {
				t.Errorf("%s: no %s in %q", tc.child, want, tc.args)
			}
		}
		for _, name := range tc.without {
			if slices.ContainsFunc(tc.args, func(arg string) bool { return strings.HasPrefix(arg, name+"=") }) {
				t.Errorf("%s: %s in %q", tc.child, name, tc.args)
			}
		}
	}
}

// What would break the installation is refused.
func TestRefusedSections(t *testing.T) {
	t.Parallel()
	for sections, want := range map[string]string{
		"gateway: {listen: '0.0.0.0:6443'}":         "gateway.listen: portico up sets this by itself; remove it",
		"gateway: {client-ca-file: ca.crt}":         "gateway.client-ca-file: portico up sets this by itself; remove it",
		"core: {etcd-servers: ['unix:///a']}":       "core.etcd-servers: portico up sets this by itself; remove it",
		"crd: {gateway: 'https://g:1'}":             "crd.gateway: portico up sets this by itself; remove it",
		"etcd: {data-dir: x}":                       "etcd.data-dir: portico up sets this by itself; remove it",
		"core: {cluster-signing-key-file: x}":       "core.cluster-signing-key-file: portico up passes this on; move it to section up",
		"all: {tls-cert-file: x}":                   "all.tls-cert-file: portico up sets this by itself for gateway; remove it",
		"core: {etcd-prefix: /x}":                   "core.etcd-prefix: processes of portico up must agree on this; move it to section all",
		"gateway: {service-account-issuer: 'http'}": "gateway.service-account-issuer: processes of portico up must agree on this; move it to section all",
		"core: {service-cluster-ip-range: [a]}":     "core.service-cluster-ip-range: processes of portico up must agree on this; move it to section up or all",
		"all: {audit-log-path: x}":                  "all.audit-log-path: several processes would use it; move it to section gateway",
	} {
		if _, err := configured(t, sections); err == nil || !strings.HasSuffix(err.Error(), ": "+want) {
			t.Errorf("%s: %v, want %q", sections, err, want)
		}
	}
}

// Every flag that up sets for a child is one that a file must not set, or may set instead.
func TestOwnFlagsAreKnown(t *testing.T) {
	t.Parallel()
	s, err := configured(t, "all: {}")
	if err != nil {
		t.Fatal(err)
	}
	s.flags.signs = true
	known := append([]string{"config", "v", "backend"}, configurable...)
	for child, args := range map[string][]string{"gateway": s.gatewayArgs(), "core": s.coreArgs(), "crd": s.crdArgs(), "etcd": s.etcdArgs()} {
		var set []string
		for _, arg := range args {
			flag, _, _ := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
			set = append(set, flag)
			// up signs only where section all and up say nothing of it.
			if !slices.Contains(known, flag) && !slices.Contains(ownFlags[child], flag) && !strings.HasPrefix(flag, "cluster-signing-") {
				t.Errorf("up sets --%s of %s, which a file may set as well, without effect", flag, child)
			}
		}
		for _, flag := range ownFlags[child] {
			if !slices.Contains(set, flag) {
				t.Errorf("up does not set --%s of %s", flag, child)
			}
		}
	}
}

// An authorizer for nodes without the plugin that restricts what they write is a warning that says what to add,
// wherever the two are set; both, or neither, are none.
func TestWarningOfNodesWithoutRestriction(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "authorization.yaml")
	if err := os.WriteFile(file, []byte("apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\nauthorizers: [{type: Node, name: node}, {type: RBAC, name: rbac}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	const enable = "--enable-admission-plugins=AlwaysPullImages,NodeRestriction"
	for _, tc := range []struct {
		sections string
		args     []string
		warns    bool
	}{
		{sections: "all: {}"},
		{sections: "all: {}", args: []string{"--authorization-mode=RBAC"}},
		{sections: "all: {}", args: []string{"--authorization-mode=Node,RBAC"}, warns: true},
		{sections: "all: {}", args: []string{"--authorization-config=" + file}, warns: true},
		{sections: "all: {}", args: []string{"--authorization-mode=Node,RBAC", "--enable-admission-plugins=AlwaysPullImages"}, warns: true},
		{sections: "all: {}", args: []string{"--authorization-mode=Node,RBAC", enable}},
		{sections: "all: {}", args: []string{"--authorization-config=" + file, enable}},
		{sections: "gateway: {authorization-mode: [Node, RBAC]}", warns: true},
		{sections: "gateway: {authorization-config: " + file + "}", warns: true},
		{sections: "gateway: {authorization-mode: [Node, RBAC]}\ncore: {enable-admission-plugins: [NodeRestriction]}"},
		{sections: "gateway: {authorization-mode: [RBAC]}\nup: {authorization-mode: [Node]}"},
		{sections: "gateway: {authorization-mode: [RBAC]}", args: []string{"--authorization-mode=Node"}, warns: true},
		{sections: "core: {enable-admission-plugins: [NodeRestriction]}\nall: {authorization-mode: [Node]}"},
		{sections: "core: {enable-admission-plugins: [AlwaysPullImages]}\nall: {authorization-mode: [Node], enable-admission-plugins: [NodeRestriction]}", warns: true},
	} {
		s, err := configured(t, tc.sections, tc.args...)
		if err != nil {
			t.Fatal(err)
		}
		lines := s.flags.warnings()
		if warned := len(lines) == 1 && strings.HasSuffix(lines[0], "add --enable-admission-plugins=NodeRestriction"); warned != tc.warns || len(lines) > 0 && !warned {
			t.Errorf("%s %q: %q", tc.sections, tc.args, lines)
		}
	}
}
