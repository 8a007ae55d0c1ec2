package managedfields

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	kjson "sigs.k8s.io/json"
)

// choices are what a fuzzer decides; when they are used up, it is always 0.
type choices struct{ data []byte }

func (c *choices) of(n int) int {
	if len(c.data) == 0 {
		return 0
	}
	b := c.data[0]
	c.data = c.data[1:]
	return int(b) % n
}

// word is one of few, so that names meet.
func (c *choices) word() string {
	return []string{"a", "b", "c", "", "d.e", "é", "f:x", `"`}[c.of(8)%max(4, c.of(9))]
}

// value is a value for a field of Widget, mostly of the type that it has.
func (c *choices) value(field string) any {
	if c.of(8) == 7 {
		return []any{nil, "x", int64(1), []any{}, map[string]any{}}[c.of(5)]
	}
	n := c.of(4)
	object := func(make func() any) map[string]any {
		m := map[string]any{}
		for range n {
			m[c.word()] = make()
		}
		return m
	}
	array := func(make func() any) []any {
		l := []any{}
		for range n {
			l = append(l, make())
		}
		return l
	}
	text := func() any { return c.word() }
	switch field {
	case "number":
		return int64(c.of(3))
	case "ratio":
		return []any{int64(1), 1.0, 1.5}[c.of(3)]
	case "yes":
		return c.of(2) == 1
	case "either":
		return []any{int64(1), "1", "x"}[c.of(3)]
	case "free":
		return object(func() any {
			return []any{"x", nil, 1.0, int64(1), map[string]any{"a": int64(c.of(2))}, []any{int64(c.of(2))}}[c.of(6)]
		})
	case "whole", "labels", "annotations":
		return object(text)
	case "env":
		return object(func() any { return []any{nil, map[string]any{}, map[string]any{"a": c.word()}}[c.of(3)] })
	case "plain":
		return array(func() any { return map[string]any{"a": c.word()} })
	case "set":
		return array(func() any { return int64(c.of(12)) })
	case "finalizers":
		return array(text)
	case "byName":
		return array(func() any {
			return []any{map[string]any{"name": c.word()}, map[string]any{"name": c.word(), "a": c.word()}, map[string]any{"a": "x"}}[c.of(7)%3]
		})
	case "byTwo":
		return array(func() any {
			item := map[string]any{"port": int64(c.of(12))}
			if c.of(3) > 0 {
				item["protocol"] = []any{"TCP", "UDP"}[c.of(2)]
			}
			if c.of(2) > 0 {
				item["on"] = c.of(2) > 0
			}
			return item
		})
	}
	return c.word()
}

// change makes a change to a Widget, in place.
func (c *choices) change(u map[string]any) {
	part := []string{"spec", "spec", "spec", "metadata", "status"}[c.of(5)]
	fields := map[string][]string{
		"spec":     {"text", "number", "ratio", "yes", "either", "free", "whole", "env", "plain", "set", "byName", "byTwo"},
		"metadata": {"labels", "annotations", "finalizers", "generation"},
		"status":   {"phase"},
	}[part]
	field := fields[c.of(len(fields))]
	in, _ := u[part].(map[string]any)
	if in == nil {
		in = map[string]any{}
		u[part] = in
	}
	switch c.of(6) {
	case 0:
		delete(in, field)
	case 1:
		if part != "metadata" {
			delete(u, part)
		}
	case 2:
		if m, ok := in[field].(map[string]any); ok {
			m[c.word()] = "x"
			break
		}
		if l, ok := in[field].([]any); ok && len(l) > 1 {
			in[field] = slices.Clone(l[1:])
		}
	default:
		if field == "generation" {
			in[field] = int64(c.of(3))
		} else {
			in[field] = c.value(field)
		}
	}
}

// podParts are parts of pods with every way in which Go types are owned.
var podParts = []string{
	`{"metadata":{"labels":{"a":"1","b":"2"},"annotations":{"x":"y"},"finalizers":["a/b","c/d"]}}`,
	`{"metadata":{"labels":null,"finalizers":["c/d"],"generation":2,"creationTimestamp":"2020-01-01T00:00:00Z"}}`,
	`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"X","name":"n","uid":"1","controller":true},{"apiVersion":"v1","kind":"X","name":"n","uid":"2"}]}}`,
	`{"spec":{"containers":[{"name":"c","image":"i","ports":[{"containerPort":80,"protocol":"TCP"},{"containerPort":80,"protocol":"UDP","name":"x"}]}]}}`,
	`{"spec":{"containers":[{"name":"c","image":"j","env":[{"name":"A","value":"1"},{"name":"B","valueFrom":{"fieldRef":{"fieldPath":"p"}}}],"command":["a","b"]},{"name":"d"}]}}`,
	`{"spec":{"containers":[{"name":"d","resources":{"limits":{"cpu":"500m","memory":"1Gi"},"requests":{}},"ports":[{"containerPort":81}]}]}}`,
	`{"spec":{"containers":[{"name":"c","livenessProbe":{"httpGet":{"path":"/","port":8080}}},{"name":"c"}]}}`,
	`{"spec":{"containers":[{"name":"e","livenessProbe":{"httpGet":{"path":"/","port":"http"}},"volumeMounts":[{"name":"v","mountPath":"/x"}]}],"nodeSelector":{"a":"b"}}}`,
	`{"spec":{"volumes":[{"name":"v","emptyDir":{}},{"name":"w","configMap":{"name":"x","items":[{"key":"k","path":"p"}]}}],"terminationGracePeriodSeconds":5}}`,
	`{"spec":{"volumes":[{"name":"v","emptyDir":{"sizeLimit":"1Gi"}}],"securityContext":{"runAsUser":1},"tolerations":[{"key":"k"}],"imagePullSecrets":[{"name":"s"},{}]}}`,
	`{"spec":{"securityContext":{},"nodeSelector":{},"hostAliases":[{"ip":"1.2.3.4","hostnames":["a"]}],"affinity":{"nodeAffinity":{}},"topologySpreadConstraints":[{"topologyKey":"k","whenUnsatisfiable":"x"}]}}`,
	`{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True","lastTransitionTime":"2020-01-01T00:00:00Z"},{"type":"X","status":"False"}],"podIPs":[{"ip":"1.2.3.4"}]}}`,
	`{"status":{"phase":"Failed","conditions":[{"type":"Ready","status":"False"}],"containerStatuses":[{"name":"c","image":"i","state":{"running":{"startedAt":null}}}]}}`,
}

func changePod(p *corev1.Pod, c *choices) {
	part := podParts[c.of(len(podParts))]
	switch c.of(4) {
	case 0:
		p.Spec.Volumes, p.Labels, p.Spec.SecurityContext = nil, map[string]string{}, nil
	case 1:
		p.Spec.Containers = slices.Clone(p.Spec.Containers[:min(1, len(p.Spec.Containers))])
		p.Status.Conditions = nil
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts([]byte(part), p); err != nil {
		panic(err)
	}
}
