package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// Media types.
const (
	jsonType     = "application/json"
	protobufType = "application/vnd.kubernetes.protobuf"
)

// subject is a kind of object to measure.
type subject struct {
	name       string // in the report
	server     string // the process that serves it
	resource   string // plural, the last part of the path
	apiVersion string
	kind       string
	namespace  string
	// annotations and head are JSON: further annotations, and what follows the
	// metadata. One of them has %d for the sequence number, which numberIn finds in
	// a watch frame. tail returns the rest, with that many bytes of text.
	annotations, head string
	tail              func(filling int) string
	// protobuf selects a second LIST, in protobuf.
	protobuf bool
	// filled is the tail for the requested size; calibrate sets it.
	filled string
}

// sequence precedes the sequence number, which updates of watched objects count up.
const sequence = `"sequence":`

// fillings is the number of fields that share the text: real objects have many
// values, not one long string.
const fillings = 24

// customResources are Workloads, the kind in definition.
func customResources(group, namespace string) *subject {
	return &subject{
		name: "custom resources", server: "crd", resource: "workloads", apiVersion: group + "/v1", kind: "Workload", namespace: namespace,
		head: `"spec":{"sequence":%d`,
		tail: func(filling int) string {
			return `,"replicas":3,"paused":false,"image":"registry.example.com/team/service:v1.2.3",` +
				`"schedule":"*/5 * * * *","selector":{"app":"service","tier":"backend"},"limits":{"cpu":"500m","memory":"128Mi"},` +
				`"ports":[{"name":"http","port":8080,"protocol":"TCP"},{"name":"metrics","port":9090,"protocol":"TCP"}],` +
				`"env":[` + environment(filling) + `]}`
		},
	}
}

// configMaps are ConfigMaps, which the core server stores.
func configMaps(namespace string) *subject {
	return &subject{
		name: "ConfigMaps", server: "core", resource: "configmaps", apiVersion: "v1", kind: "ConfigMap", namespace: namespace,
		head: `"data":{"sequence":"%d"`, protobuf: true,
		tail: func(filling int) string {
			var data strings.Builder
			for i, n := range portions(filling) {
				fmt.Fprintf(&data, `,"setting-%02d":"%s"`, i, strings.Repeat("v", n))
			}
			return data.String() + `}`
		},
	}
}

// workloads are the custom resources of a runner.
func workloads(r *runner) *subject { return customResources(r.group, r.namespace) }

// secrets are Secrets of one value. The sequence number is an annotation, because values are in base64.
func secrets(r *runner) *subject {
	return &subject{
		name: "Secrets", server: "core", resource: "secrets", apiVersion: "v1", kind: "Secret", namespace: r.namespace,
		annotations: `,"sequence":"%d"`, head: `"data":{`,
		tail: func(filling int) string { return `"value":"` + strings.Repeat("v", filling/4*4) + `"}` },
	}
}

// pods are Pods that wait for a node. The sequence number is an annotation, because hardly
// any other field of a pod can be updated.
func pods(namespace string) *subject {
	const probe = `{"httpGet":{"path":"/healthz","port":8080},"initialDelaySeconds":5,"periodSeconds":10}`
	return &subject{
		name: "pods", server: "core", resource: "pods", apiVersion: "v1", kind: "Pod", namespace: namespace,
		annotations: `,"sequence":"%d"`, head: `"spec":{"serviceAccountName":"default","automountServiceAccountToken":false`, protobuf: true,
		tail: func(filling int) string {
			return `,"volumes":[{"name":"config","configMap":{"name":"service"}}],` +
				`"containers":[{"name":"service","image":"registry.example.com/team/service:v1.2.3","ports":[{"name":"http","containerPort":8080}],` +
				`"resources":{"requests":{"cpu":"500m","memory":"128Mi"},"limits":{"memory":"256Mi"}},"livenessProbe":` + probe +
				`,"volumeMounts":[{"name":"config","mountPath":"/etc/service","readOnly":true}],"env":[` + environment(filling) + `]}]}`
		},
	}
}

// environment returns n bytes of text as variables of a container, in JSON.
func environment(n int) string {
	var env strings.Builder
	for i, n := range portions(n) {
		if i > 0 {
			env.WriteByte(',')
		}
		fmt.Fprintf(&env, `{"name":"SETTING_%02d","value":"%s"}`, i, strings.Repeat("v", n))
	}
	return env.String()
}

