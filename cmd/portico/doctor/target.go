package doctor

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"time"

	"k8s.io/client-go/rest"

	"portico/cmd/portico/cli"
	"portico/cmd/portico/client"
	"portico/cmd/portico/inspect"
	"portico/cmd/portico/stored"
	"portico/resource/egress"
)

type verdict string

const (
	good    verdict = "OK"
	warns   verdict = "WARN"
	failed  verdict = "FAIL"
	skipped verdict = "SKIPPED"
)

var colors = map[verdict]cli.Color{good: cli.Green, warns: cli.Yellow, failed: cli.Red}

// finding is what a check found.
type finding struct {
	verdict verdict
	text    string
}

func ok(format string, args ...any) finding   { return finding{good, fmt.Sprintf(format, args...)} }
func warn(format string, args ...any) finding { return finding{warns, fmt.Sprintf(format, args...)} }
func fail(format string, args ...any) finding { return finding{failed, fmt.Sprintf(format, args...)} }
func skip(format string, args ...any) finding {
	return finding{skipped, fmt.Sprintf(format, args...)}
}

// worst collects what is wrong with several things: the gravest verdict, and all that have it.
type worst struct {
	failed, warned []string
}

func (w *worst) fail(format string, args ...any) {
	w.failed = append(w.failed, fmt.Sprintf(format, args...))
}

func (w *worst) warn(format string, args ...any) {
	w.warned = append(w.warned, fmt.Sprintf(format, args...))
}

// finding returns what was collected; fine is the text if it is nothing.
func (w *worst) finding(fine string, args ...any) finding {
	switch {
	case len(w.failed) > 0:
		return finding{failed, some(append(w.failed, w.warned...))}
	case len(w.warned) > 0:
		return finding{warns, some(w.warned)}
	}
	return ok(fine, args...)
}

// maxNamed bounds what a finding names.
const maxNamed = 5

func some(texts []string) string {
	if n := len(texts) - maxNamed; n > 0 {
		return fmt.Sprintf("%s; and %d more", strings.Join(texts[:maxNamed], "; "), n)
	}
	return strings.Join(texts, "; ")
}

// target is the installation that is examined. Its fields do not change during the checks.
type target struct {
	// folder is nil without one on this machine, holder the portico up that uses it.
	folder *inspect.Folder
	holder int
	// gateway is nil, and unopened says why, if the kubeconfig cannot be used.
	gateway  *client.Client
	unopened error
	view     *inspect.View
	// answer is that of the gateway to a request without credentials, at the local time answered;
	// unanswered is why there is none.
	answer     *http.Response
	answered   time.Time
	unanswered error
	// units is the folder of systemd's units.
	units string
	write bool
	// stored is what etcd holds; upgrade-check has it.
	stored *stored.Contents
	// definitions are those in etcd.
	definitions []*stored.Definition
	// etcdVersion is the version of etcd, or of the database file of one that does not run; embedded says that it is that of
	// portico up.
	etcdVersion string
	embedded    bool
	// config is the problems of the configuration file, of which configFile is the name; "" without one.
	configFile string
	config     []error

	statfs func(path string, into *syscall.Statfs_t) error
	sync   func(folder string) (time.Duration, error) // of one write
}

// systemdUnits is where the administrator's units are.
const systemdUnits = "/etc/systemd/system"

// observe reads what most checks look at. gateway or folder is nil, but not both.
func observe(ctx context.Context, gateway *client.Client, folder *inspect.Folder, unopened error) *target {
	t := &target{folder: folder, gateway: gateway, unopened: unopened, view: &inspect.View{}, units: systemdUnits, statfs: syscall.Statfs, sync: syncOnce}
	if folder != nil {
		t.holder = folder.Holder()
	}
	if gateway == nil {
		return t
	}
	local := folder
	if t.holder == 0 {
		local = nil
	}
	t.view = inspect.Read(ctx, gateway, local)
	t.answer, t.unanswered = t.anonymously(ctx, "/version")
	t.answered = time.Now()
	return t
}

// anonymously sends a GET without credentials. The certificate of the gateway is verified by the
// check of it, so that the others can look further.
func (t *target) anonymously(ctx context.Context, path string) (*http.Response, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	cfg := rest.AnonymousClientConfig(t.gateway.Config())
	cfg.Insecure, cfg.CAData, cfg.CAFile = true, nil, ""
	cfg.Wrap(egress.RefuseRedirects)
	c, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, err
	}
	defer c.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, t.gateway.Host()+path, nil)
	if err != nil {
		return nil, err
	}
	answer, err := c.Do(req)
	if err != nil {
		return nil, err
	}
	return answer, answer.Body.Close()
}

// away reports whether there is no gateway to ask, and the checks kubeconfig, name and port have the reason.
func (t *target) away() bool { return t.gateway == nil || t.unanswered != nil }

func noGateway() finding { return skip("the gateway does not answer") }

// requestTimeout bounds one request.
const requestTimeout = 10 * time.Second

// get reads an object or a list. The finding is why it cannot be read; done is false then.
func (t *target) get(ctx context.Context, path string, into any) (why finding, done bool) {
	return t.send(ctx, http.MethodGet, path, inspect.FromMemory(), nil, into)
}

func (t *target) send(ctx context.Context, method, path string, query url.Values, body, into any) (why finding, done bool) {
	if t.away() {
		return noGateway(), false
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	if err := t.gateway.Send(ctx, method, path, query, body, into); err != nil {
		return skip("%v", err), false
	}
	return finding{}, true
}

// unread returns why a part of the view could not be read; read is true if it was.
func (t *target) unread(what string) (why finding, read bool) {
	if t.away() {
		return noGateway(), false
	}
	for _, u := range t.view.Unread {
		if u.What == what {
			return skip("%s", u.Why), false
		}
	}
	return finding{}, true
}

// flags returns the flags of the gateway.
func (t *target) flags(ctx context.Context) (all map[string]string, why finding, read bool) {
	if t.away() {
		return nil, noGateway(), false
	}
	data, err := t.gateway.GetAs(ctx, "/flagz", "application/json;g=config.k8s.io;v=v1beta1;as=Flagz")
	if err != nil {
		return nil, skip("%v", err), false
	}
	var page struct{ Flags map[string]string }
	if err := json.Unmarshal(data, &page); err != nil {
		return nil, skip("decode /flagz: %v", err), false
	}
	return page.Flags, finding{}, true
}

// certificate returns the connection state of the answer; nil without TLS.
func (t *target) certificate() *tls.ConnectionState {
	if t.answer == nil {
		return nil
	}
	return t.answer.TLS
}
