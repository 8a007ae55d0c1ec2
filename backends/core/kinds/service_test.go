package kinds

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"

	"portico/resource"
	"portico/resource/rest"
)

func TestServiceDefaults(t *testing.T) {
	k := kind(t, "services")
	svc := decode[*corev1.Service](t, k, `{"spec":{"ports":[{"port":80},{"port":81,"targetPort":"web","protocol":"UDP"}],"sessionAffinity":"ClientIP"}}`)
	k.Strategy.PrepareCreate(t.Context(), svc)
	expect(t, allocated(t, k, svc, nil))
	spec := svc.Spec
	if spec.Type != corev1.ServiceTypeClusterIP || *spec.InternalTrafficPolicy != corev1.ServiceInternalTrafficPolicyCluster ||
		*spec.SessionAffinityConfig.ClientIP.TimeoutSeconds != 10800 || spec.ExternalTrafficPolicy != "" {
		t.Errorf("got %+v", spec)
	}
	if spec.Ports[0].TargetPort.IntValue() != 80 || spec.Ports[0].Protocol != corev1.ProtocolTCP ||
		spec.Ports[1].TargetPort.StrVal != "web" || spec.Ports[1].Protocol != corev1.ProtocolUDP {
		t.Errorf("ports %+v", spec.Ports)
	}
	if !slices.Equal(spec.IPFamilies, []corev1.IPFamily{corev1.IPv4Protocol}) || *spec.IPFamilyPolicy != corev1.IPFamilyPolicySingleStack {
		t.Errorf("families %v, policy %v", spec.IPFamilies, *spec.IPFamilyPolicy)
	}

	lb := decode[*corev1.Service](t, k, `{"spec":{"type":"LoadBalancer","ports":[{"port":80}]},"status":{"loadBalancer":{"ingress":[{"ip":"192.0.2.1"}]}}}`)
	if lb.Spec.ExternalTrafficPolicy != corev1.ServiceExternalTrafficPolicyCluster || !*lb.Spec.AllocateLoadBalancerNodePorts ||
		*lb.Status.LoadBalancer.Ingress[0].IPMode != corev1.LoadBalancerIPModeVIP || lb.Spec.SessionAffinity != corev1.ServiceAffinityNone {
		t.Errorf("got %+v %+v", lb.Spec, lb.Status)
	}
	name := decode[*corev1.Service](t, k, `{"spec":{"type":"ExternalName","externalName":"a.example"}}`)
	k.Strategy.PrepareCreate(t.Context(), name)
	expect(t, allocated(t, k, name, nil))
	if name.Spec.InternalTrafficPolicy != nil || name.Spec.IPFamilyPolicy != nil || name.Spec.IPFamilies != nil {
		t.Errorf("ExternalName got %+v", name.Spec)
	}
}

