package handlers

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico/resource/rest"
)

// grace is how long an object goes on while it is being deleted: seconds, and
// when they end. The zero value is not at all.
type grace struct {
	seconds int64
	until   metav1.Time
}

// lingers reports whether the object is going gracefully already, and this
// deletion does not ask for anything sooner.
func (d *deletion) lingers(obj rest.Object) bool {
	period, asked := obj.GetDeletionGracePeriodSeconds(), d.opts.GracePeriodSeconds
	if d.res.Strategy.Grace == nil || obj.GetDeletionTimestamp() == nil || period == nil || *period <= 0 {
		return false
	}
	return asked == nil || *asked >= *period
}

// grace returns what the object is given from now on: what its kind says while
// it lives, and what is asked for once it is going, counted from when it began
// to go, which lies before lingers.
func (d *deletion) grace(obj rest.Object) grace {
	s, asked := &d.res.Strategy, d.opts.GracePeriodSeconds
	if s.Grace == nil {
		return grace{}
	}
	after := func(t metav1.Time, seconds int64) metav1.Time {
		return metav1.NewTime(t.Add(time.Duration(seconds) * time.Second))
	}
	end := obj.GetDeletionTimestamp()
	if end == nil {
		seconds := s.Grace(obj, asked)
		return grace{seconds, after(rest.Now(), seconds)}
	}
	period := obj.GetDeletionGracePeriodSeconds()
	if period == nil || *period <= 0 || asked == nil || *asked <= 0 {
		return grace{}
	}
	g := grace{*asked, after(*end, *asked-*period)}
	if now := rest.Now(); g.until.Before(&now) {
		// The period is over, and whoever is to end the object still has to.
		g = grace{1, now}
	}
	return g
}
