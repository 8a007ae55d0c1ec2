package controllers

import (
	"slices"
	"strings"
	"testing"
	"time"

	"portico/internal/testing/await"

	corev1 "k8s.io/api/core/v1"
	storagemigrationv1 "k8s.io/api/storagemigration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
)

// A migration writes each object of its resource once, and the objects of no other. One of a
// resource that does not exist fails after a minute.
func TestStorageVersionMigrator(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	for _, name := range []string{"a", "b"} {
		must[*corev1.Secret](t)(s.CoreV1().Secrets("default").Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}))
		must[*corev1.ConfigMap](t)(s.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}))
	}
	migrations := s.StoragemigrationV1().StorageVersionMigrations()
	for name, resource := range map[string]string{"secrets": "secrets", "later": "secrets", "none": "nothings"} {
		must[*storagemigrationv1.StorageVersionMigration](t)(migrations.Create(t.Context(), &storagemigrationv1.StorageVersionMigration{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: storagemigrationv1.StorageVersionMigrationSpec{Resource: metav1.GroupResource{Resource: resource}},
		}, metav1.CreateOptions{}))
	}
	now := clocktesting.NewFakeClock(time.Now())
	s.run(migratorName, Options{}, now)
	state := func(name string, state storagemigrationv1.MigrationConditionType) metav1.Condition {
		m := must[*storagemigrationv1.StorageVersionMigration](t)(migrations.Get(t.Context(), name, metav1.GetOptions{}))
		if c := meta.FindStatusCondition(m.Status.Conditions, string(state)); c != nil {
			return *c
		}
		return metav1.Condition{}
	}
	for _, name := range []string{"secrets", "later"} {
		await.Until(t, name+" has succeeded and does not run", func() bool {
			return state(name, storagemigrationv1.MigrationSucceeded).Status == metav1.ConditionTrue &&
				state(name, storagemigrationv1.MigrationRunning).Reason == "MigrationCompleted"
		})
	}
	requests := slices.DeleteFunc(s.requests(), func(r string) bool { return !strings.HasPrefix(r, "PATCH ") })
	slices.Sort(requests)
	want := []string{"PATCH /api/v1/namespaces/default/secrets/a", "PATCH /api/v1/namespaces/default/secrets/b"}
	if want = slices.Sorted(slices.Values(slices.Concat(want, want))); !slices.Equal(requests, want) {
		t.Errorf("patched are %q, want each secret by each migration", requests)
	}
	if c := state("none", storagemigrationv1.MigrationFailed); c.Status != "" {
		t.Errorf("failed within the first minute: %+v", c)
	}
	now.Step(2 * migrationPatience)
	await.Until(t, "the migration of nothing fails", func() bool {
		c := state("none", storagemigrationv1.MigrationFailed)
		return c.Reason == "StorageVersionMigrationFailed" && c.Message == "resource does not exist in discovery"
	})
}