// Each manifest is created, or updates the one before.
func TestServiceFamilies(t *testing.T) {
	const stored = `"clusterIP":"10.0.0.1","clusterIPs":["10.0.0.1","fd00::1"],"ipFamilies":["IPv4","IPv6"]`
	for _, c := range []struct {
		name, cluster, old, spec, want, policy string
		errs                                   []string
	}{
		{"default", "IPv4", "", `{}`, "IPv4", "SingleStack", nil},
		{"default of the primary family", "IPv6 IPv4", "", `{}`, "IPv6", "SingleStack", nil},
		{"PreferDualStack on single stack", "IPv4", "", `{"ipFamilyPolicy":"PreferDualStack"}`, "IPv4", "PreferDualStack", nil},
		{"PreferDualStack on dual stack", "IPv6 IPv4", "", `{"ipFamilyPolicy":"PreferDualStack"}`, "IPv6 IPv4", "PreferDualStack", nil},
		{"RequireDualStack, family chosen", "IPv4 IPv6", "", `{"ipFamilyPolicy":"RequireDualStack","ipFamilies":["IPv6"]}`, "IPv6 IPv4", "RequireDualStack", nil},
		{"families of addresses", "IPv4 IPv6", "", `{"ipFamilyPolicy":"PreferDualStack","clusterIP":"fd00::1"}`, "IPv6 IPv4", "PreferDualStack", nil},
		{"two addresses of one stack", "IPv4 IPv6", "", `{` + stored + `,"ipFamilyPolicy":"SingleStack"}`, "", "", []string{
			"spec.ipFamilyPolicy: Invalid value: \"SingleStack\": must be 'RequireDualStack' or 'PreferDualStack' when multiple cluster IPs are specified",
			"spec.ipFamilyPolicy: Invalid value: \"SingleStack\": must be 'RequireDualStack' or 'PreferDualStack' when multiple IP families are specified"}},
		{"address of another family", "IPv4", "", `{"clusterIP":"fd00::1"}`, "", "", []string{`spec.clusterIPs[0]: Invalid value: ["fd00::1"]: IPv6 is not configured on this cluster`}},
		{"headless", "IPv4", "", `{"clusterIP":"None","selector":{"a":"b"}}`, "IPv4", "SingleStack", nil},
		{"headless without a selector", "IPv4", "", `{"clusterIP":"None"}`, "IPv4 IPv6", "RequireDualStack", nil},
		{"upgrade", "IPv4 IPv6", `{"clusterIP":"10.0.0.1","clusterIPs":["10.0.0.1"],"ipFamilies":["IPv4"],"ipFamilyPolicy":"SingleStack"}`,
			`{"ipFamilyPolicy":"PreferDualStack"}`, "IPv4 IPv6", "PreferDualStack", nil},
		{"downgrade", "IPv4 IPv6", `{` + stored + `,"ipFamilyPolicy":"PreferDualStack"}`, `{` + stored + `,"ipFamilyPolicy":"SingleStack"}`, "IPv4", "SingleStack", nil},
		{"downgrade without the policy", "IPv4 IPv6", `{` + stored + `,"ipFamilyPolicy":"PreferDualStack"}`, `{"clusterIP":"10.0.0.1","clusterIPs":["10.0.0.1"]}`, "", "",
			[]string{"spec.ipFamilyPolicy: Invalid value: \"PreferDualStack\": must be 'SingleStack' to release the secondary cluster IP"}},
		{"kept by a cluster of one family", "IPv4", `{` + stored + `,"ipFamilyPolicy":"PreferDualStack"}`, `{` + stored + `,"ipFamilyPolicy":"PreferDualStack"}`,
			"IPv4 IPv6", "PreferDualStack", nil},
		{"RequireDualStack on single stack", "IPv4", "", `{"ipFamilyPolicy":"RequireDualStack"}`, "", "",
			[]string{`spec.ipFamilyPolicy: Invalid value: "RequireDualStack": this cluster is not configured for dual-stack services`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var cluster, got []string
			cluster = strings.Fields(c.cluster)
			var cfg Config
			for _, f := range cluster {
				cfg.ServiceFamilies = append(cfg.ServiceFamilies, corev1.IPFamily(f))
			}
			k := servicesRow(cfg)
			var old rest.Object
			if c.old != "" {
				old = decode[rest.Object](t, k, `{"metadata":{"name":"x"},"spec":`+c.old+`}`)
			}
			svc := decode[*corev1.Service](t, k, `{"metadata":{"name":"x"},"spec":`+c.spec+`}`)
			errs := allocated(t, k, svc, old)
			expect(t, errs, c.errs...)
			for _, f := range svc.Spec.IPFamilies {
				got = append(got, string(f))
			}
			if len(errs) == 0 && (strings.Join(got, " ") != c.want || string(*svc.Spec.IPFamilyPolicy) != c.policy) {
				t.Errorf("families %v, policy %v", got, *svc.Spec.IPFamilyPolicy)
			}
		})
	}
}

func servicesRow(cfg Config) *rest.Kind {
	rows := All(cfg)
	return rows[slices.IndexFunc(rows, func(k *rest.Kind) bool { return k.Resource == "services" })]
}

