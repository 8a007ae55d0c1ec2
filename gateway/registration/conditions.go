package registration

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apireg "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico/apiservice"
	"portico/resource"
	"portico/resource/rest"
)

// writeConditions writes the conditions that differ from what is stored. Those
// that are held back are written by a later turn, which paced says when.
func (g *registrar) writeConditions(ctx context.Context, stored map[string]*apireg.APIService, known map[string]apiservice.Condition) error {
	var differ []string
	for name, want := range known {
		a := stored[name]
		if a == nil {
			continue
		}
		have, ok := apiservice.Current(a)
		switch {
		case ok && have.Agrees(want):
		case ok && have.Status == want.Status && have.Reason == want.Reason && !g.paced.allow(name, time.Now()):
		default:
			differ = append(differ, name)
		}
	}
	return each(differ, func(name string) error { return g.setCondition(ctx, name, known[name]) })
}

// setCondition writes one condition. That the APIService is gone meanwhile is
// no error.
func (g *registrar) setCondition(ctx context.Context, name string, want apiservice.Condition) error {
	_, err := rest.Modify(ctx, g.services, resource.Key{Name: name}, func(a *apireg.APIService) error {
		if have, ok := apiservice.Current(a); !ok || !have.Agrees(want) {
			apiservice.Set(a, want.ObservedBy(g.observer), time.Now())
		}
		return nil
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("write condition of APIService %q: %w", name, err)
	}
	return nil
}

// pace holds back messages. The zero value is ready; it is not safe for concurrent
// use.
type pace struct {
	allowance
	// due is when the first of those that were held back may be written; zero:
	// none was.
	due time.Time
}

// begin starts a turn: it forgets what holds nothing back any more.
func (p *pace) begin(now time.Time) {
	p.due, p.pause, p.atOnce = time.Time{}, messagePause, 1
	p.forget(now)
}

// allow reports whether the message may be written now, and counts it as written
// if so.
func (p *pace) allow(name string, now time.Time) bool {
	wait := p.wait(name, now)
	if wait == 0 {
		p.spend(name, now)
		return true
	}
	if due := now.Add(wait); p.due.IsZero() || due.Before(p.due) {
		p.due = due
	}
	return false
}

// next fires when what was held back may be written; nil: nothing is.
func (p *pace) next(now time.Time) <-chan time.Time {
	if p.due.IsZero() {
		return nil
	}
	return time.After(p.due.Sub(now))
}
