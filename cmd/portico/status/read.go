package status

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"portico/apiservice"
	"portico/apiservice/backend"
	"portico/cmd/internal/datadir"
	"portico/cmd/portico/cli"
	"portico/cmd/portico/client"
	"portico/cmd/portico/inspect"
	"portico/cmd/portico/logs"
	"portico/gateway/installation"
)

// Status is an installation at a glance.
type Status struct {
	Healthy bool `json:"healthy"`
	// Problems is why it is not healthy.
	Problems []string `json:"problems,omitempty"`
	Endpoint string   `json:"endpoint"`
	Gateway  *Gateway `json:"gateway,omitempty"`
	// Installation is what the gateway sees: versions, leaders, etcd.
	Installation *installation.Report `json:"installation,omitempty"`
	// Folder is set if the installation runs on this machine.
	Folder       *Folder       `json:"folder,omitempty"`
	Certificates []Certificate `json:"certificates,omitempty"`
	// APIs and Backends are nil if they could not be read.
	APIs     *Counts          `json:"apis,omitempty"`
	Backends *Counts          `json:"backends,omitempty"`
	Slowest  []inspect.Load   `json:"slowest,omitempty"`
	Busiest  []inspect.Load   `json:"busiest,omitempty"`
	Refused  map[string]int64 `json:"refused,omitempty"`
	Webhooks map[string]int64 `json:"failedWebhooks,omitempty"`
	// Unread is what the user could not read, and why.
	Unread []inspect.Unread `json:"unread,omitempty"`
}

// Gateway is the readiness of the gateway that answers.
type Gateway struct {
	Ready    bool     `json:"ready"`
	Failed   []string `json:"failed,omitempty"`
	Warnings []string `json:"warnings,omitempty"`
}

// Folder is the data folder of portico up.
type Folder struct {
	Path string `json:"path"`
	// Holder is the process id of the portico up that uses it; 0 if none does.
	Holder    int               `json:"holder"`
	Processes []inspect.Process `json:"processes,omitempty"`
	// LastLines are those of the logs, if the gateway does not answer.
	LastLines []string `json:"lastLines,omitempty"`
}

// Certificate is a certificate of a process.
type Certificate struct {
	Usage string    `json:"usage"`
	File  string    `json:"file"`
	Ends  time.Time `json:"ends"`
}

// Counts are how many there are, those that are not available, and the Backends that are
// available with a part of their endpoints.
type Counts struct {
	Total  int    `json:"total"`
	Down   []Down `json:"down,omitempty"`
	Partly []Down `json:"partly,omitempty"`
}

// Down is an API or a Backend that does not work, or a part of it.
type Down struct {
	Name   string `json:"name"`
	Reason string `json:"reason"`
	Why    string `json:"why,omitempty"`
}

const (
	// shownLoads is how many of the slowest and of the busiest APIs are shown, lastLines how many
	// lines of logs.
	shownLoads, lastLines = 3, 5
)

// read reads everything. local is nil if the installation is not on this machine.
func read(ctx context.Context, from *client.Client, local *inspect.Folder) *Status {
	s := &Status{Endpoint: from.Host()}
	sockets := local
	if local != nil {
		s.readFolder(local)
		if s.Folder.Holder == 0 {
			sockets = nil
		}
	}
	v := inspect.Read(ctx, from, sockets)
	s.Unread = v.Unread
	if !v.Answered() {
		s.unreachable(v, local)
		return s
	}
	s.Gateway = &Gateway{Ready: len(v.Failed) == 0, Failed: v.Failed, Warnings: v.Warnings}
	for _, name := range v.Failed {
		s.problem("readyz: %s fails", name)
	}
	s.Installation = v.Installation
	if v.Installation != nil {
		s.judgeInstallation(v.Installation)
	}
	s.readAPIs(v)
	s.readBackends(v)
	s.readNamespaces(v)
	s.readCertificates(v.Metrics, time.Now())
	s.readLoads(v.Metrics)
	if len(s.Unread) > 0 {
		s.problem("not everything could be read")
	}
	s.Healthy = len(s.Problems) == 0
	return s
}

func (s *Status) problem(format string, args ...any) {
	s.Problems = append(s.Problems, fmt.Sprintf(format, args...))
}

// readFolder reads what the data folder and its processes say.
func (s *Status) readFolder(local *inspect.Folder) {
	s.Folder = &Folder{Path: local.Path, Holder: local.Holder()}
	if s.Folder.Holder == 0 {
		return
	}
	var err error
	if s.Folder.Processes, err = inspect.Processes(s.Folder.Holder); err != nil {
		s.Unread = append(s.Unread, inspect.Unread{What: "processes", Why: err.Error()})
	}
}

// unreachable says why nothing answers, in one line, and what the folder tells.
func (s *Status) unreachable(v *inspect.View, local *inspect.Folder) {
	why := s.Endpoint + " does not answer"
	if len(v.Unread) > 0 {
		why = v.Unread[0].Why
	}
	s.problem("%s", why)
	s.Unread = nil // all for one reason
	if local == nil {
		return
	}
	if s.Folder.Holder == 0 {
		s.problem("no portico up uses %s", local.Path)
	}
	lines, err := logs.Last(local.File(datadir.LogsFolder), lastLines)
	if err != nil {
		lines = []string{err.Error()}
	}
	s.Folder.LastLines = lines
}