func TestServiceRules(t *testing.T) {
	checkCreations(t, kind(t, "services"), `{"spec":%s}`, []creation{
		{"cluster IP", `{"ports":[{"port":80}]}`, nil},
		{"no ports", `{}`, []string{"spec.ports: Required value"}},
		{"headless without ports", `{"clusterIP":"None","selector":{"a":"b"}}`, nil},
		{"type", `{"type":"Magic","ports":[{"port":80}]}`,
			[]string{`spec.type: Unsupported value: "Magic": supported values: "ClusterIP", "ExternalName", "LoadBalancer", "NodePort"`}},
		{"headless node port", `{"type":"NodePort","clusterIP":"None","selector":{"a":"b"},"ports":[{"port":80}]}`,
			[]string{`spec.clusterIPs[0]: Invalid value: "None": may not be set to 'None' for NodePort services`}},
		{"node port of cluster IP", `{"ports":[{"port":80,"nodePort":30000}]}`,
			[]string{"spec.ports[0].nodePort: Forbidden: may not be used when `type` is 'ClusterIP'"}},
		{"external name", `{"type":"ExternalName","externalName":"localhost"}`, nil},
		{"external name, qualified", `{"type":"ExternalName","externalName":"a.example."}`, nil},
		{"external name, missing", `{"type":"ExternalName","clusterIP":"10.0.0.1","ipFamilyPolicy":"SingleStack"}`, []string{
			"spec.clusterIPs: Forbidden: may not be set for ExternalName services",
			"spec.ipFamilyPolicy: Forbidden: may not be set for ExternalName services",
			"spec.externalName: Required value"}},
		{"two ports", `{"ports":[{"port":80},{"name":"b","port":80}]}`, []string{
			"spec.ports[0].name: Required value",
			`spec.ports[1]: Duplicate value: {"protocol":"TCP","port":80,"targetPort":0}`}},
		{"two names", `{"ports":[{"name":"a","port":80},{"name":"a","port":81}]}`, []string{`spec.ports[1].name: Duplicate value: "a"`}},
		{"one port for two protocols", `{"ports":[{"name":"a","port":53},{"name":"b","port":53,"protocol":"UDP"}]}`, nil},
		{"port", `{"ports":[{"port":0,"targetPort":"Under_score","protocol":"ICMP"}]}`, []string{
			"spec.ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive",
			`spec.ports[0].protocol: Unsupported value: "ICMP": supported values: "SCTP", "TCP", "UDP"`,
			`spec.ports[0].targetPort: Invalid value: "Under_score": must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)`}},
		{"affinity", `{"sessionAffinity":"ClientIP","sessionAffinityConfig":{"clientIP":{"timeoutSeconds":86401}},"ports":[{"port":80}]}`,
			[]string{"spec.sessionAffinityConfig.clientIP.timeoutSeconds: Invalid value: 86401: must be greater than 0 and less than 86400"}},
		{"address", `{"clusterIP":"10.0.0.300","ports":[{"port":80}]}`,
			[]string{`spec.clusterIPs[0]: Invalid value: "10.0.0.300": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)`}},
		{"first address", `{"clusterIP":"10.0.0.1","clusterIPs":["10.0.0.2"],"ports":[{"port":80}]}`,
			[]string{"spec.clusterIPs: Invalid value: [\"10.0.0.2\"]: first value must match `clusterIP`"}},
		{"addresses without the first", `{"clusterIPs":["10.0.0.2"],"ports":[{"port":80}]}`,
			[]string{"spec.clusterIPs: Invalid value: [\"10.0.0.2\"]: must be empty when `clusterIP` is not specified"}},
		{"family", `{"clusterIP":"10.0.0.1","ipFamilies":["IPv6"],"ports":[{"port":80}]}`, []string{
			"spec.clusterIPs[0]: Invalid value: \"10.0.0.1\": expected an IPv6 value as indicated by `ipFamilies[0]`"}},
		{"family that is not configured", `{"ipFamilies":["IPv6"],"ports":[{"port":80}]}`, []string{
			`spec.ipFamilies[0]: Invalid value: "IPv6": not configured on this cluster`}},
		{"dual stack", `{"ipFamilyPolicy":"RequireDualStack","ports":[{"port":80}]}`,
			[]string{`spec.ipFamilyPolicy: Invalid value: "RequireDualStack": this cluster is not configured for dual-stack services`}},
		{"external addresses", `{"externalIPs":["127.0.0.1","x"],"ports":[{"port":80}]}`, []string{
			`spec.externalIPs[0]: Invalid value: "127.0.0.1": may not be in the loopback range (127.0.0.0/8, ::1/128)`,
			`spec.externalIPs[1]: Invalid value: "x": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)`}},
		{"load balancer fields", `{"loadBalancerSourceRanges":["10.0.0.0/8"],"loadBalancerClass":"a","allocateLoadBalancerNodePorts":true,"ports":[{"port":80}]}`, []string{
			"spec.LoadBalancerSourceRanges: Forbidden: may only be used when `type` is 'LoadBalancer'",
			"spec.allocateLoadBalancerNodePorts: Forbidden: may only be used when `type` is 'LoadBalancer'",
			"spec.loadBalancerClass: Forbidden: may only be used when `type` is 'LoadBalancer'"}},
		{"local load balancer", `{"type":"LoadBalancer","externalTrafficPolicy":"Local","healthCheckNodePort":30001,"loadBalancerSourceRanges":[" 10.0.0.0/8 "],"ports":[{"port":80}]}`, nil},
		{"traffic", `{"externalTrafficPolicy":"Local","healthCheckNodePort":1,"internalTrafficPolicy":"x","trafficDistribution":"y","ports":[{"port":80}]}`, []string{
			`spec.externalTrafficPolicy: Invalid value: "Local": may only be set for externally-accessible services`,
			"spec.healthCheckNodePort: Invalid value: 1: may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'",
			`spec.internalTrafficPolicy: Unsupported value: "x": supported values: "Cluster", "Local"`,
			`spec.trafficDistribution: Unsupported value: "y": supported values: "PreferClose", "PreferSameZone", "PreferSameNode"`}},
	})
}