// portions divides n bytes among the fields.
func portions(n int) []int {
	parts := make([]int, fillings)
	for i := range parts {
		parts[i] = n / fillings
	}
	parts[0] += n % fillings
	return parts
}

func (s *subject) singular() string { return strings.TrimSuffix(s.name, "s") }

// list returns the path of the collection.
func (s *subject) list() string {
	prefix := "/apis/"
	if s.apiVersion == "v1" {
		prefix = "/api/"
	}
	return prefix + s.apiVersion + "/namespaces/" + s.namespace + "/" + s.resource
}

func (s *subject) objectPath(i int) string { return s.list() + "/" + objectName(i) }

func objectName(i int) string { return fmt.Sprintf("object-%06d", i) }

// body returns the i-th object with a sequence number, for POST; with the
// resourceVersion that it replaces, for PUT.
func (s *subject) body(i int, number int64, replaces string) []byte {
	b := fmt.Appendf(make([]byte, 0, len(s.filled)+512), `{"apiVersion":"%s","kind":"%s","metadata":{"name":"%s",`, s.apiVersion, s.kind, objectName(i))
	if replaces != "" {
		b = fmt.Appendf(b, `"resourceVersion":"%s",`, replaces)
	}
	b = fmt.Appendf(b, `"labels":{"app":"service","shard":"s%d"},"annotations":{"example.com/owner":"team"`, i%10)
	b = append(b, strings.Replace(s.annotations+"}},"+s.head, "%d", strconv.FormatInt(number, 10), 1)...)
	return append(append(b, s.filled...), '}')
}

// calibrate sets s.filled so that a served object has size bytes, with the fields
// that the server adds, and returns its size. It uses dry runs, and waits until the
// server accepts objects in the new namespace.
func (s *subject) calibrate(ctx context.Context, p *client, size int) (int64, error) {
	var filling, got int
	for range 4 {
		s.filled = s.tail(filling)
		var data []byte
		err := retryWhileStarting(ctx, pollSlow, func() (err error) {
			data, err = p.read(ctx, 0, request{method: "POST", path: s.list() + "?dryRun=All", contentType: jsonType, body: s.body(0, 0, "")})
			return err
		})
		if err != nil {
			return 0, fmt.Errorf("create %s in a dry run: %w", s.name, err)
		}
		if got = len(data); got == size || got > size && filling == 0 {
			break
		}
		filling = max(filling+size-got, 0)
	}
	return int64(got), nil
}

// listed is the part of a LIST that is decoded.
type listed struct {
	Metadata struct {
		ResourceVersion string `json:"resourceVersion"`
	} `json:"metadata"`
	Items []struct {
		Metadata struct {
			Name            string `json:"name"`
			ResourceVersion string `json:"resourceVersion"`
		} `json:"metadata"`
	} `json:"items"`
}

// present is the state of the objects in a LIST.
type present struct {
	bytes    int64
	revision string
	versions []string // resourceVersion by number of the object
}

// listNow lists all objects and checks that they are the first n.
func (s *subject) listNow(ctx context.Context, p *client, n int) (*present, error) {
	data, err := p.read(ctx, 0, request{path: s.list()})
	if err != nil {
		return nil, err
	}
	var list listed
	if err := json.Unmarshal(data, &list); err != nil {
		return nil, fmt.Errorf("read LIST: %w", err)
	}
	is := &present{bytes: int64(len(data)), revision: list.Metadata.ResourceVersion}
	for _, o := range list.Items {
		// The ConfigMap kube-root-ca.crt of a namespace is not counted.
		if o.Metadata.Name == objectName(len(is.versions)) {
			is.versions = append(is.versions, o.Metadata.ResourceVersion)
		}
	}
	if len(is.versions) != n || len(list.Items) > n+1 {
		return nil, fmt.Errorf("the LIST has %d objects, %d of them in order; want %d", len(list.Items), len(is.versions), n)
	}
	return is, nil
}

// versionIn returns the first resourceVersion in an object, which is that of the
// object itself.
func versionIn(object []byte) string {
	const field = `"resourceVersion":"`
	at := bytes.Index(object, []byte(field))
	if at < 0 {
		return ""
	}
	version, _, _ := bytes.Cut(object[at+len(field):], []byte(`"`))
	return string(version)
}
