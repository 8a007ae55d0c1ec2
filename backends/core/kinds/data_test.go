package kinds

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"portico/backends/core/kinds/rules"
	"portico/resource/rest"
)

func TestConfigMapRules(t *testing.T) {
	k := kind(t, "configmaps")
	cm := decode[*corev1.ConfigMap](t, k, `{"data":{"a b":"1","c":"2"},"binaryData":{"c":"AA==","d/e":"AA=="}}`)
	const key = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' " +
		"(e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
	expect(t, k.Strategy.Validate(t.Context(), cm),
		`data[a b]: Invalid value: "a b": `+key,
		`data[c]: Invalid value: "c": duplicate of key present in binaryData`,
		`binaryData[d/e]: Invalid value: "d/e": `+key)

	half := strings.Repeat("x", corev1.MaxSecretSize/2)
	fits := &corev1.ConfigMap{Data: map[string]string{"a": half}, BinaryData: map[string][]byte{"b": []byte(half)}}
	expect(t, k.Strategy.Validate(t.Context(), fits))
	fits.Data["c"] = "x"
	expect(t, k.Strategy.Validate(t.Context(), fits), `[]: Too long: may not be more than 1048576 bytes`)

	const frozen = "field is immutable when `immutable` is set"
	checkChanges(t, k, []changeOne{
		{"mutable", `{"data":{"a":"1"}}`, `{"data":{"a":"2"}}`, nil},
		{"becomes immutable", `{"data":{"a":"1"}}`, `{"immutable":true,"data":{"a":"2"}}`, nil},
		{"labels only", `{"immutable":true,"data":{"a":"1"}}`, `{"immutable":true,"data":{"a":"1"},"metadata":{"labels":{"l":"m"}}}`, nil},
		{"everything", `{"immutable":true,"data":{"a":"1"}}`, `{"data":{"a":"2"},"binaryData":{"b":"AA=="}}`,
			[]string{"immutable: Forbidden: " + frozen, "binaryData: Forbidden: " + frozen, "data: Forbidden: " + frozen}},
	})
}

func TestSecretDefaults(t *testing.T) {
	s := decode[*corev1.Secret](t, kind(t, "secrets"), `{"data":{"a":"b2xk","b":"a2VlcA=="},"stringData":{"a":"new"}}`)
	if s.Type != corev1.SecretTypeOpaque || string(s.Data["a"]) != "new" || string(s.Data["b"]) != "keep" || s.StringData != nil {
		t.Errorf("got %+v", s)
	}
}

func TestSecretTypes(t *testing.T) {
	k := kind(t, "secrets")
	checkCreations(t, k, "%s", []creation{
		{"opaque", `{}`, nil},
		{"other", `{"type":"example.com/mine"}`, nil},
		{"service account", `{"type":"kubernetes.io/service-account-token"}`,
			[]string{"metadata.annotations[kubernetes.io/service-account.name]: Required value"}},
		{"dockercfg", `{"type":"kubernetes.io/dockercfg"}`, []string{"data[.dockercfg]: Required value"}},
		{"docker config", `{"type":"kubernetes.io/dockerconfigjson","stringData":{".dockerconfigjson":"secret"}}`,
			[]string{`data[.dockerconfigjson]: Invalid value: "<secret contents redacted>": invalid character 's' looking for beginning of value`}},
		{"docker config object", `{"type":"kubernetes.io/dockerconfigjson","stringData":{".dockerconfigjson":"{}"}}`, nil},
		{"basic", `{"type":"kubernetes.io/basic-auth"}`, []string{"data[username]: Required value", "data[password]: Required value"}},
		{"basic, one", `{"type":"kubernetes.io/basic-auth","stringData":{"password":""}}`, nil},
		{"ssh", `{"type":"kubernetes.io/ssh-auth","stringData":{"ssh-privatekey":""}}`, []string{"data[ssh-privatekey]: Required value"}},
		{"tls", `{"type":"kubernetes.io/tls","stringData":{"tls.crt":""}}`, []string{"data[tls.key]: Required value"}},
	})
	big := &corev1.Secret{Data: map[string][]byte{"a": make([]byte, corev1.MaxSecretSize+1)}}
	expect(t, k.Strategy.Validate(t.Context(), big), "data: Too long: may not be more than 1048576 bytes")
	checkChanges(t, k, []changeOne{
		{"type", `{}`, `{"type":"example.com/mine"}`, []string{`type: Invalid value: "example.com/mine": field is immutable`}},
		{"immutable", `{"immutable":true,"stringData":{"a":"1"}}`, `{"immutable":true,"stringData":{"a":"2"}}`,
			[]string{"data: Forbidden: field is immutable when `immutable` is set"}},
	})
}

