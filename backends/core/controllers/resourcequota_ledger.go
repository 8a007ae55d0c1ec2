package controllers

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	quota "k8s.io/apiserver/pkg/quota/v1"
)

// chargeWindow is longer than a write can take from its charge until its object is stored and
// seen: writes end after 34 s (docs/wire.md 0.2).
const chargeWindow = time.Minute

// settleTime is longer than an informer needs to call the handlers of a change that its store has.
const settleTime = 2 * time.Second

// quotaLedger says how low the usage of one quota may be set. Usage must not be set to what is
// stored, because that lacks the objects of writes that were charged and are under way: the
// quota would be exceeded. It may be set to needed, the usage when the quota was first seen, with
// every charge since and without what was seen to go since.
//
// Within chargeWindow of changed, needed is at least what is stored and counted in the status: a deleted object may never
// have been charged.
//
// So needed follows deletions at once. It is too high by the charges of writes that failed, its
// surplus: what is above the stored objects and all charges of the last chargeWindow. That is
// taken off settleTime later, as the stored objects may lack some that were not yet seen to go.
type quotaLedger struct {
	quota   *corev1.ResourceQuota // as last seen
	needed  corev1.ResourceList
	charges []quotaCharge // of the last chargeWindow, oldest first
	// changed is when the quota was first seen, or with other limits.
	changed time.Time
	// from is when the charges began to be known; zero: when the quota got its first usage.
	from time.Time
	// surplus was found at found; zero: none was looked for.
	surplus corev1.ResourceList
	found   time.Time
}

// quotaCharge is what was charged within a second from a time on.
type quotaCharge struct {
	at     time.Time
	amount corev1.ResourceList
}

func newQuotaLedger(q *corev1.ResourceQuota, now time.Time) *quotaLedger {
	l := &quotaLedger{quota: q, needed: quota.Add(nil, q.Status.Used), changed: now}
	if len(q.Status.Used) > 0 {
		l.from = now
	}
	return l
}

// observe records a later state of the quota, and reports whether its usage was raised.
func (l *quotaLedger) observe(q *corev1.ResourceQuota, now time.Time) bool {
	raised, needed := corev1.ResourceList{}, corev1.ResourceList{}
	for name, v := range q.Status.Used {
		was, known := l.quota.Status.Used[name]
		if !known {
			needed[name] = v.DeepCopy()
			continue
		}
		sum := l.needed[name].DeepCopy()
		if more := difference(v, was); more.Sign() > 0 {
			raised[name] = more
			sum.Add(more)
		}
		needed[name] = sum
	}
	if !quota.Equals(l.quota.Spec.Hard, q.Spec.Hard) {
		l.changed = now
	}
	l.quota, l.needed = q, needed
	if len(raised) == 0 {
		return false
	}
	if n := len(l.charges); n > 0 && now.Sub(l.charges[n-1].at) < time.Second {
		l.charges[n-1].amount = quota.Add(l.charges[n-1].amount, raised)
	} else {
		l.charges = append(l.recent(now), quotaCharge{now, raised})
	}
	return true
}

// mayLack reports whether an object that is seen now may be missing in the usage: admission did not charge it, because
// it did not know the quota or its limits yet, and the informer of such objects was behind when they were counted.
func (l *quotaLedger) mayLack(now time.Time) bool { return now.Sub(l.changed) <= chargeWindow }

// recent returns the charges of the last chargeWindow.
func (l *quotaLedger) recent(now time.Time) []quotaCharge {
	for i, c := range l.charges {
		if now.Sub(c.at) <= chargeWindow {
			return l.charges[i:]
		}
	}
	return nil
}

// release records that an object uses less than before, or that its usage is another one, which
// it reports.
func (l *quotaLedger) release(before, now corev1.ResourceList) bool {
	for name, v := range quota.SubtractWithNonNegativeResult(before, now) {
		for _, list := range []corev1.ResourceList{l.needed, l.surplus} {
			if sum, ok := list[name]; ok {
				list[name] = difference(sum, v) // less than 0 if the charge has not been seen yet
			}
		}
	}
	return !quota.Equals(quota.RemoveZeros(before), quota.RemoveZeros(now))
}

// usage returns the usage to store, where stored is what the stored objects use. It has to be
// called again after a time, if that is not 0, because the usage may be less then.
func (l *quotaLedger) usage(stored corev1.ResourceList, now time.Time) (used corev1.ResourceList, again time.Duration) {
	l.correct(stored, now)
	used = quota.Mask(l.quota.Status.Used, quota.ResourceNames(l.quota.Spec.Hard))
	for name, v := range stored {
		if was, ok := used[name]; ok && was.Cmp(v) > 0 {
			v = higher(v, lower(was, l.needed[name]))
			if v.Cmp(stored[name]) > 0 {
				again = chargeWindow + time.Second
			}
		}
		used[name] = v
	}
	if len(l.surplus) > 0 {
		again = settleTime
	}
	return used, again
}

// correct takes off the surplus that was found settleTime ago, raises needed to what is stored while objects may be
// uncharged (mayLack), and computes the surplus anew.
func (l *quotaLedger) correct(stored corev1.ResourceList, now time.Time) {
	if len(l.surplus) > 0 && now.Sub(l.found) < settleTime {
		return
	}
	for name, v := range l.surplus {
		if sum, ok := l.needed[name]; ok && v.Sign() > 0 {
			l.needed[name] = difference(sum, v)
		}
	}
	l.surplus, l.found, l.charges = corev1.ResourceList{}, now, l.recent(now)
	if l.mayLack(now) {
		// A deleted object may never have been charged: release must not consume later charges.
		for name, v := range stored {
			if sum, ok := l.needed[name]; ok {
				l.needed[name] = higher(sum, lower(v, l.quota.Status.Used[name]))
			}
		}
	}
	if !l.from.IsZero() && now.Sub(l.from) <= chargeWindow {
		return
	}
	least := stored
	for _, c := range l.charges {
		least = quota.Add(least, c.amount)
	}
	for name := range stored {
		if sum, ok := l.needed[name]; ok && sum.Cmp(least[name]) > 0 {
			l.surplus[name] = difference(sum, least[name])
		}
	}
}

func lower(a, b apiresource.Quantity) apiresource.Quantity {
	if b.Cmp(a) < 0 {
		return b
	}
	return a
}

func higher(a, b apiresource.Quantity) apiresource.Quantity {
	if b.Cmp(a) > 0 {
		return b
	}
	return a
}

func difference(a, b apiresource.Quantity) apiresource.Quantity {
	a = a.DeepCopy()
	a.Sub(b)
	return a
}
