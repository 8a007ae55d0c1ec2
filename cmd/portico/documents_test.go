package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"portico/cmd/e2e"
	"portico/cmd/portico/config"
	"portico/cmd/portico/server"
)

// runElsewhere are commands of documents that no script runs, and what does.
var runElsewhere = map[string]string{
	"portico up --authentication-config=authentication.yaml": "TestIssuers in cmd/e2e/clients",
	"portico status": "TestStatus",
	"kubectl get leases -n kube-system -L apiserver.kubernetes.io/identity":          "TestStatus",
	"portico up --listen=127.0.0.1:0 --listen=[::1]:0 --tls-san=portico.example.com": "TestSeveralAddresses",
	"kubectl -n portico port-forward service/portico 6443:443":                       "TestPortForward",
	"kubectl --kubeconfig=portico-pki/admin/kubeconfig get apiservices":              "TestPortForward",
	"kubectl apply -f deploy/kubernetes/servicemonitor.yaml":                         "TestHelmChart",
	"go run ./cmd/portico up":       "every installation of the tests",
	"go test ./...":                 "this run",
	"go test -short ./...":          "this run, without what needs an installation",
	"go vet ./...":                  ".ci/run",
	"portico doctor --write":        "cmd/portico/doctor",
	"portico certs rotate":          "TestCertsRotate",
	"portico certs rotate --retire": "TestCertsRotate",
	"portico upgrade-check":         "cmd/e2e/upgrade",
	"go build -C cmd/tools -ldflags \"-X k8s.io/component-base/version.gitVersion=v1.37.2\" -o ../../bin/kubectl ./kubectl": "cmd/internal/testtools",
	"portico up --data-dir=restored":                             "TestRestoreDrill",
	"portico restore --from-data-dir=broken --data-dir=restored": "TestDamagedEtcdData",
	"go build -o bin/portico ./cmd/portico":                      "cmd/internal/testtools",
	"go build -o portico ./cmd/portico":                          "cmd/internal/testtools",
	"go test ./gateway/proxy/ -run TestTraffic":                  "the tests of gateway/proxy",
	"portico certs kubeconfig --server=https://127.0.0.1:6443 --user=system:kube-controller-manager --out=controller-manager.kubeconfig": "TestControllerManager",
	"portico certs kubeconfig --server=https://127.0.0.1:6443 --user=jane --group=developers --out=jane.kubeconfig":                      "TestCommonChanges",
	"kubectl create clusterrolebinding developers --clusterrole=edit --group=developers":                                                 "TestCommonChanges",
	"portico gateway --config=second-gateway.yaml":                                                                                       "TestCommonChanges",
	"portico up --etcd-servers=https://etcd-0:2379 --etcd-cafile=ca.crt --etcd-certfile=client.crt --etcd-keyfile=client.key":            "TestExternalEtcd",
	"kubectl apply -f deploy/samples/sample-apiserver/":                                                                                  "TestSampleAPIServer",
	"kubectl get apiservices v1alpha1.wardle.example.com":                                                                                "TestSampleAPIServer",
	"kubectl api-resources --api-group wardle.example.com":                                                                               "TestSampleAPIServer",
	"kubectl apply -f deploy/samples/sample-apiserver/objects":                                                                           "TestSampleAPIServer",
	"kubectl get flunders -A": "TestSampleAPIServer",
	"CGO_ENABLED=0 go build -trimpath -tags nomsgpack,grpcnotrace -ldflags=\"-s -w\" ./cmd/portico": "by hand: other build tags build everything anew",

	// docs/releasing.md and deploy/kubernetes/README.md
	"go -C cmd/tools run ./release --out=../../dist":                                   "TestRelease",
	"go -C cmd/tools run ./release --out=../../dist --platforms=linux/amd64 --samples": "TestPages of cmd/e2e/pages",

	// deploy/monitoring/README.md
	"kubectl create namespace monitoring":                    "TestScrapeByToken",
	"kubectl -n monitoring create serviceaccount prometheus": "TestScrapeByToken",
	"kubectl create clusterrolebinding prometheus --clusterrole=system:monitoring --serviceaccount=monitoring:prometheus": "TestScrapeByToken",
	"kubectl -n monitoring create token prometheus --duration=8760h > prometheus.token":                                   "TestScrapeByToken",
	"portico register batch --url=unix:///run/portico/batch.sock --all-groups":                                            "TestShard",
	"go test ./cmd -run TestDashboards -update":                                                                           "TestDashboards",

	// docs/storage.md
	"portico storage rewrite secrets --encryption-provider-config=encryption.yaml": "TestEncryptionAtRest",

	// docs/adopting.md
	"systemctl restart k3s": "by hand: it needs k3s",
	"systemctl stop k3s":    "by hand: it needs k3s",
	"portico adopt --dry-run --etcd-servers=https://etcd-0:2379 --etcd-cafile=ca.crt --etcd-certfile=client.crt --etcd-keyfile=client.key": "TestDryRun",
	"portico adopt --dry-run --snapshot=snapshot.db": "TestSnapshotOfRunningServer",
	"portico adopt --etcd-servers=https://etcd-0:2379 --etcd-cafile=ca.crt --etcd-certfile=client.crt --etcd-keyfile=client.key --snapshot-to=before.db": "TestAdopt",

	// deploy/machines/README.md
	"go build -C cmd/tools -o ../../bin/etcd go.etcd.io/etcd/server/v3":     "cmd/internal/testtools",
	"go build -C cmd/tools -o ../../bin/etcdctl go.etcd.io/etcd/etcdctl/v3": "cmd/internal/testtools",
	"kubectl create configmap hello --from-literal=to=everyone":             "TestPage",
	"kubectl get configmap hello":                                           "TestPage",
	"portico certs installation --dir=pki --server=https://portico.example.com:6443 --gateway-host=portico.example.com --gateway-host=gateway-0 --gateway-host=gateway-1 --gateway-host=gateway-2 --core-host=server-0 --core-host=server-1 --crd-host=server-0 --crd-host=server-1 --etcd-host=etcd-0 --etcd-host=etcd-1 --etcd-host=etcd-2": "TestPage",
	"portico register core --all-groups --url=https://server-0:7443 --url=https://server-1:7443 --ca-file=pki/admin/serving-ca.crt --health-path='/readyz?exclude=etcd&exclude=etcd-readiness'":                                                                                                                                               "TestRegisteredServers",
	"portico register crd --all-groups --url=https://server-0:7444 --url=https://server-1:7444 --ca-file=pki/admin/serving-ca.crt --health-path='/readyz?exclude=etcd&exclude=etcd-readiness'":                                                                                                                                                "TestRegisteredServers",
	"portico upgrade-check --etcd-servers=https://etcd-0:2379,https://etcd-1:2379,https://etcd-2:2379 --etcd-cafile=/etc/portico/pki/etcd-ca.crt --etcd-certfile=/etc/portico/pki/etcd-client.crt --etcd-keyfile=/etc/portico/pki/etcd-client.key --config=/etc/portico/portico.yaml":                                                         "TestPage",
	"portico certs installation --dir=next $flags": "TestReplaceTheAuthorities",
	"portico certs installation --dir=pki $flags":  "TestReplaceTheAuthorities",
	// docs/adopting.md
	"kubectl ws :root:team": "by hand: it needs kcp",
	"kubectl get namespaces -o json | jq \"$CLEAN\" > namespaces.json":                                           "by hand: it needs kcp",
	"kubectl get customresourcedefinitions -o json | jq \"$CLEAN\" > definitions.json":                           "by hand: it needs kcp",
	"kubectl get configmaps,secrets,widgets.example.com --all-namespaces -o json | jq \"$CLEAN\" > objects.json": "by hand: it needs kcp",
	"portico up --data-dir=portico-data --service-cluster-ip-range=10.43.0.0/16":                                 "TestUpOnTheSnapshotOfAnotherEtcd",
	// docs/scaling.md
	"portico core --config=/etc/portico/portico.yaml":                            "TestReplicas",
	"portico crd --config=/etc/portico/portico.yaml":                             "TestReplicas",
	"portico gateway --config=/etc/portico/portico.yaml":                         "TestReplicas",
	"kubectl label backends core crd kube-aggregator.kubernetes.io/automanaged-": "TestReplicas",
}