func TestServiceChanges(t *testing.T) {
	const web = `"ports":[{"port":80,"protocol":"TCP","targetPort":80}]`
	const stored = `{"spec":{"clusterIP":"10.0.0.1","clusterIPs":["10.0.0.1"],"ipFamilies":["IPv4"],"ipFamilyPolicy":"SingleStack",` + web + `}}`
	checkChanges(t, kind(t, "services"), []changeOne{
		{"the first manifest again", stored, `{"spec":{` + web + `}}`, nil},
		{"another address", stored, `{"spec":{"clusterIP":"10.0.0.2",` + web + `}}`,
			[]string{`spec.clusterIPs[0]: Invalid value: ["10.0.0.2"]: may not change once set`}},
		{"another address, lists kept", stored, `{"spec":{"clusterIP":"10.0.0.2","clusterIPs":["10.0.0.1"],` + web + `}}`,
			[]string{`spec.clusterIPs[0]: Invalid value: ["10.0.0.2"]: may not change once set`}},
		{"to headless", stored, `{"spec":{"clusterIP":"None","clusterIPs":["None"],` + web + `}}`,
			[]string{`spec.clusterIPs[0]: Invalid value: ["None"]: may not change once set`}},
		{"to external name, address kept", stored,
			`{"spec":{"type":"ExternalName","externalName":"a.example","clusterIP":"10.0.0.1","clusterIPs":["10.0.0.1"],"ipFamilies":["IPv4"],"ipFamilyPolicy":"SingleStack"}}`, nil},
		{"from external name", `{"spec":{"type":"ExternalName","externalName":"a.example"}}`, `{"spec":{` + web + `}}`, nil},
		{"load balancer class", `{"spec":{"type":"LoadBalancer","loadBalancerClass":"a",` + web + `}}`,
			`{"spec":{"type":"LoadBalancer","loadBalancerClass":"b",` + web + `}}`,
			[]string{`spec.loadBalancerClass: Invalid value: "b": may not change once set`}},
		{"load balancer to cluster IP", `{"spec":{"type":"LoadBalancer","loadBalancerClass":"a","allocateLoadBalancerNodePorts":true,"externalTrafficPolicy":"Local","healthCheckNodePort":30001,"ports":[{"port":80,"nodePort":30000}]}}`,
			`{"spec":{"type":"ClusterIP","loadBalancerClass":"a","allocateLoadBalancerNodePorts":true,"externalTrafficPolicy":"Local","healthCheckNodePort":30001,"ports":[{"port":80,"nodePort":30000}]}}`, nil},
	})
}

