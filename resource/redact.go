package resource

import "strings"

// redacted replaces a removed value.
const redacted = "REDACTED"

// shownParameters are the query parameters of Kubernetes APIs, and of the pages of this product. Their values choose what is read
// or written and how, and are no credentials: logs have them. Any other parameter may be one, whatever its name.
var shownParameters = func() map[string]bool {
	set := map[string]bool{}
	for _, name := range strings.Fields(`
		allowWatchBookmarks continue fieldSelector includeObject labelSelector limit resourceVersion resourceVersionMatch sendInitialEvents timeout timeoutSeconds
		watch pretty export exact
		dryRun fieldManager fieldValidation force
		gracePeriodSeconds ignoreStoreReadErrorWithClusterBreakingPotential orphanDependents propagationPolicy
		command container follow insecureSkipTLSVerifyBackend limitBytes ports previous sinceSeconds sinceTime stderr stdin stdout stream tailLines timestamps tty
		exclude verbose hash debug seconds gc`) {
		set[name] = true
	}
	return set
}()

// RedactURI returns the URI without the values of query parameters that are not shownParameters, for logs, audit events and
// traces. A parameter without a value is one that has no name.
func RedactURI(uri string) string {
	at := strings.IndexByte(uri, '?') + 1
	if at == 0 {
		return uri
	}
	var out strings.Builder // empty until a value is removed
	done := 0               // bytes of uri that out has
	for at < len(uri) {
		end := len(uri)
		if i := strings.IndexAny(uri[at:], "&;"); i >= 0 {
			end = at + i
		}
		name, _, valued := strings.Cut(uri[at:end], "=")
		if !shownParameters[name] && at < end {
			if valued {
				at += len(name) + 1
			}
			out.WriteString(uri[done:at])
			out.WriteString(redacted)
			done = end
		}
		at = end + 1
	}
	if done == 0 {
		return uri
	}
	return out.String() + uri[done:]
}