// documentsOf returns the documents of the repository by their paths.
func documentsOf(t *testing.T) map[string]string {
	t.Helper()
	texts := map[string]string{}
	for _, pattern := range []string{"*.md", "docs/*.md", "deploy/*/*.md", "deploy/helm/*/*.md"} {
		names, err := filepath.Glob(filepath.Join(e2e.Repository(), pattern))
		if err != nil || len(names) == 0 {
			t.Fatalf("no documents %s: %v", pattern, err)
		}
		for _, name := range names {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			texts[strings.TrimPrefix(name, e2e.Repository()+"/")] = string(text)
		}
	}
	return texts
}

// followed are the pages of which TestPages of cmd/e2e/pages runs every command.
var followed = []string{"deploy/systemd/README.md", "deploy/container/README.md"}

// commandLine is a command in an indented block of a document.
var commandLine = regexp.MustCompile(`(?m)^ {4,}(?:\$ )?((?:\w+=\S+ )*(?:portico|kubectl|go|sudo|docker|systemctl|journalctl) [\w-].+)$`)

// scriptLines returns the commands that scripts run.
func scriptLines(t *testing.T) (lines []string) {
	t.Helper()
	names, err := filepath.Glob("testdata/script/*.txtar")
	if err != nil || len(names) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	run := regexp.MustCompile(`(?m)^(?:! |\? )?(?:exec|until '[^']*') (.+)$`)
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range run.FindAllStringSubmatch(string(text), -1) {
			lines = append(lines, strings.ReplaceAll(m[1], "$REPO/", ""))
		}
	}
	return lines
}

