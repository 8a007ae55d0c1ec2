package openapi

import (
	"net/http"
	"slices"
	"strings"
)

// Negotiate picks the form of a document that the Accept headers name first:
// JSON, or protobuf by one of its media types, of which the first is the one that
// is answered with. ok is false if they name none. Quality is not weighed: no
// client of OpenAPI uses it.
func Negotiate(accept []string, protobuf ...string) (media string, ok bool) {
	header := strings.TrimSpace(strings.Join(accept, ","))
	if header == "" {
		return mediaJSON, true
	}
	for clause := range strings.SplitSeq(header, ",") {
		// Not by package mime: the old forms of the protobuf types, which clients
		// send, hold an @ and are no media types by the book.
		media, _, _ := strings.Cut(clause, ";")
		switch media = strings.ToLower(strings.TrimSpace(media)); {
		case media == mediaJSON, media == "application/*", media == "*/*":
			return mediaJSON, true
		case slices.Contains(protobuf, media):
			return protobuf[0], true
		}
	}
	return "", false
}

// negotiate is Negotiate for documents of v3.
func negotiate(accept []string) (media string, ok bool) {
	return Negotiate(accept, mediaOpenAPIProtobuf, mediaOpenAPIProtobufOld)
}

// HasTag reports whether the client says that it has what etag, which is quoted,
// names.
func HasTag(r *http.Request, etag string) bool {
	for _, header := range r.Header.Values("If-None-Match") {
		for tag := range strings.SplitSeq(header, ",") {
			if tag = strings.TrimSpace(tag); tag == "*" || strings.TrimPrefix(tag, "W/") == etag {
				return true
			}
		}
	}
	return false
}
