package doctor

import (
	"context"

	"portico/apiservice"
	"portico/apiservice/backend"
	"portico/cmd/portico/cli"
	"portico/cmd/portico/inspect"
)

func apis(_ context.Context, t *target) finding {
	if why, read := t.unread("APIs"); !read {
		return why
	}
	var w worst
	for i := range t.view.APIs {
		a := &t.view.APIs[i]
		if c, known := apiservice.Current(a); known && !c.Available() {
			w.fail("%s: %s: %s", a.Name, c.Reason, c.Message)
		}
	}
	return w.finding("%s, all available", cli.Plural(len(t.view.APIs), "APIService"))
}

func endpoints(_ context.Context, t *target) finding {
	if why, read := t.unread("Backends"); !read {
		return why
	}
	var w worst
	for _, b := range t.view.Backends {
		healthy := 0
		for _, e := range b.Status.Endpoints {
			switch e.State {
			case backend.EndpointHealthy:
				healthy++
			case backend.EndpointUnhealthy, backend.EndpointEjected:
				w.warn("%s: %s is %s: %s", b.Name, e.URL, e.State, e.LastError)
			}
		}
		if healthy == 0 && len(b.Status.Endpoints) > 0 {
			w.fail("%s has no healthy endpoint", b.Name)
		}
	}
	return w.finding("%s", cli.Plural(len(t.view.Backends), "Backend"))
}

// startsWith are the Backends of an installation itself.
var startsWith = map[string]bool{"core": true, "crd": true}

func singleEndpoints(_ context.Context, t *target) finding {
	if why, read := t.unread("Backends"); !read {
		return why
	}
	var w worst
	others := 0
	for _, b := range t.view.Backends {
		if startsWith[b.Name] {
			continue // core and crd of portico up have one process each by intent
		}
		if others++; len(b.Status.Endpoints) == 1 {
			w.warn("%s", b.Name)
		}
	}
	if others == 0 {
		return ok("there are no Backends beside core and crd")
	}
	return w.finding("none of %s beside core and crd", cli.Plural(others, "Backend"))
}

func trust(_ context.Context, t *target) finding {
	if why, read := t.unread("Backends"); !read {
		return why
	}
	if why, read := t.unread("APIs"); !read {
		return why
	}
	var w worst
	for _, b := range t.view.Backends {
		if b.Spec.TLS != nil && b.Spec.TLS.InsecureSkipVerify {
			w.warn("Backend %s: insecureSkipVerify", b.Name)
		}
	}
	for i := range t.view.APIs {
		if a := &t.view.APIs[i]; a.Spec.InsecureSkipTLSVerify {
			w.warn("APIService %s: insecureSkipTLSVerify", a.Name)
		}
	}
	return w.finding("all are verified")
}

func discovery(_ context.Context, t *target) finding {
	if why, read := t.unread("Backends"); !read {
		return why
	}
	var w worst
	for _, b := range t.view.Backends {
		for _, gv := range b.Status.GroupVersions {
			if gv.Freshness == "Stale" {
				w.warn("%s/%s of %s is stale", gv.Group, gv.Version, b.Name)
			}
		}
	}
	for name, n := range t.view.Metrics.Sum("portico_discovery_dropped_group_versions", "backend") {
		w.warn("%.0f group/versions of %s are left out", n, name)
	}
	return w.finding("all groups are current")
}

func openAPI(_ context.Context, t *target) finding {
	if why, read := t.unread("metrics"); !read {
		return why
	}
	var w worst
	for _, s := range t.view.Metrics["portico_gateway_openapi_broken"] {
		if inspect.Value(s) > 0 {
			w.warn("%s of %s", inspect.Label(s, "group_version"), inspect.Label(s, "backend"))
		}
	}
	return w.finding("all documents can be used")
}
