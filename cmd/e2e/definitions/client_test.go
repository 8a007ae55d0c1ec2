package definitions

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"portico/cmd/e2e"
)

const (
	definitionsPath = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	mergePatch      = "Content-Type: application/merge-patch+json"
)

// client is an administrator's client of an installation.
type client struct {
	http *http.Client
	url  string
}

func newClient(t *testing.T, up *e2e.Installation) *client {
	t.Helper()
	return &client{e2e.HTTPClient(t, up.Config(t)), up.Endpoint}
}

// ask sends one request and returns the status code and the body of the response. A request without a response has the
// code 0 and its error as the body.
func (c *client) ask(ctx context.Context, method, path, body string, header ...string) (code int, answer string) {
	resp, answer, err := e2e.Ask(ctx, c.http, method, c.url+path, body, header...)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, answer
}

// must sends a request that must be answered with the code.
func (c *client) must(ctx context.Context, code int, method, path, body string, header ...string) error {
	if got, answer := c.ask(ctx, method, path, body, header...); got != code {
		return fmt.Errorf("%s %s: %d %.500s, want %d", method, path, got, answer, code)
	}
	return nil
}

// event is an event of a watch.
type event struct {
	Type   string
	Object struct {
		Metadata struct{ Name, ResourceVersion string }
		Spec     map[string]any
		Message  string
	}
}

// watch calls each with the events of a watch, until the watch ends or each returns an error. Its error is nil for a
// watch that the server has ended in good order.
func (c *client) watch(ctx context.Context, path string, each func(event) error) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url+path, nil)
	if err != nil {
		return err
	}
	long := *c.http
	long.Timeout = 0
	resp, err := long.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	lines := bufio.NewReader(resp.Body)
	if resp.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(lines)
		return fmt.Errorf("watch %s: %d %.500s", path, resp.StatusCode, body)
	}
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) && len(line) == 0 {
			return nil
		}
		if err != nil {
			return fmt.Errorf("watch %s: %w", path, err)
		}
		var e event
		if err := json.Unmarshal(line, &e); err != nil {
			return fmt.Errorf("watch %s: %w: %.300s", path, err, line)
		}
		if err := each(e); err != nil {
			return err
		}
	}
}

// definition returns a definition of gadgets in a group. Each version is one of "v1 served storage"; schema is the schema
// of the specification.
func definition(group, scope, kind, schema string, versions ...string) string {
	var all []string
	for _, v := range versions {
		name, _, _ := strings.Cut(v, " ")
		all = append(all, fmt.Sprintf(`{"name":%q,"served":%t,"storage":%t,"subresources":{"status":{}},"schema":{"openAPIV3Schema":{"type":"object","properties":{
			"spec":%s,"status":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}}}`, name, strings.Contains(v, "served"), strings.Contains(v, "storage"), schema))
	}
	return fmt.Sprintf(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"gadgets.%[1]s"},"spec":{
		"group":%[1]q,"scope":%[2]q,"names":{"plural":"gadgets","singular":"gadget","kind":%[3]q,"listKind":"%[3]sList"},"versions":[%[4]s]}}`,
		group, scope, kind, strings.Join(all, ","))
}

// gadget returns an object of such a definition.
func gadget(group, version, kind, name, spec string) string {
	return fmt.Sprintf(`{"apiVersion":"%s/%s","kind":%q,"metadata":{"name":%q},"spec":%s}`, group, version, kind, name, spec)
}
