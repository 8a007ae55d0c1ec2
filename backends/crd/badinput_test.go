package crd

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
)

// listening serves the resources of running on a real listener.
func listening(t *testing.T) (*Server, *httptest.Server) {
	t.Helper()
	s := running(t)
	s.install(t, blobs)
	s.install(t, widgets)
	front := httptest.NewServer(http.HandlerFunc(s.asAdmin))
	t.Cleanup(front.Close)
	return s, front
}

// kept returns all stored custom resources and definitions, as text.
func (s *Server) kept(t *testing.T) string {
	t.Helper()
	var all []string
	for _, path := range []string{blobPath, widgetPath, definitionPath} {
		for _, item := range s.must(t, "GET", path, "", "")["items"].([]any) {
			all = append(all, fmt.Sprint(at(item, "metadata", "name"), "@", at(item, "metadata", "resourceVersion")))
		}
	}
	return strings.Join(all, " ")
}

// A malformed or too large request gets a Status with the reason, stores nothing, and allocates
// a bounded amount of memory.
func TestBadInput(t *testing.T) {
	s, front := listening(t)
	s.must(t, "POST", blobPath, "", strings.Replace(blob(`{"a":1}`), `"b"`, `"a"`, 1))
	before := s.kept(t)
	for group, cases := range map[string]map[string]badRequest{"body": badBodies(), "patch": badPatches(), "query": badQueries()} {
		for name, c := range cases {
			t.Run(group+"/"+name, func(t *testing.T) {
				var start, end runtime.MemStats
				runtime.ReadMemStats(&start)
				c.check(t, front)
				runtime.ReadMemStats(&end)
				limit := max(c.megabytes, megabytes)
				if used := (end.TotalAlloc - start.TotalAlloc) >> 20; used > limit {
					t.Errorf("%d MB were allocated, the limit is %d", used, limit)
				}
				if after := s.kept(t); after != before {
					t.Errorf("stored is %s, was %s", after, before)
				}
			})
		}
	}
}

// check sends the request and checks the response.
func (c badRequest) check(t *testing.T, front *httptest.Server) {
	t.Helper()
	r, err := http.NewRequest(c.method, front.URL+c.target, strings.NewReader(c.body))
	if err != nil {
		t.Fatal(err)
	}
	if c.contentType != "" {
		r.Header.Set("Content-Type", c.contentType)
	}
	for i := 0; i+1 < len(c.header); i += 2 {
		r.Header.Set(c.header[i], c.header[i+1])
	}
	res, err := front.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	data, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	status, err := statusOf(res, data)
	if err != nil || status.Kind != "Status" {
		t.Fatalf("%d %.300s is no Status (%v)", res.StatusCode, data, err)
	}
	if c.code == 0 {
		c.code, c.reason = res.StatusCode, status.Reason // any Status will do
	}
	if res.StatusCode < 400 || res.StatusCode != c.code || int(status.Code) != c.code || status.Reason != c.reason || !strings.Contains(status.Message, c.message) {
		t.Errorf("got %d %s %.500q, want %d %s %q", res.StatusCode, status.Reason, status.Message, c.code, c.reason, c.message)
	}
	indented := strings.HasPrefix(string(data), "{\n  ")
	if want := c.code == 406 && res.Header.Get("Content-Type") != protobuf || strings.Contains(strings.Join(c.header, ""), ";as="); indented != want {
		t.Errorf("indented: %v, want %v: %.100s", indented, want, data)
	}
	if len(data) > 2<<20 {
		t.Errorf("the answer has %d bytes", len(data))
	}
}

// statusOf decodes a Status in JSON or protobuf.
func statusOf(res *http.Response, data []byte) (*metav1.Status, error) {
	status := &metav1.Status{}
	if res.Header.Get("Content-Type") != protobuf {
		return status, json.Unmarshal(data, status)
	}
	envelope := &kruntime.Unknown{}
	if err := envelope.Unmarshal(bytes.TrimPrefix(data, []byte("k8s\x00"))); err != nil {
		return nil, err
	}
	err := status.Unmarshal(envelope.Raw)
	status.Kind = envelope.Kind
	return status, err
}

// Unusual but valid bodies are stored and can be read.
func TestOddInput(t *testing.T) {
	t.Parallel()
	s, _ := listening(t)
	for name, test := range map[string]struct{ query, contentType, body, want string }{
		"no UTF-8":           {"", "application/json", blob("{\"a\":\"\xff\xfe\"}"), `{"a":"��"}`},
		"lone surrogate":     {"", "application/json", blob(`{"a":"\ud83d"}`), `{"a":"�"}`},
		"int64":              {"", "application/json", blob(`{"a":9223372036854775807,"b":-9223372036854775808}`), `{"a":9223372036854775807,"b":-9223372036854775808}`},
		"duplicate":          {"", "application/json", blob(`{"a":1,"a":2}`), `{"a":2}`},
		"duplicate, ignored": {"?fieldValidation=Ignore", "application/json", blob(`{"a":1,"a":2}`), `{"a":2}`},
		"other case":         {"", "application/json", strings.TrimSuffix(blob(`{}`), "}") + `,"Metadata":{"name":"other"}}`, `{}`},
		"as deep as it goes": {"", "application/json", blob(`{"a":` + nested(500, "[", "", "]") + `}`), `{"a":` + nested(500, "[", "", "]") + `}`},
		"charset":            {"", "application/json; charset=utf-8", blob("{}"), "{}"},
	} {
		t.Run(name, func(t *testing.T) {
			a := s.send(t, "POST", blobPath+test.query, test.contentType, test.body)
			if a.code != 201 {
				t.Fatalf("%d %s", a.code, a.body)
			}
			var got struct{ Spec json.RawMessage }
			if a = s.send(t, "GET", blobPath+"/b", "", ""); json.Unmarshal(a.body, &got) != nil || string(got.Spec) != test.want {
				t.Errorf("read %s, want %s", got.Spec, test.want)
			}
			partial := s.must(t, "GET", blobPath+"/b", "", "", "Accept", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1")
			if at(partial, "metadata", "name") != "b" {
				t.Errorf("metadata %v", partial)
			}
			s.send(t, "DELETE", blobPath+"/b", "", "")
		})
	}
	for _, query := range []string{
		"labelSelector=" + strings.Repeat("a%3Db,", 10_000) + "a", "labelSelector=a+in+(" + strings.Repeat("b,", 10_000) + "a)",
		"fieldSelector=" + strings.Repeat("metadata.name%3Db,", 10_000) + "metadata.name%3Da", "x=" + strings.Repeat("y", 900_000),
	} {
		if a := s.send(t, "GET", blobPath+"?"+query, "", ""); a.code != 200 {
			t.Errorf("%.40s: %d %.200s", query, a.code, a.body)
		}
	}
}
