//go:build strangers

package strangers

import (
	"encoding/json"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/yaml"

	"portico/cmd/e2e"
	"portico/cmd/e2e/manifests"
)

// chartValues are values of the chart deploy/helm/portico by the name of a test.
var chartValues = map[string]string{
	"default":       "",
	"cert-manager":  "certManager: {enabled: true, hosts: [portico.example.com, 192.0.2.1]}",
	"external etcd": "etcd: {enabled: false, servers: ['https://etcd-0.example.com:2379'], secretName: etcd-user}",
	"external etcd and cert-manager": "etcd: {enabled: false, servers: ['https://etcd-0.example.com:2379'], secretName: etcd-user}\n" +
		"certManager: {enabled: true}",
	"other names and numbers": "fullnameOverride: edge\ngateway: {replicas: 3, service: {type: LoadBalancer, port: 6443}, pod: {nodeSelector: {a: b}}}\n" +
		"core: {replicas: 3}\ncrd: {replicas: 1}\netcd: {replicas: 5, storage: {size: 1Gi, className: fast}}\n" +
		"config: {all: {v: 1}, gateway: {goaway-chance: 0}, core: {event-ttl: 2h}}",
}

// TestHelmChart checks the chart of Portico: its objects fit together, are those of deploy/kubernetes, and live as releases
// by the commands of its README.
func TestHelmChart(t *testing.T) {
	t.Parallel()
	up := e2e.Install(t, t.TempDir())
	h := newHelm(t, up)
	h.chart = filepath.Join(e2e.Repository(), "deploy/helm/portico")
	for name, values := range chartValues {
		t.Run(name, func(t *testing.T) { chartFits(t, h, values) })
	}
	t.Run("plain manifests", func(t *testing.T) { chartIsPlain(t, up, h) })
	t.Run("cert-manager runs", func(t *testing.T) { chartRuns(t, h) })
	t.Run("wrong values", func(t *testing.T) { chartRefuses(t, h) })
	t.Run("releases", func(t *testing.T) { chartReleases(t, up, h) })
}

// chartFits checks the objects of the chart with some values.
func chartFits(t *testing.T, h *helm, values string) {
	file := filepath.Join(t.TempDir(), "values.yaml")
	e2e.WriteFile(t, file, values)
	h.shows(t, "lint --strict CHART -f "+file, "0 chart(s) failed")
	rendered := run(t, "", h.env, h.program, "template", "portico", h.chart, "--namespace=portico", "--values="+file)
	name := "portico"
	if strings.Contains(values, "fullnameOverride: edge") {
		name = "edge"
	}
	secrets := manifests.MakeSecrets(t, t.TempDir(), name, "https://localhost:6443")
	user := secrets[name+"-gateway"]
	if strings.Contains(values, "certManager") {
		secrets = issueCertificates(t, rendered)
	}
	secrets["etcd-user"] = map[string][]byte{"ca.crt": user["etcd-ca.crt"], "tls.crt": user["etcd-client.crt"], "tls.key": user["etcd-client.key"]}
	set, err := manifests.Parse(rendered, secrets)
	if err != nil {
		t.Fatal(err)
	}
	for _, problem := range set.Check() {
		t.Error(problem)
	}
	if want := 4 - strings.Count(values, "enabled: false"); len(set.Workloads) != want {
		t.Errorf("there are %d workloads, want %d", len(set.Workloads), want)
	}
	for _, w := range set.Workloads {
		if w.Component != "etcd" {
			set.CheckProgram(t, w)
		}
	}
}

