package serve

import (
	"net/http"
	"strings"

	"portico/resource"
)

// labels are what a request is counted under.
type labels struct {
	verb, dryRun, group, version, resource, subresource, scope, component string
}

// labelNames are the names of labels.values, in order.
func labelNames() []string {
	return []string{"verb", "dry_run", "group", "version", "resource", "subresource", "scope", "component"}
}

func (l labels) values() []string {
	return []string{l.verb, l.dryRun, l.group, l.version, l.resource, l.subresource, l.scope, l.component}
}

// withoutDryRun leaves dry_run out of labelNames or of labels.values.
func withoutDryRun(all []string) []string { return append([]string{all[0]}, all[2:]...) }

// withoutComponent leaves the component, the last, out of them, too.
func withoutComponent(all []string) []string {
	fewer := withoutDryRun(all)
	return fewer[:len(fewer)-1]
}

// unresolved drops what a client could make up. Who counts as another component
// (CountAs) found a route, so that the group and version exist.
func (l labels) unresolved() labels {
	if l.component != defaultComponent {
		l.resource, l.subresource = "", ""
		return l
	}
	return labels{verb: l.verb, dryRun: l.dryRun, scope: l.scope, component: l.component}
}

// defaultComponent is who answers, unless somebody says otherwise (CountAs).
const defaultComponent = "apiserver"

// labelsOf returns what a request is counted under (contract 1.6).
func labelsOf(r *http.Request, a *resource.Action, component string) labels {
	if component == "" {
		component = defaultComponent
	}
	l := labels{verb: verbLabel(r, a), dryRun: dryRunLabel(r), scope: scopeLabel(a), component: component}
	if a.IsResource {
		l.group, l.version, l.resource, l.subresource = a.Group, a.Version, a.Resource, a.Subresource
	} else {
		l.subresource = pathLabel(a.Path)
	}
	return l
}

// VerbLabel is the verb that a request is counted under (contract 1.6): GET,
// LIST, WATCH, POST, PUT, PATCH, APPLY, DELETE, DELETECOLLECTION, CONNECT, HEAD,
// OPTIONS or other.
func VerbLabel(r *http.Request) string { return verbLabel(r, resource.ActionFrom(r.Context())) }

// verbLabel reclassifies the verb: dashboards know LIST, WATCH and APPLY, and
// otherwise think in HTTP methods.
func verbLabel(r *http.Request, a *resource.Action) string {
	if !a.IsResource {
		return methodLabel(r.Method)
	}
	switch a.Subresource {
	case "exec", "attach", "portforward", "proxy":
		return "CONNECT"
	}
	switch a.Verb {
	case "list":
		return "LIST"
	case "watch":
		return "WATCH"
	case "deletecollection":
		return "DELETECOLLECTION"
	case "proxy":
		return "CONNECT"
	case "patch":
		if strings.HasPrefix(r.Header.Get("Content-Type"), "application/apply-patch") {
			return "APPLY"
		}
	}
	return methodLabel(r.Method)
}

func methodLabel(method string) string {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodConnect, http.MethodOptions:
		return method
	}
	return "other"
}

func dryRunLabel(r *http.Request) string {
	if !strings.Contains(r.URL.RawQuery, "dryRun") {
		return ""
	}
	asked, found := r.URL.Query()["dryRun"]
	if !found {
		return ""
	}
	for _, value := range asked {
		if value != "All" {
			return "invalid"
		}
	}
	return "All"
}

func scopeLabel(a *resource.Action) string {
	switch {
	case !a.IsResource:
		return ""
	case a.Name != "" || a.Verb == "create":
		return "resource"
	case a.Namespace != "":
		return "namespace"
	}
	return "cluster"
}

// pathLabel returns the paths that are the same on every server; others are not
// told apart.
func pathLabel(path string) string {
	switch path {
	case "/healthz", "/livez", "/readyz", "/metrics", pathSLIs, "/version", "/openapi/v2", "/openapi/v3":
		return path
	}
	return ""
}
