package kinds

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/equality"

	"portico/resource/rest"
)

// FuzzWrite applies all functions of a row to bodies. They must not panic, defaulting must be
// idempotent, and the old object of an update must not change.
func FuzzWrite(f *testing.F) {
	for i, body := range []string{
		`{"metadata":{"name":"x"},"spec":{"finalizers":["a"]}}`,
		`{"data":{"a":"1"},"binaryData":{"b":"AA=="},"immutable":true}`,
		`{"type":"kubernetes.io/tls","stringData":{"tls.crt":"x"}}`,
		`{"spec":{"clusterIP":"10.0.0.1","clusterIPs":["10.0.0.1","fd00::1","x"],"ipFamilies":["IPv4"],"ports":[null,{"port":80}]}}`,
		`{"subsets":[{"addresses":[{"ip":"x"}],"ports":[{}]}]}`,
		`{"secrets":[{}]}`,
		`{"involvedObject":{"kind":"Pod"},"series":{},"eventTime":"2026-01-02T03:04:05.000000Z"}`,
		`{"regarding":{"kind":"Pod"},"series":{"count":1},"deprecatedCount":1}`,
		`{"addressType":"IPv6","endpoints":[null],"ports":[null,{}]}`,
		`{"spec":{"strategy":"a/b"}}`,
		`{"webhooks":[{"clientConfig":{"url":"https://a@b/?c#d"},"rules":[{"resources":["*/*","a/*"]}]}]}`,
		`{"webhooks":[{"clientConfig":{"service":{"path":"/"}}}]}`,
		`{"spec":{"matchConstraints":{"resourceRules":[{}]},"validations":[{}],"variables":[{}]}}`,
		`{"spec":{"paramRef":{"name":"..","selector":{}},"validationActions":["Deny"]}}`,
		`{"spec":{"mutations":[{"patchType":"JSONPatch"}],"matchConstraints":{"resourceRules":[{"operations":["DELETE"]}]}}}`,
	} {
		f.Add(uint(i), []byte(body), []byte(body))
	}
	all := allKinds()
	f.Fuzz(func(t *testing.T, i uint, body, stored []byte) {
		k := all[i%uint(len(all))]
		read := func(data []byte) rest.Object {
			obj, _, err := k.Codec.Decode(data, jsonType, k.GVK("v1"), false)
			if err != nil {
				return nil
			}
			typed := obj.(rest.Object)
			if k.Strategy.Default != nil {
				k.Strategy.Default(typed)
			}
			return typed
		}
		obj, old := read(body), read(stored)
		if obj == nil || old == nil {
			return
		}
		if again := obj.DeepCopyObject().(rest.Object); k.Strategy.Default != nil {
			if k.Strategy.Default(again); !equality.Semantic.DeepEqual(again, obj) {
				t.Errorf("%s: defaults are not stable", k.Resource)
			}
		}
		before, s := old.DeepCopyObject(), k.Strategy
		if s.PrepareUpdate != nil {
			s.PrepareUpdate(t.Context(), obj, old)
		}
		if s.ValidateUpdate != nil {
			s.ValidateUpdate(t.Context(), obj, old)
		}
		if s.Warnings != nil {
			s.Warnings(t.Context(), obj, old)
		}
		if s.SpecChanged != nil {
			s.SpecChanged(obj, old)
		}
		if !equality.Semantic.DeepEqual(before, old) {
			t.Errorf("%s: the old object was changed", k.Resource)
		}
		if s.PrepareCreate != nil {
			s.PrepareCreate(t.Context(), obj)
		}
		if s.Validate != nil {
			s.Validate(t.Context(), obj)
		}
		if _, err := k.Cells(obj); err != nil {
			t.Error(err)
		}
	})
}