func TestEndpointsRules(t *testing.T) {
	k := kind(t, "endpoints")
	ep := decode[*corev1.Endpoints](t, k, `
subsets:
- {}
- addresses: [{ip: 127.0.0.1}, {ip: 10.0.0.1, hostname: A}, {ip: nope}]
  ports: [{port: 0}, {name: b, port: 80, protocol: ICMP}]
`)
	if got := ep.Subsets[1].Ports[0].Protocol; got != corev1.ProtocolTCP {
		t.Errorf("protocol %s", got)
	}
	const label = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an " +
		"alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
	expect(t, k.Strategy.Validate(t.Context(), ep),
		"subsets[0]: Required value: must specify `addresses` or `notReadyAddresses`",
		`subsets[1].addresses[0].ip: Invalid value: "127.0.0.1": may not be in the loopback range (127.0.0.0/8, ::1/128)`,
		`subsets[1].addresses[1].hostname: Invalid value: "A": `+label,
		`subsets[1].addresses[2].ip: Invalid value: "nope": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)`,
		`subsets[1].addresses[2].ip: Invalid value: "nope": must be a valid IP address`,
		`subsets[1].ports[0].name: Required value`,
		`subsets[1].ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive`,
		`subsets[1].ports[1].protocol: Unsupported value: "ICMP": supported values: "SCTP", "TCP", "UDP"`)
}

func TestNonSpecialIP(t *testing.T) {
	for ip, want := range map[string]string{
		"10.1.2.3":    "",
		"2001:db8::1": "",
		"0.0.0.0":     "may not be unspecified (0.0.0.0)",
		"::1":         "may not be in the loopback range (127.0.0.0/8, ::1/128)",
		"169.254.1.1": "may not be in the link-local range (169.254.0.0/16, fe80::/10)",
		"ff02::1":     "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)",
		"x":           "must be a valid IP address",
	} {
		errs := rules.NonSpecialIP(ip, nil)
		if got := len(errs) > 0; got != (want != "") || (got && errs[0].Detail != want) {
			t.Errorf("%s: %v, want %q", ip, errs, want)
		}
	}
}

func TestEndpointSliceRules(t *testing.T) {
	k := kind(t, "endpointslices.discovery.k8s.io")
	s := decode[*discoveryv1.EndpointSlice](t, k, `
addressType: IPv4
endpoints:
- {addresses: []}
- addresses: ["10.0.0.1", "2001:db8::1", "127.0.0.1"]
  hints: {forZones: [{name: a}, {name: a}]}
ports: [{port: 80}, {port: 81}, {name: x, protocol: ICMP}]
`)
	if p := s.Ports[0]; *p.Name != "" || *p.Protocol != corev1.ProtocolTCP {
		t.Errorf("port %+v", p)
	}
	expect(t, k.Strategy.Validate(t.Context(), s),
		"endpoints[0].addresses: Required value",
		`endpoints[1].addresses: Invalid value: "2001:db8::1": must be an IPv4 address`,
		`endpoints[1].addresses[2]: Invalid value: "127.0.0.1": may not be in the loopback range (127.0.0.0/8, ::1/128)`,
		`endpoints[1].hints.forZones[1].name: Duplicate value: "a"`,
		`ports[1].name: Duplicate value: ""`,
		`ports[2].protocol: Unsupported value: "ICMP": supported values: "SCTP", "TCP", "UDP"`)
	checkChanges(t, k, []changeOne{
		{"address type", `{"addressType":"IPv4"}`, `{"addressType":"IPv6"}`, []string{`addressType: Invalid value: null: field is immutable`}},
		{"no address type", `{"addressType":"IPv4"}`, `{}`,
			[]string{`addressType: Required value`, `addressType: Invalid value: null: field is immutable`}},
	})
}