func TestServiceKeepsNodePorts(t *testing.T) {
	k := kind(t, "services")
	old := decode[*corev1.Service](t, k, `{"spec":{"type":"NodePort","ports":[{"name":"a","port":80,"nodePort":30000},{"name":"b","port":81,"nodePort":30001}]}}`)
	svc := decode[*corev1.Service](t, k, `{"spec":{"type":"NodePort","ports":[{"name":"a","port":8080},{"name":"b","port":81},{"name":"c","port":82,"nodePort":30001}]}}`)
	expect(t, allocated(t, k, svc, old))
	var got []int32
	for _, p := range svc.Spec.Ports {
		got = append(got, p.NodePort)
	}
	if want := []int32{30000, 0, 30001}; !slices.Equal(got, want) {
		t.Errorf("node ports %v, want %v", got, want)
	}
}

// Fields of addresses are complete and well formed when they are allocated.
func TestServiceAllocate(t *testing.T) {
	calls := 0
	k := servicesRow(Config{ServiceFamilies: []corev1.IPFamily{"IPv4"}, AllocateService: func(_ context.Context, svc, old *corev1.Service, _ bool) (func(), error) {
		calls++
		if len(svc.Spec.IPFamilies) == 0 {
			return nil, errors.New("no families")
		}
		return nil, nil
	}})
	stored := decode[*corev1.Service](t, k, `{"spec":{"clusterIP":"10.0.0.1","clusterIPs":["10.0.0.1"],"ipFamilies":["IPv4"],"ipFamilyPolicy":"SingleStack"}}`)
	for _, c := range []struct {
		spec string
		old  rest.Object
		ok   bool
	}{
		{`{"ports":[{"port":80}]}`, nil, true},
		{`{"clusterIP":"x","ports":[{"port":80}]}`, nil, false},
		{`{"type":"ExternalName","externalName":"a","clusterIP":"10.0.0.1"}`, stored, true},
		{`{"type":"ExternalName","externalName":"a","internalTrafficPolicy":"Cluster"}`, nil, true},
	} {
		calls = 0
		svc := decode[*corev1.Service](t, k, `{"metadata":{"name":"x"},"spec":`+c.spec+`}`)
		_, err := k.Strategy.Allocate(t.Context(), svc, c.old, false)
		if external := svc.Spec.Type == corev1.ServiceTypeExternalName; (err == nil) != c.ok || (c.ok && !external) != (calls == 1) || !c.ok && !apierrors.IsInvalid(err) {
			t.Errorf("%s: %d calls, %v", c.spec, calls, err)
		}
		if svc.Spec.Type == corev1.ServiceTypeExternalName && (svc.Spec.ClusterIP != "" || svc.Spec.ClusterIPs != nil || svc.Spec.InternalTrafficPolicy != nil) {
			t.Errorf("%s keeps addresses or the traffic policy", c.spec)
		}
	}
}

// storedForms returns a Service as kube-apiserver may have stored it.
func storedForms(t *testing.T, k *rest.Kind, svc *corev1.Service) []*resource.Object {
	t.Helper()
	svc.APIVersion, svc.Kind = "v1", "Service"
	data, err := json.Marshal(svc)
	o, err2 := k.Codec.EncodeStored(svc)
	if err := errors.Join(err, err2); err != nil || o.Encoding != resource.Protobuf {
		t.Fatal(o, err)
	}
	return []*resource.Object{{Data: data}, o}
}

