package controllers

import (
	"fmt"
	"testing"
	"time"

	"portico/internal/testing/await"

	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
)

func resourceList(name corev1.ResourceName, n int64) corev1.ResourceList {
	return corev1.ResourceList{name: *apiresource.NewQuantity(n, apiresource.DecimalSI)}
}

// usageOf returns the usage of a quota, -1 if it is not known.
func (s *server) usageOf(quota string, name corev1.ResourceName) int64 {
	s.t.Helper()
	q := must[*corev1.ResourceQuota](s.t)(s.CoreV1().ResourceQuotas("default").Get(s.t.Context(), quota, metav1.GetOptions{}))
	if used, ok := q.Status.Used[name]; ok {
		return used.Value()
	}
	return -1
}

func (s *server) hasUsage(quota string, name corev1.ResourceName, want int64) {
	s.t.Helper()
	await.Until(s.t, fmt.Sprintf("quota %s has %d %s", quota, want, name), func() bool { return s.usageOf(quota, name) == want })
}

func (s *server) quota(name string, hard corev1.ResourceList) {
	s.t.Helper()
	q := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ResourceQuotaSpec{Hard: hard}}
	must[*corev1.ResourceQuota](s.t)(s.CoreV1().ResourceQuotas("default").Create(s.t.Context(), q, metav1.CreateOptions{}))
}

// A quota gets its usage, which follows deletions, pods that end and new limits at once.
func TestResourceQuota(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.run("resourcequota-controller", Options{}, nil)
	maps, pods := s.CoreV1().ConfigMaps("default"), s.CoreV1().Pods("default")
	for _, name := range []string{"a", "b"} {
		must[*corev1.ConfigMap](t)(maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}))
		must[*corev1.Pod](t)(pods.Create(t.Context(), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
		}, metav1.CreateOptions{}))
	}
	s.quota("maps", resourceList("configmaps", 10))
	s.quota("pods", corev1.ResourceList{"pods": apiresource.MustParse("5"), "count/pods": apiresource.MustParse("5"), "count/nonesuch.example.com": apiresource.MustParse("1")})
	s.hasUsage("maps", "configmaps", 2)
	s.hasUsage("pods", "pods", 2)
	if err := maps.Delete(t.Context(), "a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.hasUsage("maps", "configmaps", 1)
	ended := must[*corev1.Pod](t)(pods.Get(t.Context(), "a", metav1.GetOptions{}))
	ended.Status.Phase = corev1.PodSucceeded
	must[*corev1.Pod](t)(pods.UpdateStatus(t.Context(), ended, metav1.UpdateOptions{}))
	s.hasUsage("pods", "pods", 1)
	s.hasUsage("pods", "count/pods", 2)
	if err := pods.Delete(t.Context(), "a", metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}); err != nil {
		t.Fatal(err)
	}
	s.hasUsage("pods", "count/pods", 1)
	if got := s.usageOf("pods", "count/nonesuch.example.com"); got != -1 {
		t.Errorf("a resource that no server has is used %d times", got)
	}
	q := must[*corev1.ResourceQuota](t)(s.CoreV1().ResourceQuotas("default").Get(t.Context(), "maps", metav1.GetOptions{}))
	q.Spec.Hard = resourceList("secrets", 3)
	must[*corev1.ResourceQuota](t)(s.CoreV1().ResourceQuotas("default").Update(t.Context(), q, metav1.UpdateOptions{}))
	s.hasUsage("maps", "secrets", 0)
	s.hasUsage("maps", "configmaps", -1)
}

// An object that admission did not charge, because it did not know the quota yet, or its limits, is counted
// when it is seen: the quota itself too.
func TestResourceQuotaCountsWhatWasNotCharged(t *testing.T) {
	t.Parallel()
	s := newServer(t) // without admission
	s.run("resourcequota-controller", Options{}, nil)
	maps := s.CoreV1().ConfigMaps("default")
	s.quota("q", corev1.ResourceList{"configmaps": apiresource.MustParse("10"), "resourcequotas": apiresource.MustParse("2"), "count/configmaps": apiresource.MustParse("9")})
	s.hasUsage("q", "resourcequotas", 1)
	must[*corev1.ConfigMap](t)(maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, metav1.CreateOptions{}))
	s.hasUsage("q", "configmaps", 1)
	s.hasUsage("q", "count/configmaps", 1)
	if err := maps.Delete(t.Context(), "a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.hasUsage("q", "configmaps", 0)
	s.hasUsage("q", "count/configmaps", 0)
}

