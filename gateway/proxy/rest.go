package proxy

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico/apiservice/backend"
	"portico/resource"
	"portico/resource/rest/body"
)

// REST is a group/version served by a REST backend: a server with paths of its own and
// no Kubernetes objects. Immutable.
//
// Requests of clients that expect Kubernetes objects are refused: they could take the
// server's answer for an object. The server may trust X-Remote-User and similar headers
// if it verifies the gateway's certificate, or only the gateway can reach it: over
// http:// they can be read and changed on the way.
type REST struct {
	// root is /apis/GROUP/VERSION, which prefix replaces.
	root, prefix string
	// unknown: prefix is in the server's OpenAPI document, which has not been read.
	unknown bool
	// hosts are the server's own host names.
	hosts []string
	// anyBody: bodies are not searched for method overrides.
	anyBody bool
	// headers are the canonical names of headers that the Backend names.
	headers map[string]bool
}

// NewREST returns how requests for gv are sent to a REST backend: its paths begin with
// prefix, if that is known, and its own host names are hosts.
func NewREST(gv schema.GroupVersion, prefix string, known bool, hosts []string, spec *backend.REST) *REST {
	p := &REST{root: "/apis/" + gv.String(), prefix: prefix, unknown: !known, hosts: hosts, anyBody: spec.AllowAnyBody, headers: map[string]bool{}}
	for _, name := range spec.Headers {
		p.headers[http.CanonicalHeaderKey(name)] = true
	}
	return p
}

// refuse returns the error for a request that a REST backend cannot answer as it is
// meant, or could read as another one than was authorized; nil if there is none.
func (p *REST) refuse(r *http.Request, act *resource.Action) error {
	if p.unknown {
		return resource.Unavailable("the server's OpenAPI document, which says where its paths begin, has not been read yet", RetryAfter)
	}
	if err := unambiguous(p.below(r.URL)); err != nil {
		return err
	}
	if err := overridden(r.Header, r.URL.RawQuery); err != nil {
		return err
	}
	if !p.anyBody {
		if err := checkBody(r); err != nil {
			return err
		}
	}
	query := r.URL.Query()
	deletes, err := deletesObject(r)
	if err != nil {
		return err
	}
	switch {
	case query.Has("fieldSelector"), query.Has("labelSelector"):
		// Authorization reads a name from the former; the server would list all.
		return p.explain(act, http.StatusBadRequest, metav1.StatusReasonBadRequest, "which knows no field or label selectors")
	case act.Verb == "watch":
		return p.explain(act, http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed, "and cannot be watched")
	case wantsTransform(r.Header.Values("Accept")), isKubectl(r):
		return p.explain(act, http.StatusNotAcceptable, metav1.StatusReasonNotAcceptable, "which has neither tables nor Kubernetes objects")
	case deletes, query.Has("fieldManager"), query.Has("fieldValidation"), query.Get("dryRun") == metav1.DryRunAll:
		// A server that does not know dryRun would carry the request out.
		return p.explain(act, http.StatusBadRequest, metav1.StatusReasonBadRequest, "which takes no Kubernetes objects and knows no dry run")
	}
	return nil
}

// explain returns the error for a client that expects a Kubernetes API server.
func (p *REST) explain(act *resource.Action, code int32, reason metav1.StatusReason, but string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: code, Reason: reason,
		Message: fmt.Sprintf("%s.%s is served by a REST server, %s: use it by its paths, as kubectl does with --raw (kubectl get --raw %s)", act.Resource, act.Group, but, act.Path),
		Details: &metav1.StatusDetails{Group: act.Group, Kind: act.Resource, Name: act.Name},
	}}
}

// wantsTransform reports whether a client asks for objects in a form that only
// servers of Kubernetes know (as=Table, as=PartialObjectMetadata).
func wantsTransform(accept []string) bool {
	for _, header := range accept {
		for clause := range strings.SplitSeq(header, ",") {
			_, params, _ := strings.Cut(clause, ";")
			for param := range strings.SplitSeq(params, ";") {
				name, _, _ := strings.Cut(param, "=")
				if strings.EqualFold(strings.TrimSpace(name), "as") {
					return true
				}
			}
		}
	}
	return false
}

