package attack

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"

	"portico/internal/testing/await"
)

// list returns a value n times, separated by commas.
func list(n int, value string) string { return strings.TrimSuffix(strings.Repeat(value+",", n), ",") }

// numbered returns a value n times, with its number for each %d.
func numbered(n int, value string) string {
	var out strings.Builder
	for i := range n {
		if i > 0 {
			out.WriteByte(',')
		}
		fmt.Fprintf(&out, value, i)
	}
	return out.String()
}

// A body of many small values is refused before it is decoded, which would take hundreds of
// times its size.
func TestCostlyBodies(t *testing.T) {
	t.Parallel()
	i := target
	i.grant(t, "spender", "a", policyRule{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}})
	// Every authenticated user may send the reviews.
	jane, spender := i.client(i.user(t, "jane")), i.client(i.user(t, "spender"))
	const (
		reviews    = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
		review     = `{"apiVersion":"authorization.k8s.io/v1","kind":"SelfSubjectAccessReview","spec":{"nonResourceAttributes":{"path":"/","verb":"get"}}`
		yamlReview = "apiVersion: authorization.k8s.io/v1\nkind: SelfSubjectAccessReview\nspec: {nonResourceAttributes: {path: /, verb: get}}\n"
		configmaps = "/api/v1/namespaces/a/configmaps"
		configmap  = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"costly"`
		yaml       = "Content-Type: application/yaml"
	)
	for _, tc := range []struct {
		name                  string
		client                *http.Client
		path, body, mediaType string
		codes                 []int
	}{
		{"control: a review", jane, reviews, review + "}", "", []int{201}},
		{"control: a review of YAML", jane, reviews, yamlReview, yaml, []int{201}},
		{"control: an object", spender, configmaps + "?dryRun=All", configmap + "}}", "", []int{201}},
		{"a review of YAML with 1.4 million items", jane, reviews, yamlReview + "x: [" + list(1_400_000, "a") + "]\n", yaml, []int{413}},
		{"a review of YAML with 700,000 lists", jane, reviews, yamlReview + "x: [" + list(700_000, "[]") + "]\n", yaml, []int{413}},
		{"a review of YAML with 300,000 keys", jane, reviews, yamlReview + "x: {" + numbered(300_000, "a%d: 1") + "}\n", yaml, []int{413}},
		{"a review of YAML in blocks", jane, reviews, yamlReview + "x:\n" + strings.Repeat("- a\n", 700_000), yaml, []int{413}},
		{"a review of JSON with 1.4 million items", jane, reviews, review + `,"x":[` + list(1_400_000, "1") + "]}", "", []int{413}},
		{"a review of JSON with 900,000 objects", jane, reviews, review + `,"x":[` + list(900_000, "{}") + "]}", "", []int{413}},
		{"an object of YAML", spender, configmaps, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: costly}\nx: [" + list(1_400_000, "a") + "]\n", yaml, []int{413}},
		{"230,000 labels", spender, configmaps, configmap + `,"labels":{` + numbered(230_000, `"a%d":""`) + "}}}", "", []int{400, 413, 422}},
		{"250,000 finalizers", spender, configmaps, configmap + `,"finalizers":[` + numbered(250_000, `"a/%d"`) + "]}}", "", []int{400, 413, 422}},
		{"200,000 owners", spender, configmaps, configmap + `,"ownerReferences":[` + list(200_000, "{}") + "]}}", "", []int{400, 413, 422}},
		{"a million managers", spender, configmaps, configmap + `,"managedFields":[` + list(900_000, "{}") + "]}}", "", []int{400, 413, 422}},
	} {
		code, body, err := i.ask(tc.client, "POST", tc.path, tc.body, tc.mediaType)
		if among := (answer{code: code, body: []byte(body)}).among(tc.codes...); err != nil || among != nil {
			t.Errorf("%s, %d bytes: %v %v, want %v", tc.name, len(tc.body), among, err, tc.codes)
		}
	}
	i.unharmed(t)
}

// A definition that would exceed the bounds of discovery is refused; definitions can be
// created and deleted as before.
func TestCostlyDefinitions(t *testing.T) {
	t.Parallel()
	i := target
	version := `{"name":"v%d","served":true,"storage":false,"schema":{"openAPIV3Schema":{"type":"object"}}}`
	stored := `{"name":"v0","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}}`
	define := func(versions, names string) string {
		return fmt.Sprintf(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"bombs.bomb.example.com"},
			"spec":{"group":"bomb.example.com","scope":"Cluster","names":{"plural":"bombs","kind":"Bomb"%s},"versions":[%s]}}`, names, versions)
	}
	for _, tc := range []struct{ name, body string }{
		{"5,000 versions", define(stored+","+strings.ReplaceAll(numbered(4_999, version), `"v0"`, `"v9999"`), "")},
		{"60,000 categories", define(stored, `,"categories":[`+numbered(60_000, `"c%d"`)+"]")},
		{"60,000 short names", define(stored, `,"shortNames":[`+numbered(60_000, `"s%d"`)+"]")},
	} {
		if code, body, err := i.ask(i.admin, "POST", definitions, tc.body); err != nil || code != http.StatusUnprocessableEntity && code != http.StatusRequestEntityTooLarge {
			t.Errorf("%s: %d %.300s %v", tc.name, code, body, err)
		}
	}
	i.must(t, "POST", definitions, define(stored, "")) // control
	i.must(t, "DELETE", definitions+"/bombs.bomb.example.com", "")
	i.unharmed(t)
}

// A definition in another server's group takes over nothing, and leaves nothing that delays
// the deletion of namespaces.
func TestDefinitionsInBuiltInGroups(t *testing.T) {
	t.Parallel()
	i := target
	for _, tc := range []struct{ group, version, own string }{
		{"imagepolicy.k8s.io", "v1", ""}, {"networking.k8s.io", "v9", "v1"}, {"coordination.k8s.io", "v9", "v1"}, {"events.k8s.io", "v9", "v1"}, {"discovery.k8s.io", "v9", ""},
	} {
		body := fmt.Sprintf(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"bombs.%[1]s","annotations":{"api-approved.kubernetes.io":"unapproved, a test"}},
			"spec":{"group":%[1]q,"scope":"Namespaced","names":{"plural":"bombs","kind":"Bomb"},"versions":[{"name":%[2]q,"served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}}]}}`, tc.group, tc.version)
		i.must(t, "POST", definitions, body)
		served := "/apis/" + tc.group + "/" + tc.version
		eventually(t, served+" is served", func() error { return i.answers(served, http.StatusOK, "bombs") })
		if tc.own != "" {
			i.stays(t, served+" is there", "/apis/"+tc.group, fmt.Sprintf(`"preferredVersion":{"groupVersion":"%s/%s"`, tc.group, tc.own))
		}
		i.must(t, "DELETE", definitions+"/bombs."+tc.group, "")
		eventually(t, served+" is gone", func() error { return i.answers(served, http.StatusNotFound, "") })
		if tc.own != "" {
			i.stays(t, served+" is gone", "/apis/"+tc.group, fmt.Sprintf(`"preferredVersion":{"groupVersion":"%s/%s"`, tc.group, tc.own))
		}
	}
	i.namespace(t, "ending-too")
	i.must(t, "DELETE", "/api/v1/namespaces/ending-too", "")
	eventually(t, "a namespace is deleted", func() error { return i.answers("/api/v1/namespaces/ending-too", http.StatusNotFound, "") })
}

// Requests with made-up groups, resources, methods and names create no series of metrics.
func TestMetricsOfMadeUpRequests(t *testing.T) {
	t.Parallel()
	i := target
	jane := i.user(t, "mallory-metrics", "mallory-group")
	client := i.client(jane)
	for n := range 200 {
		made := fmt.Sprintf("mallory%d", n)
		for _, r := range []struct{ method, path string }{
			{"GET", "/apis/" + made + ".example.com/v1/things"}, {"GET", "/apis/apps/" + made + "/things"}, {"GET", "/api/v1/" + made},
			{"GET", "/api/v1/namespaces/a/pods/x/" + made}, {"GET", "/" + made}, {"GET", "/healthz/" + made}, {"X" + strings.ToUpper(made), "/api/v1/pods"},
		} {
			if _, _, err := i.ask(client, r.method, r.path, "", "User-Agent: "+made); err != nil {
				t.Fatal(err)
			}
		}
	}
	metrics := i.must(t, "GET", "/metrics", "")
	if !strings.Contains(metrics, "apiserver_request_total{") {
		t.Error("control: there are no metrics of requests")
	}
	for line := range strings.SplitSeq(metrics, "\n") {
		if strings.Contains(strings.ToLower(line), mark) && !strings.HasPrefix(line, "#") {
			t.Errorf("a series of what was made up: %s", line)
		}
	}
}

// Old versions of TLS are refused.
func TestVersionsOfTLS(t *testing.T) {
	t.Parallel()
	for version, want := range map[uint16]bool{tls.VersionTLS10: false, tls.VersionTLS11: false, tls.VersionTLS12: true, tls.VersionTLS13: true} {
		config := target.tls(nil)
		config.MinVersion, config.MaxVersion = version, version
		conn, err := tls.DialWithDialer(&net.Dialer{Timeout: await.Patience()}, "tcp", target.host, config)
		if (err == nil) != want {
			t.Errorf("%s: %v", tls.VersionName(version), err)
		}
		if err == nil {
			conn.Close()
		}
	}
}
