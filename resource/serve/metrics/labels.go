package metrics

import (
	"net/http"
	"strings"

	"portico/resource"
)

// labels are the labels of a request.
type labels struct {
	verb, dryRun, group, version, resource, subresource, scope, component string
}

// labelNames returns the names of labels.values, in the same order.
func labelNames() []string {
	return []string{"verb", "dry_run", "group", "version", "resource", "subresource", "scope", "component"}
}

func (l labels) values() []string {
	return []string{l.verb, l.dryRun, l.group, l.version, l.resource, l.subresource, l.scope, l.component}
}

// withoutDryRun removes dry_run from labelNames or labels.values.
func withoutDryRun(all []string) []string { return append([]string{all[0]}, all[2:]...) }

// withoutComponent removes dry_run and component, which is the last.
func withoutComponent(all []string) []string {
	fewer := withoutDryRun(all)
	return fewer[:len(fewer)-1]
}

// unresolved clears the labels that a client can invent. The group and version of a
// request for another component than the API server exist: it has a route.
func (l labels) unresolved() labels {
	if l.component != defaultComponent {
		l.resource, l.subresource = "", ""
		return l
	}
	return labels{verb: l.verb, dryRun: l.dryRun, scope: l.scope, component: l.component}
}

// defaultComponent is the component of requests that this process answers itself.
const defaultComponent = "apiserver"

// labelsOf returns the labels of a request; component "" is defaultComponent.
func labelsOf(r *http.Request, a *resource.Action, component string) labels {
	if component == "" {
		component = defaultComponent
	}
	l := labels{verb: verbLabel(r, a), dryRun: dryRunLabel(r), scope: scopeLabel(a), component: component}
	if a.IsResource {
		l.group, l.version, l.resource, l.subresource = a.Group, a.Version, a.Resource, a.Subresource
	} else {
		l.subresource = pathSubresource(a.Path)
	}
	return l
}

// VerbLabel returns the label verb of a request, as kube-apiserver reports it: GET,
// LIST, WATCH, POST, PUT, PATCH, APPLY, DELETE, DELETECOLLECTION, CONNECT, HEAD,
// OPTIONS or other.
func VerbLabel(r *http.Request) string { return verbLabel(r, resource.ActionFrom(r.Context())) }

func verbLabel(r *http.Request, a *resource.Action) string {
	if !a.IsResource {
		return MethodLabel(r.Method)
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
	return MethodLabel(r.Method)
}

// MethodLabel returns the method if it is one of HTTP's, and else "other".
func MethodLabel(method string) string {
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

// PathLabel returns the path if every server has it, and else "".
func PathLabel(path string) string {
	switch path {
	case "/healthz", "/livez", "/readyz", "/metrics", PathSLIs, "/version", "/openapi/v2", "/openapi/v3":
		return path
	}
	return ""
}

// pathSubresource returns the label subresource of a path that is no resource. As in
// kube-apiserver, the index of OpenAPI v3 has one, and all its documents together another one.
func pathSubresource(path string) string {
	switch {
	case path == "/openapi/v3":
		return "openapi/v3"
	case strings.HasPrefix(path, "/openapi/v3/"):
		return "openapi/v3/"
	}
	return PathLabel(path)
}
