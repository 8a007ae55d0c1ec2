package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
)

const jsonType = "application/json"

// subject is a kind of object that the scenarios work on.
type subject struct {
	name       string // as the report calls it
	server     string // whose memory it is in
	resource   string // last part of the path
	apiVersion string
	kind       string
	namespace  string
	// head is what comes after metadata up to a number, where sequence finds it
	// in a watch frame; tail the rest, with as many bytes of text as the object
	// needs to get its size.
	head string // with one %d
	tail func(filling int) string
	// filled is the tail that calibrate found.
	filled string
}

// sequence comes before the number that the updates of watched objects write.
const sequence = `"sequence":`

// fillings is in how many fields the filling text is: an object of 3.5 KB has
// many values, not one long string.
const fillings = 24

// customResources are objects of a kind that definition defines.
func customResources(group, namespace string) *subject {
	return &subject{
		name: "custom resources", server: "crd", resource: "workloads", apiVersion: group + "/v1", kind: "Workload", namespace: namespace,
		head: `"spec":{"sequence":%d`,
		tail: func(filling int) string {
			var env strings.Builder
			for i, n := range portions(filling) {
				if i > 0 {
					env.WriteByte(',')
				}
				fmt.Fprintf(&env, `{"name":"SETTING_%02d","value":"%s"}`, i, strings.Repeat("v", n))
			}
			return `,"replicas":3,"paused":false,"image":"registry.example.com/team/service:v1.2.3",` +
				`"schedule":"*/5 * * * *","selector":{"app":"service","tier":"backend"},"limits":{"cpu":"500m","memory":"128Mi"},` +
				`"ports":[{"name":"http","port":8080,"protocol":"TCP"},{"name":"metrics","port":9090,"protocol":"TCP"}],` +
				`"env":[` + env.String() + `]}`
		},
	}
}

// configMaps are the same size in the core server.
func configMaps(namespace string) *subject {
	return &subject{
		name: "ConfigMaps", server: "core", resource: "configmaps", apiVersion: "v1", kind: "ConfigMap", namespace: namespace,
		head: `"data":{"sequence":"%d"`,
		tail: func(filling int) string {
			var data strings.Builder
			for i, n := range portions(filling) {
				fmt.Fprintf(&data, `,"setting-%02d":"%s"`, i, strings.Repeat("v", n))
			}
			return data.String() + `}`
		},
	}
}

// portions splits n bytes among the fields.
func portions(n int) []int {
	parts := make([]int, fillings)
	for i := range parts {
		parts[i] = n / fillings
	}
	parts[0] += n % fillings
	return parts
}

// list is the path of all objects, objectPath that of one.
func (s *subject) list() string {
	prefix := "/apis/"
	if s.apiVersion == "v1" {
		prefix = "/api/"
	}
	return prefix + s.apiVersion + "/namespaces/" + s.namespace + "/" + s.resource
}

func (s *subject) objectPath(i int) string { return s.list() + "/" + objectName(i) }

func objectName(i int) string { return fmt.Sprintf("object-%06d", i) }

// body is the i-th object with a number, to be posted; with the version that it
// replaces, to be put.
func (s *subject) body(i int, number int64, replaces string) []byte {
	b := fmt.Appendf(make([]byte, 0, len(s.filled)+512), `{"apiVersion":"%s","kind":"%s","metadata":{"name":"%s",`, s.apiVersion, s.kind, objectName(i))
	if replaces != "" {
		b = fmt.Appendf(b, `"resourceVersion":"%s",`, replaces)
	}
	b = fmt.Appendf(b, `"labels":{"app":"service","shard":"s%d"},"annotations":{"example.com/owner":"team"}},`, i%10)
	b = fmt.Appendf(b, s.head, number)
	return append(append(b, s.filled...), '}')
}

// calibrate finds out how much filling makes an object of size bytes as it is
// served, with all that the server adds. Nothing is stored. It waits until the
// server takes objects into the namespace, which is new.
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
			return 0, fmt.Errorf("try to create one of %s: %w", s.name, err)
		}
		if got = len(data); got == size || got > size && filling == 0 {
			break
		}
		filling = max(filling+size-got, 0)
	}
	return int64(got), nil
}

// listed are the parts of a LIST that are looked at.
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

// present is what a LIST says of the subject's objects.
type present struct {
	bytes    int64
	revision string
	versions []string // by number of the object
}

// listNow lists all objects, and checks that they are the first n.
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
		// A namespace has a ConfigMap of its own from its birth.
		if o.Metadata.Name == objectName(len(is.versions)) {
			is.versions = append(is.versions, o.Metadata.ResourceVersion)
		}
	}
	if len(is.versions) != n || len(list.Items) > n+1 {
		return nil, fmt.Errorf("%d objects were listed, %d of them in their places, of %d that exist", len(list.Items), len(is.versions), n)
	}
	return is, nil
}

// versionIn returns the first resourceVersion in an object, which is its own.
func versionIn(object []byte) string {
	const field = `"resourceVersion":"`
	at := bytes.Index(object, []byte(field))
	if at < 0 {
		return ""
	}
	version, _, _ := bytes.Cut(object[at+len(field):], []byte(`"`))
	return string(version)
}
