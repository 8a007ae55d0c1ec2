package discovery

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico/resource"
	"portico/resource/response"
)

// aggregatedParams mark the aggregated form, which client-go detects by the Content-Type.
const aggregatedParams = ";g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

// AggregatedJSON is the Accept header of the aggregated form.
const AggregatedJSON = "application/json" + aggregatedParams

// CauseNotServed is the cause in the Status for a group/version that is registered and that no server
// has: it has no objects.
const CauseNotServed metav1.CauseType = "NotServed"

// NotServed returns that cause.
func NotServed() metav1.StatusCause {
	return metav1.StatusCause{Type: CauseNotServed, Message: "no server has it"}
}

// NewHandler serves /api, /apis, /apis/G, /apis/G/V and /api/V from the current snapshot; without one
// it answers 503. Unknown paths are 404. /apis?watch=true is a stream (stream.go).
func NewHandler(current *Current) http.Handler {
	return NewExplaining(current, func(string, string) string { return "" })
}

// NewExplaining is NewHandler with a function that returns why a group/version is not known, as the
// end of a sentence; "" if it does not know.
func NewExplaining(current *Current, why func(group, version string) string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if current.Followers.acknowledges(r) {
			current.Followers.serve(w, r)
			return
		}
		if r.Method != http.MethodGet {
			response.WriteStatus(w, r, apierrors.NewMethodNotSupported(schema.GroupResource{}, strings.ToLower(r.Method)))
			return
		}
		s := current.Load()
		if s == nil {
			response.WriteStatus(w, r, resource.Unavailable("discovery is not ready yet", 1))
			return
		}
		legacy, aggregated := s.find(r.URL.Path)
		if legacy == nil {
			http.Error(w, "404 page not found", http.StatusNotFound)
			return
		}
		if legacy.unknown {
			err := resource.Unavailable(unknown(r.URL.Path, why), 0)
			if legacy.absent {
				err.ErrStatus.Details = &metav1.StatusDetails{Causes: []metav1.StatusCause{NotServed()}}
			}
			response.WriteStatus(w, r, err)
			return
		}
		format, err := response.Negotiate(r, response.Offer{Protobuf: func() bool { return true }, Aggregated: aggregated != nil})
		if err != nil {
			response.WriteStatus(w, r, err)
			return
		}
		act := resource.ActionFrom(r.Context())
		if act != nil && act.Follow && aggregated == s.groupsV2 && format.Transform == response.AsAggregated && format.Media == response.JSON {
			serveStream(w, r, current)
			return
		}
		d := legacy
		if format.Transform == response.AsAggregated {
			d = aggregated
		}
		serve(w, r, d, format)
	})
}

// unknown returns the message of the 503 for a group/version that is not known.
func unknown(path string, why func(group, version string) string) string {
	if reason := why(groupVersionAt(path)); reason != "" {
		return "what the server behind " + path + " serves is not known: " + reason
	}
	return "the server behind " + path + " has not answered yet; what it serves is not known"
}

// groupVersionAt returns the group/version of the path of a document.
func groupVersionAt(path string) (group, version string) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	if len(parts) == 3 {
		group = parts[1]
	}
	return group, parts[len(parts)-1]
}

// Serves reports whether the snapshot has a document at a path.
func (s *Snapshot) Serves(path string) bool {
	d, _ := s.find(path)
	return d != nil
}

// find returns the documents at a path; aggregated is nil where that form does not exist.
func (s *Snapshot) find(path string) (legacy, aggregated *document) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	switch {
	case len(parts) == 1 && parts[0] == "api":
		return s.core, s.coreV2
	case len(parts) == 1 && parts[0] == "apis":
		return s.groups, s.groupsV2
	case len(parts) == 2 && parts[0] == "api":
		return s.byGroup[""].version(parts[1]), nil
	case len(parts) == 2 && parts[0] == "apis":
		if p := s.byGroup[parts[1]]; p != nil {
			return p.group, nil
		}
	case len(parts) == 3 && parts[0] == "apis" && parts[1] != "":
		return s.byGroup[parts[1]].version(parts[2]), nil
	}
	return nil, nil
}

// serve answers with a document in the negotiated format.
func serve(w http.ResponseWriter, r *http.Request, d *document, format response.Format) {
	contentType, h := format.Media.ContentType(), w.Header()
	h.Set("Vary", "Accept")
	if format.Transform == response.AsAggregated {
		contentType += aggregatedParams
		h.Set("Cache-Control", "public")
	}
	body, etag, err := d.encoded(format.Media)
	if err != nil {
		response.WriteStatus(w, r, err)
		return
	}
	if etag != "" {
		h.Set("ETag", etag)
		if MatchesETag(r, etag) {
			w.WriteHeader(http.StatusNotModified)
			return
		}
	}
	if format.Media == response.JSON && format.Pretty {
		body = indented(body)
	}
	response.WriteBody(w, r, http.StatusOK, contentType, body)
}

// indented returns indented JSON.
func indented(data []byte) []byte {
	var buf bytes.Buffer
	if json.Indent(&buf, data, "", "  ") != nil {
		return data // impossible: it was just encoded
	}
	return buf.Bytes()
}

// MatchesETag reports whether If-None-Match of a request has an ETag (RFC 9110, 13.1.2), which is
// quoted.
func MatchesETag(r *http.Request, etag string) bool {
	for _, header := range r.Header.Values("If-None-Match") {
		for tag := range strings.SplitSeq(header, ",") {
			if tag = strings.TrimSpace(tag); tag == "*" || strings.TrimPrefix(tag, "W/") == etag {
				return true
			}
		}
	}
	return false
}
