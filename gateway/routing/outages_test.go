package routing

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apireg "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico/apiservice/availability"
	"portico/apiservice/backend"
)

// logged is a Controller whose log a test reads.
type logged struct {
	*Controller
	log bytes.Buffer
}

func newLogged(t *testing.T, list []*apireg.APIService, backends ...*backend.Backend) *logged {
	t.Helper()
	l := &logged{}
	l.Controller = New(Config{Logger: slog.New(slog.NewTextHandler(&l.log, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))})
	t.Cleanup(l.closeAll)
	l.began = l.began.Add(-outagePause)
	l.SetAPIServices(list)
	l.store(backends...)
	return l
}

// lines returns what was logged since the last call.
func (l *logged) lines() []string {
	defer l.log.Reset()
	return strings.Split(strings.TrimSpace(l.log.String()), "\n")
}

// sees sets the verdict on an endpoint of the Backend "b" and reconciles.
func (l *logged) sees(url string, err error) (next time.Duration) {
	l.servers[targetOfBackend("b")].Up.SetVerdict(url, availability.Verdict{Known: true, Healthy: err == nil, Err: err, Since: time.Now()})
	return l.Reconcile()
}

// An outage of an endpoint, of a Backend, and of an API whose server is not found, is a warning;
// its end is information. Each is one line, whatever else is reconciled, and APIs of the Backend
// are not named.
func TestOutagesAreLogged(t *testing.T) {
	t.Parallel()
	refused := errors.New("refused")
	l := newLogged(t, []*apireg.APIService{custom(widgetsGroup, "b"), userAPIService("gone.example.com", "v1", "gone")}, backendAt(one, two))
	wants := func(what string, want ...string) {
		t.Helper()
		l.Reconcile()
		if got := strings.Join(l.lines(), "\n"); got != strings.Join(want, "\n") {
			t.Errorf("%s:\n%s", what, got)
		}
	}
	wants("at first", `level=WARN msg="became unavailable" apiservice=v1.gone.example.com reason=ServiceNotFound err="Backend \"gone\" is not present"`)
	l.sees(one, nil)
	l.sees(two, nil)
	wants("all are healthy", "")
	l.sees(two, refused)
	wants("an endpoint is down", `level=WARN msg="became unavailable" endpoint="b https://two" reason=FailedDiscoveryCheck err="failing or missing response from https://two: refused"`)
	l.sees(one, refused)
	got := l.lines()
	if len(got) != 2 || !strings.Contains(strings.Join(got, "\n"), `level=WARN msg="became unavailable" backend=b reason=FailedDiscoveryCheck err="failing or missing response from any endpoint of b: refused"`) {
		t.Errorf("both are down: %q", got)
	}
	l.sees(one, errors.New("another"))
	wants("another error", "")
	l.sees(two, nil)
	if got := strings.Join(l.lines(), "\n"); strings.Count(got, `level=INFO msg="is available again"`) != 2 || !strings.Contains(got, " backend=b") {
		t.Errorf("one is back: %s", got)
	}
	l.store()
	l.lines()
	l.store(backendAt(one, two))
	wants("another Backend of the name, not checked yet", "")
}

// A server that comes and goes is logged a few times, and its last state later.
func TestOutagesDoNotFillTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLogged(t, nil, backendAt(one))
		var next time.Duration
		for range 100 {
			l.sees(one, nil)
			next = l.sees(one, errors.New("refused"))
		}
		if n := len(l.lines()); n != outageBurst || next <= 0 || next > outagePause {
			t.Errorf("%d lines, the next after %v", n, next)
		}
		l.sees(one, nil)
		l.sees(one, errors.New("refused"))
		time.Sleep(outagePause)
		l.Reconcile()
		if got := l.lines(); len(got) != 1 || !strings.Contains(got[0], "level=WARN") {
			t.Errorf("later: %q", got)
		}
	})
}

// A server that starts with the gateway, or a little later, is no outage. One that is still not there
// after that is.
func TestServersThatStartWithTheGateway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLogged(t, nil, backendAt(one, two))
		l.began = time.Now()
		refused := errors.New("refused")
		l.sees(one, refused)
		if next := l.sees(two, refused); next <= 0 || next > outagePause {
			t.Errorf("the next look is after %v", next)
		}
		l.sees(one, nil)
		if got := strings.Join(l.lines(), ""); got != "" {
			t.Errorf("at first: %s", got)
		}
		time.Sleep(outagePause)
		l.Reconcile()
		if got := l.lines(); len(got) != 1 || !strings.Contains(got[0], "endpoint=") || !strings.Contains(got[0], "two") {
			t.Errorf("later: %q", got)
		}
	})
}