func (s *Status) judgeInstallation(i *installation.Report) {
	for _, server := range i.Servers {
		if server.Error != "" {
			s.problem("%s server: %s", server.Name, cli.OneLine(server.Error))
		}
	}
	for _, p := range i.Processes {
		if p.Silent(i.Time) {
			s.problem("%s %s: silent for %s; if it is gone for good: kubectl delete lease -n kube-system %s", p.Component, p.Instance, duration.HumanDuration(i.Time.Sub(p.Renewed)), p.Lease)
		}
	}
	for _, m := range i.Etcd.Members {
		if m.Error != "" {
			s.problem("etcd %s: %s", m.Endpoint, m.Error)
		}
		for _, alarm := range m.Alarms {
			s.problem("etcd %s: %s", m.Endpoint, alarm)
		}
	}
	for _, name := range inspect.WithoutLeader(&i.Etcd) {
		s.problem("no process leads %s", name)
	}
	if i.Etcd.Error != "" {
		s.problem("etcd: %s", i.Etcd.Error)
	}
}

func (s *Status) readAPIs(v *inspect.View) {
	if !v.Read("APIs") {
		return
	}
	s.APIs = &Counts{Total: len(v.APIs)}
	for i := range v.APIs {
		a := &v.APIs[i]
		if c, ok := apiservice.Current(a); ok && !c.Available() {
			s.APIs.Down = append(s.APIs.Down, Down{a.Name, c.Reason, cli.OneLine(c.Message)})
		}
	}
	if n := len(s.APIs.Down); n > 0 {
		s.problem("%d of %d APIs are not available", n, s.APIs.Total)
	}
}

// readNamespaces reports namespaces whose deletion waits for a server.
func (s *Status) readNamespaces(v *inspect.View) {
	for i := range v.Terminating {
		if why := inspect.Waits(&v.Terminating[i]); why != "" {
			s.problem("namespace %s is not deleted: %s", v.Terminating[i].Name, cli.OneLine(why))
		}
	}
}

func (s *Status) readBackends(v *inspect.View) {
	if !v.Read("Backends") {
		return
	}
	s.Backends = &Counts{Total: len(v.Backends)}
	for i := range v.Backends {
		b := &v.Backends[i]
		if c := meta.FindStatusCondition(b.Status.Conditions, backend.Available); c != nil && c.Status == metav1.ConditionFalse {
			s.Backends.Down = append(s.Backends.Down, Down{b.Name, c.Reason, cli.OneLine(c.Message)})
		} else if partly := partlyDown(b); partly != nil {
			s.Backends.Partly = append(s.Backends.Partly, *partly)
		}
	}
	if n := len(s.Backends.Down); n > 0 {
		s.problem("%d of %d Backends are not available", n, s.Backends.Total)
	}
	if n := len(s.Backends.Partly); n > 0 {
		s.problem("%d of %d Backends are partly down", n, s.Backends.Total)
	}
}

// partlyDown returns the endpoints of a Backend that are down, nil if none is.
func partlyDown(b *backend.Backend) *Down {
	var down, why []string
	for _, e := range b.Status.Endpoints {
		if e.State == backend.EndpointUnhealthy || e.State == backend.EndpointEjected {
			down, why = append(down, e.URL), append(why, fmt.Sprintf("%s is %s: %s", e.URL, e.State, cli.OneLine(e.LastError)))
		}
	}
	if len(down) == 0 {
		return nil
	}
	return &Down{b.Name, fmt.Sprintf("%d of %s", len(down), cli.Plural(len(b.Status.Endpoints), "endpoint")), strings.Join(why, "; ")}
}

// readCertificates reads when certificates end, the first one first.
func (s *Status) readCertificates(m inspect.Metrics, now time.Time) {
	seen, lives := map[Certificate]bool{}, m.CertificateLives()
	for _, series := range m["portico_certificate_expiration_timestamp_seconds"] {
		c := Certificate{inspect.Label(series, "usage"), inspect.Label(series, "file"), time.Unix(int64(inspect.Value(series)), 0).UTC()}
		if !seen[c] {
			seen[c] = true
			s.Certificates = append(s.Certificates, c)
		}
	}
	slices.SortFunc(s.Certificates, func(a, b Certificate) int {
		return cmp.Or(a.Ends.Compare(b.Ends), strings.Compare(a.File, b.File))
	})
	for _, c := range s.Certificates {
		if left := c.Ends.Sub(now); left < lives.WarnBefore(c.File) {
			s.problem("certificate %s: %s", c.File, goodFor(left))
		}
	}
}

// goodFor says how long a certificate is valid.
func goodFor(left time.Duration) string {
	if left < 0 {
		return "ended " + duration.HumanDuration(-left) + " ago"
	}
	return "ends in " + duration.HumanDuration(left)
}

// readLoads reads requests since the gateway started.
func (s *Status) readLoads(m inspect.Metrics) {
	loads := m.Loads()
	first := func(order func(a, b inspect.Load) int) []inspect.Load {
		slices.SortFunc(loads, func(a, b inspect.Load) int { return cmp.Or(order(a, b), strings.Compare(a.Name, b.Name)) })
		return slices.Clone(loads[:min(shownLoads, len(loads))])
	}
	s.Slowest = first(func(a, b inspect.Load) int { return cmp.Compare(b.P99, a.P99) })
	s.Busiest = first(func(a, b inspect.Load) int { return cmp.Compare(b.Requests, a.Requests) })
	s.Refused = whole(m.Sum("apiserver_request_terminations_total", "code"))
	s.Webhooks = whole(m.Sum("apiserver_admission_webhook_fail_open_count", "name"))
	for _, series := range m["apiserver_admission_webhook_rejection_count"] {
		if n := int64(inspect.Value(series)); n > 0 && inspect.Label(series, "error_type") == "calling_webhook_error" {
			s.Webhooks[inspect.Label(series, "name")] += n
		}
	}
}

func whole(sums map[string]float64) map[string]int64 {
	out := map[string]int64{}
	for name, v := range sums {
		out[name] = int64(v)
	}
	return out
}
