package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// refusedError is a Status of the gateway, in one line.
type refusedError struct {
	line string
	err  error
}

func (e *refusedError) Error() string { return e.line }
func (e *refusedError) Unwrap() error { return e.err }

// explain returns the error of a request in one line, with a remedy.
func (c *Client) explain(method, path string, err error) error {
	var unreached *url.Error
	var status apierrors.APIStatus
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%s has not answered a request for %s within %v; allow more time with --request-timeout", c.host, path, c.timeout)
	case errors.As(err, &unreached) && unreached.Timeout():
		return fmt.Errorf("reach %s: %w: a process accepts connections there and does not answer; is it a gateway?", c.host, unreached.Err)
	case errors.As(err, &unreached):
		return fmt.Errorf("reach %s: %w; does the gateway run, and do --kubeconfig and --context name it?", c.host, unreached.Err)
	case !errors.As(err, &status):
		return err
	}
	line := StatusLine(status)
	details := status.Status().Details
	switch {
	case apierrors.IsNotFound(err) && (details == nil || details.Name == ""):
		line += fmt.Sprintf(" (%s does not serve %s: is it a gateway of portico?)", c.host, path)
	case apierrors.IsUnauthorized(err):
		line += ": " + c.user.refused(c.host)
	case apierrors.IsForbidden(err):
		line += "; " + neededRight(method, path)
	}
	return &refusedError{line, err}
}

// neededRight describes the role that permits a request.
func neededRight(method, path string) string {
	if method != http.MethodGet {
		return "registering servers needs the rights of cluster-admin"
	}
	asked, what := "the command asks the gateway for "+path+"; ", "--verb=get --non-resource-url="+path
	if at, core := strings.CutPrefix(path, "/api/"); core {
		path = "/apis//" + at
	}
	if at, named := strings.CutPrefix(path, "/apis/"); named {
		// GROUP/VERSION/RESOURCE, and the name of one.
		parts := strings.Split(at, "/")
		verb := "list"
		if len(parts) > 3 {
			verb = "get"
		}
		asked, what = "", fmt.Sprintf("--verb=%s --resource=%s", verb, strings.TrimSuffix(parts[2]+"."+parts[0], "."))
	}
	return asked + "an administrator can allow it: kubectl create clusterrole NAME " + what + ", then kubectl create clusterrolebinding NAME --clusterrole=NAME --user=USER"
}

// StatusLine returns a Status in one line: its message, and the causes that the message does
// not contain.
func StatusLine(from apierrors.APIStatus) string {
	s := from.Status()
	parts := []string{strings.Join(strings.Fields(s.Message), " ")}
	if s.Message == "" {
		parts[0] = string(s.Reason)
	}
	if s.Details == nil {
		return parts[0]
	}
	for _, cause := range s.Details.Causes {
		if cause.Field != "" && !strings.Contains(s.Message, cause.Field) {
			parts = append(parts, cause.Field+": "+strings.Join(strings.Fields(cause.Message), " "))
		}
	}
	return strings.Join(slices.Compact(parts), "; ")
}
