package proxy

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico/resource/authn"
	"portico/resource/rest/body"
)

// Method overrides. Rails, Laravel, Symfony, Spring, Express with method-override and
// ASP.NET read the method of a request from a header, a query parameter, a form or a JSON
// object, and some read the path from a header. Authorization uses the request line, so
// a request with an override is refused.

// overridden returns the error for a request with a header or query parameter that
// overrides its method or path; nil if there is none.
func overridden(h http.Header, query string) error {
	for name := range h {
		folded := authn.FoldHeaderName(name)
		switch folded {
		case "x-http-method", "x-original-method", "x-original-url", "x-original-uri", "x-rewrite-url":
		default:
			if !strings.Contains(folded, "method-override") {
				continue
			}
		}
		return apierrors.NewBadRequest(fmt.Sprintf(
			"the header %q is not forwarded: a REST server might read another method or path from it than was authorized", name))
	}
	// Some servers separate parameters by semicolons too.
	for pair := range strings.FieldsFuncSeq(query, func(c rune) bool { return c == '&' || c == ';' }) {
		key, _, _ := strings.Cut(pair, "=")
		name, err := url.QueryUnescape(key)
		if err != nil {
			return apierrors.NewBadRequest(fmt.Sprintf("the query parameter %q is not percent-encoded: servers differ in how they read it", key))
		}
		if isOverride(name) {
			return apierrors.NewBadRequest(fmt.Sprintf(
				"the query parameter %q is not forwarded: a REST server might read another method or path from it than was authorized", name))
		}
	}
	return nil
}

// isOverride reports whether a parameter of a query may override the method. Names
// are read as PHP reads them, which is the most lenient: without space before them,
// up to a NUL or a bracket (an array), and with _ for other characters.
func isOverride(name string) bool {
	name, _, _ = strings.Cut(strings.TrimLeft(name, " \t\r\n"), "\x00")
	if i := strings.IndexByte(name, '['); i > 0 {
		name = name[:i]
	}
	folded := authn.FoldHeaderName(name)
	switch folded {
	case "-method", "-http-method", "-httpmethod", "x-http-method":
		return true
	}
	return strings.Contains(folded, "method-override")
}

// checkBody returns the error for a body that cannot be searched for an override: a form,
// an encoded body, or one in a charset that is not based on ASCII. Other bodies are
// searched while they are sent, if they are JSON.
func checkBody(r *http.Request) error {
	if r.Body == nil || r.Body == http.NoBody || r.ContentLength == 0 {
		return nil
	}
	media := strings.ToLower(strings.Join(r.Header["Content-Type"], ","))
	encoding := strings.ToLower(strings.Join(r.Header["Content-Encoding"], ","))
	switch {
	case strings.Contains(media, "form-urlencoded"), strings.Contains(media, "multipart/"):
		return unsearchable("a form")
	case encoding != "" && encoding != "identity":
		return unsearchable("a body with a Content-Encoding")
	case !isASCIIBased(media):
		return unsearchable("a body in a charset that may not contain ASCII as it is")
	}
	return searchBody(r)
}

// searchBody returns the error for an override in a body that is in memory, and has another one searched while it is
// sent.
func searchBody(r *http.Request) error {
	if r.GetBody == nil {
		body.Replace(r, &overrideReader{ReadCloser: r.Body})
		return nil
	}
	inMemory, err := r.GetBody()
	if err == nil {
		_, err = io.Copy(io.Discard, &overrideReader{ReadCloser: inMemory})
	}
	if err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	return nil
}

// isASCIIBased reports whether every charset of a media type is a superset of ASCII.
func isASCIIBased(media string) bool {
	for _, after := range strings.Split(media, "charset")[1:] {
		name := strings.TrimLeft(after, " \t=\"'")
		if !slices.ContainsFunc(asciiBased, func(prefix string) bool { return strings.HasPrefix(name, prefix) }) {
			return false
		}
	}
	return true
}

var asciiBased = []string{"utf-8", "utf8", "us-ascii", "ascii", "iso-8859-", "latin1", "windows-125"}

func unsearchable(what string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusUnsupportedMediaType, Reason: metav1.StatusReasonUnsupportedMediaType,
		Message: what + " is not forwarded: a REST server might read another method from it (_method) than was authorized; " +
			"if the server does not, set spec.rest.allowAnyBody of its Backend",
	}}
}

// errOverride ends a body with an override. If the body was not in memory, the server has then received part of a JSON
// object, which it cannot parse.
var errOverride = errors.New(`the member "_method" is not forwarded: a REST server might read another method or path from it than was authorized`)

// overrideReader reads a body, and fails at a member "_method" if the body is a JSON
// object. Members of inner objects are no overrides. Other bodies are read as they are.
type overrideReader struct {
	io.ReadCloser
	depth   int  // of braces and brackets; 0 before the object
	skipped bool // the body is no object, or the object has ended
	inText  bool // within a string
	escaped bool // after a backslash
	isKey   bool // the next string, or the one being read, is the name of a member
	key     []byte
}

// maxOverrideKey is how much of the name of a member is kept, in bytes; "_method" takes
// 42 if each byte is escaped.
const maxOverrideKey = 64

func (o *overrideReader) Read(p []byte) (int, error) {
	n, err := o.ReadCloser.Read(p)
	for _, c := range p[:n] {
		if o.skipped {
			break
		}
		if o.step(c) {
			return 0, errOverride
		}
	}
	return n, err
}

// step takes the next byte and reports whether it ends the name "_method".
func (o *overrideReader) step(c byte) (found bool) {
	if o.inText {
		return o.text(c)
	}
	switch c {
	case ' ', '\t', '\r', '\n', 0xef, 0xbb, 0xbf: // also the byte order mark
	case '{', '[':
		o.depth++
		o.skipped = o.depth == 1 && c == '['
		o.isKey = o.depth == 1
	case '}', ']':
		o.depth--
		o.skipped = o.depth <= 0
	case ',':
		o.isKey = o.depth == 1
	case '"':
		o.inText, o.key = true, o.key[:0]
		o.skipped = o.depth == 0
	default:
		o.skipped = o.depth == 0
	}
	return false
}

// text takes the next byte of a string.
func (o *overrideReader) text(c byte) (found bool) {
	switch {
	case o.escaped:
		o.escaped = false
	case c == '\\':
		o.escaped = true
	case c == '"':
		found = o.isKey && o.depth == 1 && isMethodKey(o.key)
		o.inText, o.isKey = false, false
		return found
	}
	if o.isKey && o.depth == 1 && len(o.key) < maxOverrideKey {
		o.key = append(o.key, c)
	}
	return false
}

// isMethodKey reports whether the text of a JSON string, without its quotes, is
// "_method".
func isMethodKey(text []byte) bool {
	var key string
	if json.Unmarshal(append(append([]byte{'"'}, text...), '"'), &key) != nil {
		key = strings.ReplaceAll(string(text), `\`, "") // lenient servers drop the backslash of an escape there is not
	}
	return strings.EqualFold(key, "_method")
}
