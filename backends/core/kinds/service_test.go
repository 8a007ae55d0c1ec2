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
		if c.old != nil {
			k.Strategy.PrepareUpdate(t.Context(), svc, c.old)
		}
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