// A Service that an older Kubernetes stored, in any encoding, has the fields of addresses and the defaults
// when it is read, and changes to dual stack like another one.
func TestStoredServicesAreCompleted(t *testing.T) {
	k := servicesRow(Config{ServiceFamilies: []corev1.IPFamily{"IPv4", "IPv6"}})
	const complete = `"clusterIP":"10.0.0.1","clusterIPs":["10.0.0.1"],"ipFamilies":["IPv4"],"ipFamilyPolicy":"PreferDualStack","internalTrafficPolicy":"Local"`
	inCluster := strings.Replace(complete, "Local", "Cluster", 1)
	asLongAsAKey := strings.Repeat("x", 0xb2) // its length has the bytes of the key of internalTrafficPolicy, 0xb2 0x01
	for _, c := range []struct {
		spec, ips, families, policy string
		canonical                   bool
	}{
		{`{"clusterIP":"10.0.0.1"}`, "10.0.0.1", "IPv4", "SingleStack", false},
		{`{"clusterIP":"10.0.0.1","clusterIPs":["10.0.0.1"]}`, "10.0.0.1", "IPv4", "SingleStack", false},
		{`{"type":"LoadBalancer",` + complete + `}`, "10.0.0.1", "IPv4", "PreferDualStack", false},
		{`{"type":"ClusterIP","externalIPs":["192.0.2.9"],` + complete + `}`, "10.0.0.1", "IPv4", "PreferDualStack", false},
		{`{"type":"ClusterIP","externalIPs":["192.0.2.9"],"externalTrafficPolicy":"Cluster",` + complete + `}`, "10.0.0.1", "IPv4", "PreferDualStack", true},
		{`{"type":"ClusterIP",` + complete + `}`, "10.0.0.1", "IPv4", "PreferDualStack", true},
		{`{"type":"ClusterIP",` + inCluster + `}`, "10.0.0.1", "IPv4", "PreferDualStack", true},
		{`{"type":"NodePort","externalTrafficPolicy":"Local",` + inCluster + `}`, "10.0.0.1", "IPv4", "PreferDualStack", true},
		{`{"clusterIP":"fd00::1"}`, "fd00::1", "IPv6", "SingleStack", false},
		{`{"clusterIP":"None","selector":{"a":"b"}}`, "None", "IPv4", "SingleStack", false},
		{`{"clusterIP":"None"}`, "None", "IPv4 IPv6", "RequireDualStack", false},
		{`{"type":"ExternalName","externalName":"a","internalTrafficPolicy":"Cluster"}`, "", "", "", false},
		{`{"clusterIP":"10.0.0.1","clusterIPs":["10.0.0.1"],"ipFamilies":["IPv4"],"ipFamilyPolicy":"PreferDualStack"}`, "10.0.0.1", "IPv4", "PreferDualStack", false},
	} {
		var svc corev1.Service
		if err := json.Unmarshal([]byte(`{"apiVersion":"v1","kind":"Service","metadata":{"name":"x","annotations":{"a":"`+asLongAsAKey+`"}},"spec":`+c.spec+`,"status":{"loadBalancer":{"ingress":[{"ip":"192.0.2.1"}]}}}`), &svc); err != nil {
			t.Fatal(err)
		}
		for _, o := range storedForms(t, k, &svc) {
			decoded, err := k.Codec.DecodeStored(o)
			if err != nil {
				t.Fatal(err)
			}
			got, ingress := decoded.(*corev1.Service).Spec, decoded.(*corev1.Service).Status.LoadBalancer.Ingress[0]
			families := ""
			for _, f := range got.IPFamilies {
				families = strings.TrimSpace(families + " " + string(f))
			}
			if strings.Join(got.ClusterIPs, " ") != c.ips || families != c.families || string(ptr.Deref(got.IPFamilyPolicy, "")) != c.policy {
				t.Errorf("%s: got %+v", c.spec, got)
			}
			if external := got.Type == corev1.ServiceTypeExternalName; external != (got.InternalTrafficPolicy == nil) {
				t.Errorf("%s: internalTrafficPolicy %v", c.spec, got.InternalTrafficPolicy)
			}
			if balancer := got.Type == corev1.ServiceTypeLoadBalancer; balancer != (ingress.IPMode != nil) || balancer != (got.AllocateLoadBalancerNodePorts != nil) {
				t.Errorf("%s: ingress %v, allocateLoadBalancerNodePorts %v", c.spec, ingress, got.AllocateLoadBalancerNodePorts)
			}
			if len(got.ExternalIPs) > 0 && got.ExternalTrafficPolicy != corev1.ServiceExternalTrafficPolicyCluster {
				t.Errorf("%s: externalTrafficPolicy %q", c.spec, got.ExternalTrafficPolicy)
			}
			unchanged := k.Codec.(rest.CanonicalCodec).Canonical(o)
			if unchanged != c.canonical {
				t.Errorf("%s: canonical %v", c.spec, unchanged)
			}
		}
	}
	old, err := k.Codec.DecodeStored(storedForms(t, k, &corev1.Service{Spec: corev1.ServiceSpec{ClusterIP: "10.0.0.1", Ports: []corev1.ServicePort{{Port: 80}}}})[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, policy := range []corev1.IPFamilyPolicy{corev1.IPFamilyPolicyPreferDualStack, corev1.IPFamilyPolicyRequireDualStack} {
		svc := decode[*corev1.Service](t, k, `{"metadata":{"name":"x"},"spec":{"clusterIP":"10.0.0.1","ports":[{"port":80}],"ipFamilyPolicy":"`+string(policy)+`"}}`)
		expect(t, allocated(t, k, svc, old.(rest.Object)))
		if len(svc.Spec.IPFamilies) != 2 {
			t.Errorf("%s: families %v", policy, svc.Spec.IPFamilies)
		}
	}
}

func TestServiceStatus(t *testing.T) {
	k := kind(t, "services")
	status := k.Subresources[1].Strategy
	for _, c := range []struct {
		manifest string
		want     []string
	}{
		{`{"spec":{"type":"LoadBalancer"},"status":{"loadBalancer":{"ingress":[{"ip":"192.0.2.1"},{"hostname":"a.example"}]}}}`, nil},
		{`{"status":{"loadBalancer":{"ingress":[{"ip":"192.0.2.1"}]}}}`,
			[]string{"status.loadBalancer.ingress: Forbidden: may only be used when `spec.type` is 'LoadBalancer'"}},
		{`{"spec":{"type":"LoadBalancer"},"status":{"loadBalancer":{"ingress":[{"hostname":"192.0.2.1","ipMode":"VIP"}]}}}`, []string{
			"status.loadBalancer.ingress[0].ipMode: Forbidden: may not be specified when `ip` is not set",
			`status.loadBalancer.ingress[0].hostname: Invalid value: "192.0.2.1": must be a DNS name, not an IP address`}},
	} {
		svc := decode[*corev1.Service](t, k, c.manifest)
		expect(t, status.ValidateUpdate(t.Context(), svc, svc), c.want...)
	}
}

func TestServiceWarnings(t *testing.T) {
	k := kind(t, "services")
	svc := decode[*corev1.Service](t, k, `{"spec":{"clusterIP":"None","clusterIPs":["None"],"externalName":"a","externalIPs":["2001:DB8::1"],"trafficDistribution":"PreferClose"}}`)
	want := []string{
		"spec.externalIPs is ignored for headless services",
		`spec.externalIPs[0]: IPv6 address "2001:DB8::1" should be in RFC 5952 canonical format ("2001:db8::1")`,
		`spec.externalName is ignored when spec.type is not "ExternalName"`,
		`spec.trafficDistribution: "PreferClose" is deprecated; use "PreferSameZone"`,
	}
	if got := k.Strategy.Warnings(t.Context(), svc, nil); !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
}