// Every command in the documents is run by a script, by the test that runElsewhere names, or
// by TestPages.
func TestDocumentedCommands(t *testing.T) {
	scripts := scriptLines(t)
	seen := map[string]bool{}
	for name, text := range documentsOf(t) {
		if slices.Contains(followed, name) {
			continue
		}
		for _, m := range commandLine.FindAllStringSubmatch(text, -1) {
			line := m[1]
			seen[line] = true
			if runElsewhere[line] == "" && !slices.Contains(scripts, line) {
				t.Errorf("%s: nothing runs %q", name, line)
			}
		}
	}
	for line := range runElsewhere {
		if !seen[line] {
			t.Errorf("no document has %q any more", line)
		}
	}
}

// Every command that a document names in its text exists and takes the flags
// beside it.
func TestCommandsNamedInText(t *testing.T) {
	named := regexp.MustCompile("`portico ([^`\n]+)`")
	for name, text := range documentsOf(t) {
		for _, m := range named.FindAllStringSubmatch(text, -1) {
			if strings.HasPrefix(m[1], "COMMAND") {
				continue
			}
			cmd, rest, err := newRoot().Find(strings.Fields(m[1]))
			if err == nil {
				cmd.InitDefaultHelpFlag()
				err = cmd.ParseFlags(rest)
			}
			if err != nil {
				t.Errorf("%s: portico %s: %v", name, m[1], err)
			}
		}
	}
}

// The table of flags in docs/operations.md names each flag of the processes, and
// no other, and which of them are reloaded with the configuration file.
func TestDocumentedFlags(t *testing.T) {
	_, table, _ := strings.Cut(documentsOf(t)["docs/operations.md"], "\n## Flags\n")
	table, _, _ = strings.Cut(table, "\n## ")
	var documented []string
	for _, m := range regexp.MustCompile("`--([a-z0-9-]+)`").FindAllStringSubmatch(table, -1) {
		documented = append(documented, m[1])
	}
	var reloaded []string
	for _, row := range regexp.MustCompile(`(?m)^\| (.*?) \| .*? \| config \|`).FindAllStringSubmatch(table, -1) {
		for _, m := range regexp.MustCompile("`--([a-z0-9-]+)`").FindAllStringSubmatch(row[1], -1) {
			reloaded = append(reloaded, m[1])
		}
	}
	if slices.Sort(reloaded); !slices.Equal(reloaded, config.Reloaded) {
		t.Errorf("docs/operations.md says that %q are reloaded, which %q are", reloaded, config.Reloaded)
	}
	known := map[string]bool{}
	for _, cmd := range newRoot().Commands() {
		if !slices.Contains([]string{"up", "gateway", "core", "crd"}, cmd.Name()) {
			continue
		}
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if strings.HasPrefix(f.Name, "help") {
				return
			}
			known[f.Name] = true
			if !strings.HasPrefix(f.Name, server.AuditPrefix) && !slices.Contains(documented, f.Name) {
				t.Errorf("docs/operations.md does not name --%s of %s", f.Name, cmd.CommandPath())
			}
		})
	}
	for _, name := range documented {
		if !known[name] && !strings.HasPrefix(name, "help") {
			t.Errorf("docs/operations.md names --%s, which no process takes", name)
		}
	}
}
