package doctor

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	utilversion "k8s.io/apimachinery/pkg/util/version"

	"portico/cmd/portico/cli"
	"portico/cmd/portico/inspect"
	"portico/gateway/installation"
	"portico/resource/etcd"
	"portico/resource/serve/version"
)

func readiness(_ context.Context, t *target) finding {
	if why, read := t.unread("readiness"); !read {
		return why
	}
	var w worst
	for _, name := range t.view.Failed {
		w.fail("%s fails", name)
	}
	for _, warning := range t.view.Warnings {
		w.warn("%s", warning)
	}
	return w.finding("the gateway is ready")
}

// installation returns what the gateway sees.
func (t *target) installation() (i *installation.Report, why finding, read bool) {
	why, read = t.unread("installation")
	return t.view.Installation, why, read
}

func servers(_ context.Context, t *target) finding {
	i, why, read := t.installation()
	if !read {
		return why
	}
	return judgeServers(i)
}

func judgeServers(i *installation.Report) finding {
	var w worst
	for _, s := range i.Servers {
		if s.Error != "" {
			w.fail("%s: %s", s.Name, s.Error)
		}
	}
	for _, process := range i.Processes {
		if process.Silent(i.Time) {
			w.warn("%s %s is silent since %s", process.Component, process.Instance, process.Renewed.Format(time.RFC3339))
		}
	}
	return w.finding("processes: %d; servers that answer the gateway: %d", len(i.Processes), len(i.Servers))
}

func versions(_ context.Context, t *target) finding {
	i, why, read := t.installation()
	if !read {
		return why
	}
	return judgeVersions(version.Info().GitVersion, i)
}

func judgeVersions(own string, i *installation.Report) finding {
	var w worst
	gatewayMinor := minor(i.Version)
	compare := func(name, v string) {
		switch distance := minor(v) - gatewayMinor; {
		case distance > 1 || distance < -1:
			w.fail("%s has %s, and the gateway %s", name, v, i.Version)
		case v != i.Version:
			w.warn("%s has %s, and the gateway %s", name, v, i.Version)
		}
	}
	compare("this program", own)
	for _, process := range i.Processes {
		compare(process.Component+" "+process.Instance, process.Version)
	}
	return w.finding("all have %s", i.Version)
}

// minor returns the minor version; 0 if there is none.
func minor(v string) int {
	parsed, err := utilversion.ParseGeneric(v)
	if err != nil {
		return 0
	}
	return int(parsed.Minor())
}

func leaders(_ context.Context, t *target) finding {
	i, why, read := t.installation()
	if !read {
		return why
	}
	return judgeLeaders(&i.Etcd)
}

func judgeLeaders(r *etcd.Report) finding {
	if r.Error != "" {
		return skip("the elections cannot be read: %s", r.Error)
	}
	var w worst
	for _, name := range inspect.WithoutLeader(r) {
		w.fail("%s has no leader", name)
	}
	return w.finding("%s, with one leader each", cli.Plural(len(r.Elections), "election"))
}

// manyRefused is the part of all requests to warn of.
const manyRefused = 0.01

func refusals(_ context.Context, t *target) finding {
	if why, read := t.unread("metrics"); !read {
		return why
	}
	var all uint64
	for _, l := range t.view.Metrics.Loads() {
		all += l.Requests
	}
	refused, total := t.view.Metrics.Sum("apiserver_request_terminations_total", "code"), 0.0
	var parts []string
	for _, code := range slices.Sorted(maps.Keys(refused)) {
		parts, total = append(parts, fmt.Sprintf("%.0f with %s", refused[code], code)), total+refused[code]
	}
	for name, n := range t.view.Metrics.Sum("portico_upstream_queue_rejections_total", "backend") {
		parts, total = append(parts, fmt.Sprintf("%.0f for Backend %s, whose queue was full", n, name)), total+n
	}
	switch {
	case total == 0:
		return ok("none of %s", cli.Plural(int(all), "request"))
	case total > manyRefused*(float64(all)+total):
		return warn("%s, beside %d others", strings.Join(parts, ", "), all)
	}
	return ok("%s, of %d", strings.Join(parts, ", "), all)
}

func audit(ctx context.Context, t *target) finding {
	flags, why, read := t.flags(ctx)
	if !read {
		return why
	}
	return judgeAudit(flags, t.view.Metrics)
}

func judgeAudit(flags map[string]string, m inspect.Metrics) finding {
	policy, sink := flags["audit-policy-file"], flags["audit-log-path"]+flags["audit-webhook-config-file"]
	lost := 0.0
	for _, n := range m.Sum("apiserver_audit_error_total", "plugin") {
		lost += n
	}
	switch {
	case policy == "" && sink == "":
		return ok("nothing is audited")
	case policy == "":
		return fail("there is a sink and no policy: nothing is audited")
	case sink == "":
		return fail("there is a policy and no sink: nothing is audited")
	case lost > 0:
		return fail("%.0f events were lost since the gateway started", lost)
	}
	return ok("no event was lost since the gateway started")
}

// justStarted is how long servers may take to confirm what a gateway knew before it started.
const justStarted = 2 * time.Minute

func lastGood(_ context.Context, t *target) finding {
	if why, read := t.unread("metrics"); !read {
		return why
	}
	n := 0.0
	for _, s := range t.view.Metrics["portico_gateway_last_good_documents"] {
		n += inspect.Value(s)
	}
	i := t.view.Installation
	switch {
	case n > 0 && i != nil && time.Since(i.Started) < justStarted:
		return ok("%.0f documents are from before the start of the gateway, a moment ago", n)
	case n > 0:
		return warn("%.0f documents are from before the start of the gateway", n)
	}
	return ok("all documents are confirmed")
}