func TestEndpointSliceGeneration(t *testing.T) {
	k := kind(t, "endpointslices.discovery.k8s.io")
	base := `{"addressType":"IPv4","endpoints":[{"addresses":["10.0.0.1"]}],"metadata":{"labels":{"a":"b"}}}`
	for obj, want := range map[string]bool{
		base: false,
		`{"addressType":"IPv4","endpoints":[{"addresses":["10.0.0.1"]}],"metadata":{"labels":{"a":"b"},"annotations":{"c":"d"}}}`: false,
		`{"addressType":"IPv4","endpoints":[{"addresses":["10.0.0.1"]}]}`:                                                         true,
		`{"addressType":"IPv4","endpoints":[{"addresses":["10.0.0.2"]}],"metadata":{"labels":{"a":"b"}}}`:                         true,
	} {
		if got := k.Strategy.SpecChanged(decode[rest.Object](t, k, obj), decode[rest.Object](t, k, base)); got != want {
			t.Errorf("changed %v, want %v: %s", got, want, obj)
		}
	}
}

func TestEndpointSliceTopology(t *testing.T) {
	k := kind(t, "endpointslices.discovery.k8s.io")
	const stored = `{"addressType":"IPv4","endpoints":[{"addresses":["10.0.0.1"],"deprecatedTopology":{"a":"b"}}]}`
	old, same := decode[*discoveryv1.EndpointSlice](t, k, stored), decode[*discoveryv1.EndpointSlice](t, k, stored)
	k.Strategy.PrepareUpdate(t.Context(), same, old)
	if same.Endpoints[0].DeprecatedTopology == nil {
		t.Error("an unchanged endpoint lost its topology")
	}
	k.Strategy.PrepareCreate(t.Context(), same)
	if same.Endpoints[0].DeprecatedTopology != nil {
		t.Error("a new slice has a topology")
	}
}

func TestLeaseRules(t *testing.T) {
	k := kind(t, "leases.coordination.k8s.io")
	l := decode[rest.Object](t, k, `{"spec":{"leaseDurationSeconds":0,"leaseTransitions":-1,"preferredHolder":"me"}}`)
	expect(t, k.Strategy.Validate(t.Context(), l),
		"spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0",
		"spec.leaseTransitions: Invalid value: -1: must be greater than or equal to 0",
		"spec.preferredHolder: Forbidden: may only be specified if `strategy` is defined")
	l = decode[rest.Object](t, k, `{"spec":{"strategy":"Youngest"}}`)
	expect(t, k.Strategy.Validate(t.Context(), l),
		`spec.strategy: Unsupported value: "Youngest": supported values: "OldestEmulationVersion"`)
	l = decode[rest.Object](t, k, `{"spec":{"strategy":"example.com/mine","preferredHolder":"me","leaseDurationSeconds":15}}`)
	expect(t, k.Strategy.Validate(t.Context(), l))
}

func TestSystemPriorityClasses(t *testing.T) {
	const reserved = "metadata.name: Forbidden: priority class names with 'system-' prefix are reserved for system use only. error: "
	checkCreations(t, kind(t, "priorityclasses.scheduling.k8s.io"), `{"metadata":{"name":%s}`, []creation{
		{"known", `"system-node-critical"},"value":2000001000`, nil},
		{"unknown", `"system-x"}`, []string{reserved + "system-x is not a known system priority class"}},
		{"value", `"system-node-critical"},"value":1`, []string{reserved + "value of system-node-critical PriorityClass must be 2000001000"}},
		{"default", `"system-node-critical"},"value":2000001000,"globalDefault":true`,
			[]string{reserved + "globalDefault of system-node-critical PriorityClass must be false"}},
	})
}