// chartIsPlain checks that the chart without values makes the objects of deploy/kubernetes.
func chartIsPlain(t *testing.T, up *e2e.Installation, h *helm) {
	plain := specs(t, up.MustKubectl(t, "kustomize", filepath.Join(e2e.Repository(), "deploy/kubernetes")))
	chart := specs(t, run(t, "", h.env, h.program, "template", "portico", h.chart, "--namespace=portico"))
	for name, spec := range plain {
		if !reflect.DeepEqual(spec, chart[name]) {
			t.Errorf("%s is, of deploy/kubernetes and of the chart:\n%s\n%s", name, asJSON(t, spec), asJSON(t, chart[name]))
		}
	}
	if len(plain) != len(chart) {
		t.Errorf("deploy/kubernetes has %d objects, the chart %d", len(plain), len(chart))
	}
}

// own matches what the chart or kustomize alone have: labels of releases, names of ConfigMaps, and pull policies.
var own = regexp.MustCompile(`(?m)^ *(- )?(app.kubernetes.io/(instance|managed-by)|helm.sh/chart|imagePullPolicy|checksum/config|annotations):.*\n|` +
	`^ *- key: app.kubernetes.io/instance\n *operator: In\n *values:\n *- portico\n|-[a-z0-9]{10}$`)

// specs returns spec or data of objects by kind and name.
func specs(t *testing.T, text string) map[string]any {
	t.Helper()
	out := map[string]any{}
	for document := range strings.SplitSeq("\n"+text, "\n---") {
		canonical, err := yaml.YAMLToJSON([]byte(document))
		if err != nil {
			t.Fatal(err)
		}
		lines, err := yaml.JSONToYAML(canonical)
		if err != nil {
			t.Fatal(err)
		}
		var object struct {
			Kind       string
			Metadata   struct{ Name string }
			Spec, Data any
		}
		if err := yaml.Unmarshal(own.ReplaceAll(lines, nil), &object); err != nil {
			t.Fatal(err)
		}
		if data, ok := object.Data.(map[string]any); ok {
			var config any
			if err := yaml.Unmarshal([]byte(data["portico.yaml"].(string)), &config); err != nil {
				t.Fatal(err)
			}
			object.Data = config
		}
		if object.Kind != "" {
			out[object.Kind+" "+object.Metadata.Name] = []any{object.Spec, object.Data}
		}
	}
	return out
}

func asJSON(t *testing.T, value any) string {
	t.Helper()
	out, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// chartRuns checks that the processes run with the certificates of cert-manager.
func chartRuns(t *testing.T, h *helm) {
	rendered := run(t, "", h.env, h.program, "template", "portico", h.chart, "--namespace=portico", "--set=certManager.enabled=true")
	set, err := manifests.Parse(rendered, nil)
	if err != nil {
		t.Fatal(err)
	}
	secrets, c := issueCertificates(t, rendered), manifests.NewCluster(t, set)
	c.Start(t, secrets)
	admin := secrets["portico-admin"]
	config := clientcmdapi.NewConfig()
	config.Clusters["portico"] = &clientcmdapi.Cluster{Server: "https://" + c.Address("portico-gateway-1", 6443), CertificateAuthorityData: secrets["portico-gateway"]["ca.crt"]}
	config.AuthInfos["admin"] = &clientcmdapi.AuthInfo{ClientCertificateData: admin["tls.crt"], ClientKeyData: admin["tls.key"]}
	config.Contexts["admin"] = &clientcmdapi.Context{Cluster: "portico", AuthInfo: "admin"}
	config.CurrentContext = "admin"
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		t.Fatal(err)
	}
	c.Serve(t, file)
}

// chartRefuses checks that wrong values are refused by their names.
func chartRefuses(t *testing.T, h *helm) {
	for values, want := range map[string]string{
		"gateway.replica=3":              "additional properties 'replica' not allowed",
		"gateway.replicas=none":          "/gateway/replicas",
		"etcd.replicas=2":                "/etcd/replicas",
		"etcd.enabled=false":             "/etcd/servers",
		"etcd.servers={https://a:2379}":  "/etcd/servers",
		"config.core.EventTTL=2h":        "invalid propertyName 'EventTTL'",
		"config.processes.v=1":           "additional properties 'processes' not allowed",
		"certManager.duration=90d":       "/certManager/duration",
		"gateway.service.type=Anything":  "/gateway/service/type",
		"networkPolicy.monitoring=other": "additional properties 'monitoring' not allowed",
	} {
		h.refuses(t, "template portico CHART --set "+values, want)
	}
}