// isKubectl reports whether kubectl asks for an object (get -o json, describe, delete).
// With --raw it accepts any content.
func isKubectl(r *http.Request) bool {
	accept := r.Header.Values("Accept")
	return strings.HasPrefix(r.UserAgent(), "kubectl/") && len(accept) == 1 && accept[0] == "application/json"
}

// maxDeleteOptions bounds the body of a DELETE that is looked into, in bytes.
const maxDeleteOptions = 4 << 10

// deletesObject reports whether a request has DeleteOptions in its body, as clients of
// Kubernetes send them; they may ask for a dry run.
func deletesObject(r *http.Request) (bool, error) {
	if r.Method != http.MethodDelete || r.ContentLength <= 0 || r.ContentLength > maxDeleteOptions {
		return false, nil
	}
	data, err := body.Read(r, nil)
	if err != nil {
		return false, err
	}
	body.Put(r, data)
	var options struct {
		Kind   string   `json:"kind"`
		DryRun []string `json:"dryRun"`
	}
	// A body that is no JSON has no DeleteOptions.
	return json.Unmarshal(data, &options) == nil && (options.Kind == "DeleteOptions" || len(options.DryRun) > 0), nil
}

// below is the part of an escaped path that the server gets, without the slash before
// it: all after the first three segments, in which the client may have escaped any byte.
func (p *REST) below(u *url.URL) string {
	rest := strings.TrimLeft(u.EscapedPath(), "/")
	for range 3 {
		_, rest, _ = strings.Cut(rest, "/")
	}
	return rest
}

// unambiguous returns the error for a path that servers cut into segments in
// different ways, so that it could lead elsewhere than was authorized.
func unambiguous(escaped string) error {
	for segment := range strings.SplitSeq(strings.TrimSuffix(escaped, "/"), "/") {
		text, err := url.PathUnescape(segment)
		name, _, _ := strings.Cut(text, ";")
		switch {
		case err != nil || strings.ContainsAny(text, `/\`):
			return apierrors.NewBadRequest("the path must not have an escaped slash: REST servers differ in how they read it")
		case segment == "":
			return apierrors.NewBadRequest("the path must not have an empty segment")
		case name == "." || name == "..":
			return apierrors.NewBadRequest(fmt.Sprintf("the path must not have the segment %q", text))
		}
	}
	return nil
}

// request returns the request as the reverse proxies send it.
func (p *REST) request(r *http.Request) *http.Request {
	u := *r.URL
	escaped := p.prefix + "/" + p.below(r.URL)
	u.RawPath = escaped
	// It was escaped when it was received.
	u.Path, _ = url.PathUnescape(escaped)
	out := r.WithContext(context.WithValue(r.Context(), restRequestKey{}, &restRequest{p, r.Host, &u}))
	out.URL = &u
	out.Header = p.header(r.Header)
	if r.ContentLength != 0 && r.Header.Get("Content-Type") == "" {
		// kubectl create --raw sends none.
		out.Header.Set("Content-Type", "application/json")
	}
	if p.prefix == "" {
		// Frameworks prepend it to the paths that they generate, which is right only if
		// it was removed and not replaced.
		out.Header.Set("X-Forwarded-Prefix", p.root)
	}
	return out
}

// header returns what the server gets of a client's header: what every server gets, and what
// its Backend names. A REST server may have been made for another proxy, and read the user, the
// client's address or its certificate from the headers of that; X-Forwarded-* are set anew, from
// what the gateway knows.
func (p *REST) header(of http.Header) http.Header {
	h := make(http.Header, len(of))
	for name, values := range of {
		if httpHeaders[name] || p.headers[name] {
			h[name] = slices.Clone(values)
		}
	}
	return h
}
