package fieldtest

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"portico/internal/testing/await"
)

// answer is a response.
type answer struct {
	code     int
	warnings []string
	body     []byte
}

// do sends a request, again while the server is not ready for it.
func (s *Server) do(t *testing.T, method, path string, body []byte, header http.Header) answer {
	t.Helper()
	var a answer
	await.Until(t, method+" "+path+" is answered", func() bool {
		a = s.send(t, method, path, body, header.Clone())
		return a.code != http.StatusTooManyRequests
	})
	return a
}

func (s *Server) send(t *testing.T, method, path string, body []byte, header http.Header) answer {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, s.URL+path, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if header != nil {
		r.Header = header
	}
	if r.Header.Get("Content-Type") == "" {
		r.Header.Set("Content-Type", "application/json")
	}
	r.Header.Set("User-Agent", "fieldtest/1.0")
	res, err := s.Client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	a := answer{code: res.StatusCode}
	if a.body, err = io.ReadAll(res.Body); err != nil {
		t.Fatal(err)
	}
	warnings, errs := utilnet.ParseWarningHeaders(res.Header["Warning"])
	if errs != nil {
		t.Error(errs)
	}
	for _, w := range warnings {
		a.warnings = append(a.warnings, w.Text)
	}
	return a
}

func (a *answer) object() map[string]any {
	object, _ := a.value().(map[string]any)
	return object
}

// value returns the decoded body: its value, a list of those of a stream, or else the text.
func (a *answer) value() any {
	var all []any
	for dec := json.NewDecoder(bytes.NewReader(a.body)); ; {
		var v any
		if err := dec.Decode(&v); err == io.EOF {
			break
		} else if err != nil {
			return string(a.body)
		}
		all = append(all, v)
	}
	if len(all) == 1 {
		if event, ok := all[0].(map[string]any); !ok || event["type"] == nil || event["object"] == nil {
			return all[0]
		}
	}
	return all
}

// outcome returns the outcome of a step. show has the paths of the values in it.
func (a *answer) outcome(show map[string]json.RawMessage) Outcome {
	o := Outcome{Warnings: a.warnings}
	if a.code != http.StatusOK && a.code != http.StatusCreated {
		o.Code = a.code
	}
	if a.code >= 300 {
		a.failure(&o)
	}
	for path := range show {
		if o.Show == nil {
			o.Show = map[string]json.RawMessage{}
		}
		found, ok := lookup(a.value(), path)
		if !ok || a.code >= 300 {
			found = "none"
		}
		o.Show[path] = json.RawMessage(asText(scrubbed(found)))
	}
	return o
}

var uids = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)

// failure adds what an error says.
func (a *answer) failure(o *Outcome) {
	var status metav1.Status
	if json.Unmarshal(a.body, &status) != nil || status.Kind != "Status" {
		o.Message = strings.TrimSpace(string(a.body))
		return
	}
	o.Message = uids.ReplaceAllString(status.Message, "UID")
	if _, errs, invalid := strings.Cut(o.Message, " is invalid: "); invalid {
		o.Message = errs
	}
	if status.Details == nil {
		return
	}
	for _, cause := range status.Details.Causes {
		o.Reasons = append(o.Reasons, cause.Type)
	}
	if !slices.ContainsFunc(o.Reasons, func(r metav1.CauseType) bool { return r != metav1.CauseTypeFieldValueInvalid }) {
		o.Reasons = nil
	}
}

// lookup returns a value by its path: names, indices, * for each element of a list, and
// MEMBER=VALUE for the first element with it.
func lookup(v any, path string) (any, bool) {
	if path == "" {
		return v, true
	}
	first, rest, _ := strings.Cut(path, "/")
	switch v := v.(type) {
	case map[string]any:
		if member, found := v[first]; found {
			return lookup(member, rest)
		}
	case []any:
		if first == "*" {
			all := []any{}
			for _, element := range v {
				if found, ok := lookup(element, rest); ok {
					all = append(all, found)
				}
			}
			return all, true
		}
		if i, err := strconv.Atoi(first); err == nil && i < len(v) {
			return lookup(v[i], rest)
		}
		name, value, _ := strings.Cut(first, "=")
		for _, element := range v {
			if got, ok := lookup(element, strings.ReplaceAll(name, ".", "/")); ok && asText(got) == asText(value) {
				return lookup(element, rest)
			}
		}
	}
	return nil, false
}

// differing are members that differ from one server to the next.
var differing = []string{"lastTransitionTime", "uid", "resourceVersion", "creationTimestamp", "time"}

// scrubbed returns a value without what differs from one server to the next; conditions are in the
// order of their types.
func scrubbed(v any) any {
	switch v := v.(type) {
	case map[string]any:
		v = maps.Clone(v)
		maps.DeleteFunc(v, func(name string, _ any) bool { return slices.Contains(differing, name) })
		for name, member := range v {
			v[name] = scrubbed(member)
		}
		return v
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = scrubbed(v[i])
		}
		slices.SortStableFunc(out, func(a, b any) int { return strings.Compare(conditionType(a), conditionType(b)) })
		return out
	}
	return v
}

// conditionType returns the type of a condition, and "" of anything else.
func conditionType(v any) string {
	c, _ := v.(map[string]any)
	if name, ok := c["type"].(string); ok && c["status"] != nil {
		return name
	}
	return ""
}
