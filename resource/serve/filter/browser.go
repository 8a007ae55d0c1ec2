package filter

import (
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico/resource/response"
)

// headerHSTS has browsers use TLS only (RFC 6797).
const headerHSTS = "Strict-Transport-Security"

// Browser is what responses tell browsers, as of kube-apiserver.
type Browser struct {
	// AllowedOrigins are regular expressions of the origins from which scripts may read responses.
	AllowedOrigins []string
	// StrictTransport are the directives of Strict-Transport-Security.
	StrictTransport []string
}

// Check returns what is wrong, with the name of the flag.
func (b *Browser) Check() error {
	for _, pattern := range b.AllowedOrigins {
		if err := CheckOrigin(pattern); err != nil {
			return fmt.Errorf("--cors-allowed-origins=%s: %w", pattern, err)
		}
	}
	for _, directive := range b.StrictTransport {
		if err := CheckStrictTransport(directive); err != nil {
			return fmt.Errorf("--strict-transport-security-directives=%s: %w", directive, err)
		}
	}
	return nil
}

// CheckOrigin checks an expression of AllowedOrigins. One that could match a part of a host would allow
// hosts of others (CVE-2022-1996).
func CheckOrigin(pattern string) error {
	if pattern == "" {
		return errors.New("empty value in --cors-allowed-origins; leave it out")
	}
	if _, err := regexp.Compile(pattern); err != nil {
		return fmt.Errorf("invalid regular expression: %w", err)
	}
	begins := strings.Contains(pattern, "^") || strings.Contains(pattern, "//")
	ends := strings.Contains(pattern, "$") || strings.Contains(pattern, ":")
	if !begins || !ends {
		return errors.New(`regular expression does not pin to start/end of host in the origin header; write it as ^https://example\.com(:|$)`)
	}
	return nil
}

// CheckStrictTransport checks a directive of StrictTransport.
func CheckStrictTransport(directive string) error {
	if strings.TrimSpace(directive) == "" {
		return errors.New("empty value in strict-transport-security-directives; leave it out")
	}
	name, _, hasValue := strings.Cut(directive, "=")
	if directive == "includeSubDomains" || directive == "preload" || hasValue && name == "max-age" && strings.Count(directive, "=") == 1 {
		return nil
	}
	return errors.New("invalid, allowed values: max-age=expireTime, includeSubDomains, preload")
}

// hsts adds Strict-Transport-Security to responses of which the server has not set it.
func (c *Chain) hsts(_ http.ResponseWriter, r *http.Request) bool {
	stateOf(r.Context()).hsts = c.strict
	return true
}

// cors lets scripts of an allowed origin read the response, and answers their preflights, which have no
// credentials.
func (c *Chain) cors(w http.ResponseWriter, r *http.Request) bool {
	origin := r.Header.Get("Origin")
	if origin == "" || !c.allows(origin) {
		return true
	}
	stateOf(r.Context()).origin = []string{origin}
	if r.Method != http.MethodOptions {
		return true
	}
	w.WriteHeader(http.StatusNoContent)
	return false
}

// crossOrigin answers 403 to a write and to an upgrade that a page of another origin makes a browser send,
// before anything reads the credentials that the browser adds by itself: a client certificate, or the cookie
// of a proxy in front of this server. A page needs no permission to send either, and may read the messages
// of a WebSocket. Few clients other than browsers send the headers that say so (docs/wire.md 0.1).
func (c *Chain) crossOrigin(w http.ResponseWriter, r *http.Request) bool {
	if r.Header["Origin"] == nil && r.Header["Sec-Fetch-Site"] == nil || c.cfg.ManyUsers {
		return true // a gateway has checked what it sends on
	}
	method := r.Method
	if asksForUpgrade(r) {
		method = http.MethodPost // exec runs commands by GET
	}
	var rules http.CrossOriginProtection
	err := rules.Check(&http.Request{Method: method, Host: r.Host, Header: r.Header})
	if err == nil || c.allows(r.Header.Get("Origin")) {
		return true
	}
	response.WriteStatus(w, r, &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden,
		Message: fmt.Sprintf("%v: a page of the origin %q must not send it unless --cors-allowed-origins of the gateway names the origin", err, r.Header.Get("Origin")),
	}})
	return false
}

func (c *Chain) allows(origin string) bool {
	for _, pattern := range c.origins {
		if pattern.MatchString(origin) {
			return true
		}
	}
	return false
}

// What kube-apiserver allows to scripts.
var (
	corsMethods     = []string{"POST, GET, OPTIONS, PUT, DELETE, PATCH"}
	corsHeaders     = []string{"Content-Type, Content-Length, Accept-Encoding, X-CSRF-Token, Authorization, X-Requested-With, If-Modified-Since"}
	corsExposed     = []string{"Date"}
	corsCredentials = []string{"true"}
)

// allowOrigin sets the header of a response to a request of an allowed origin.
func allowOrigin(h http.Header, origin []string) {
	h["Access-Control-Allow-Origin"] = origin
	h["Access-Control-Allow-Methods"] = corsMethods
	h["Access-Control-Allow-Headers"] = corsHeaders
	h["Access-Control-Expose-Headers"] = corsExposed
	h["Access-Control-Allow-Credentials"] = corsCredentials
}