// The charge of a write that is under way, or has failed, is taken off when it can no longer
// be stored, and not earlier.
func TestResourceQuotaKeepsCharges(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	now := clocktesting.NewFakeClock(time.Now())
	s.run("resourcequota-controller", Options{}, now)
	s.quota("q", resourceList("configmaps", 10))
	s.hasUsage("q", "configmaps", 0)
	charge := must[*corev1.ResourceQuota](t)(s.CoreV1().ResourceQuotas("default").Get(t.Context(), "q", metav1.GetOptions{}))
	charge.Status.Used = resourceList("configmaps", 1)
	must[*corev1.ResourceQuota](t)(s.CoreV1().ResourceQuotas("default").UpdateStatus(t.Context(), charge, metav1.UpdateOptions{}))
	charge = must[*corev1.ResourceQuota](t)(s.CoreV1().ResourceQuotas("default").Get(t.Context(), "q", metav1.GetOptions{}))
	charge.Spec.Hard = resourceList("configmaps", 20)
	must[*corev1.ResourceQuota](t)(s.CoreV1().ResourceQuotas("default").Update(t.Context(), charge, metav1.UpdateOptions{}))
	await.Until(t, "the status has the new limit", func() bool {
		q := must[*corev1.ResourceQuota](t)(s.CoreV1().ResourceQuotas("default").Get(t.Context(), "q", metav1.GetOptions{}))
		hard := q.Status.Hard["configmaps"]
		return hard.Value() == 20
	})
	if got := s.usageOf("q", "configmaps"); got != 1 {
		t.Fatalf("usage is %d, want that of the write under way", got)
	}
	await.Until(t, "the charge is looked at again later", func() bool { now.Step(10 * time.Second); return s.usageOf("q", "configmaps") == 0 })
}

// A ledger never lets usage fall below the stored objects and the writes under way.
func TestQuotaLedger(t *testing.T) {
	t.Parallel()
	const name = "configmaps"
	now := time.Unix(1000, 0)
	state := func(used int64) *corev1.ResourceQuota {
		q := &corev1.ResourceQuota{Spec: corev1.ResourceQuotaSpec{Hard: resourceList(name, 100)}}
		if used >= 0 {
			q.Status.Used = resourceList(name, used)
		}
		return q
	}
	want := func(what string, l *quotaLedger, stored, want int64) {
		t.Helper()
		used, again := l.usage(resourceList(name, stored), now)
		if got := used[name]; got.Value() != want || want > stored && again == 0 {
			t.Errorf("%s: usage %d, again in %v, want %d", what, got.Value(), again, want)
		}
	}
	one := resourceList(name, 1)

	l := newQuotaLedger(state(-1), now)
	want("first usage", l, 3, 3)
	l.observe(state(3), now)
	want("nothing changed", l, 3, 3)
	l.observe(state(5), now) // two charges
	want("under way", l, 3, 5)
	want("one is stored", l, 4, 5)
	l.release(one, nil)
	want("an old object has gone", l, 3, 4)
	l.observe(state(4), now)
	want("and the usage is stored", l, 3, 4)
	now = now.Add(chargeWindow + time.Second)
	want("the other write has failed, or an object went that is still to be released", l, 3, 4)
	now = now.Add(settleTime)
	want("it has failed", l, 3, 3)
	l.observe(state(3), now)
	l.release(one, nil)
	want("follows at once again", l, 2, 2)
	want("made without a charge", l, 7, 7)

	l = newQuotaLedger(state(-1), now)
	l.observe(state(3), now)
	want("one has gone, and is not yet released", l, 2, 3)
	l.release(one, nil)
	want("released", l, 2, 2)
	now = now.Add(settleTime)
	l.observe(state(2), now)
	l.observe(state(3), now)
	want("it is not taken off twice", l, 2, 3)
	l.release(one, nil)
	l.release(one, nil)
	l.release(one, nil)
	l.release(one, nil)
	l.observe(state(4), now)
	want("released before its charge was seen", l, 0, 0)

	l = newQuotaLedger(state(-1), now)
	l.observe(state(0), now)
	l.release(one, nil)
	want("an object that was not charged has gone", l, 0, 0)
	l.observe(state(1), now)
	want("under way, not made up for", l, 0, 1)

	l = newQuotaLedger(state(-1), now)
	l.observe(state(0), now)
	want("an object that was not charged is stored", l, 1, 1)
	l.observe(state(1), now)
	l.release(one, nil)
	want("and has gone", l, 0, 0)

	l = newQuotaLedger(state(5), now)
	want("charges before the start are unknown", l, 3, 5)
	l.release(one, nil)
	want("what has gone since", l, 2, 4)
	now = now.Add(chargeWindow + time.Second)
	want("known", l, 2, 4)
	now = now.Add(settleTime)
	want("corrected", l, 2, 2)
}