// chartReleases runs the commands of Helm of the chart's README, in their order, and checks what they lead to.
func chartReleases(t *testing.T, up *e2e.Installation, h *helm) {
	field := func(object, path, want string) {
		t.Helper()
		if got := up.MustKubectl(t, "get", "-n", "portico", object, "-o", "jsonpath="+path); got != want {
			t.Errorf("%s of %s is %q, want %q", path, object, got, want)
		}
	}
	up.MustKubectl(t, "apply", "-f", filepath.Join(e2e.Repository(), "deploy/kubernetes/namespace.yaml"))
	for _, definitions := range []string{filepath.Join(source(t, certManagerModule), "deploy/crds"), filepath.Join(source(t, prometheusOperatorModule), "example/prometheus-operator-crd")} {
		up.MustKubectl(t, "apply", "--server-side", "-f", definitions)
		up.MustKubectl(t, "wait", "--for=condition=Established", "--timeout=60s", "-f", definitions)
	}
	up.MustKubectl(t, "apply", "-f", filepath.Join(e2e.Repository(), "deploy/kubernetes/servicemonitor.yaml"))
	up.MustKubectl(t, "delete", "-f", filepath.Join(e2e.Repository(), "deploy/kubernetes/servicemonitor.yaml"))
	image := "{.spec.template.spec.containers[0].image}"
	checks := []func(){
		func() { // install
			field("deployment/portico-gateway", image, "registry.example.com/portico:0.1.0")
			field("statefulset/portico-etcd", "{.spec.replicas}", "3")
		},
		func() { // cert-manager
			field("certificate/portico-gateway", "{.spec.dnsNames[-1]}", "portico.example.com")
			field("certificate/portico-core-client", "{.spec.commonName}", "system:portico:core")
		},
		func() { // configuration
			field("deployment/portico-gateway", "{.spec.replicas}", "3")
			if config := up.MustKubectl(t, "get", "-n", "portico", "configmap/portico", "-o", "yaml"); !strings.Contains(config, "event-ttl: 2h") {
				t.Errorf("the configuration is\n%s", config)
			}
			field("statefulset/portico-crd", "{.metadata.generation}", "3")
			field("statefulset/portico-etcd", "{.metadata.generation}", "2")
		},
		func() { field("statefulset/portico-core", image, "registry.example.com/portico:0.2.0") },
		func() { field("statefulset/portico-core", image, "registry.example.com/portico:0.1.0") },
		func() { // monitoring
			field("servicemonitor/portico", "{.spec.endpoints[0].port}", "probes")
			field("prometheusrule/portico", "{.spec.groups[0].name}", "portico-recorded")
		},
		func() { // uninstall
			if left := up.MustKubectl(t, "get", "-n", "portico", "deploy,sts,svc,cm,sa,pdb,netpol,certificates,issuers,servicemonitors,prometheusrules", "-o", "name"); left != "configmap/kube-root-ca.crt\nserviceaccount/default\n" {
				t.Errorf("after helm uninstall there are:\n%s", left)
			}
		},
	}
	commands := regexp.MustCompile(`(?m)^    helm (.+)$`).FindAllStringSubmatch(read(t, h.chart, "README.md"), -1)
	if len(commands) != len(checks) {
		t.Fatalf("the README has %d commands of Helm, want %d", len(commands), len(checks))
	}
	for i, check := range checks {
		t.Log("helm " + commands[i][1])
		run(t, e2e.Repository(), h.env, h.program, strings.Fields(commands[i][1])...)
		check()
	}
	if !slices.Contains(strings.Fields(commands[0][1]), "install") {
		t.Errorf("the README begins with helm %s", commands[0][1])
	}
}
