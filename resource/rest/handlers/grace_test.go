package handlers

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico/resource/rest"
	"portico/resource/rest/resttest"
)

// graceful returns a bench with config maps that have a grace period of 30 seconds, or
// that of the request, and a generation.
func graceful(t *testing.T) *bench {
	b := newBench(t)
	b.configMaps.ReturnDeleted = true
	b.configMaps.Strategy.TrackGeneration = true
	b.configMaps.Strategy.Grace = func(_ rest.Object, asked *int64) int64 {
		if asked == nil {
			return 30
		}
		return *asked
	}
	return b
}

// A grace period can be shortened, never extended (docs/wire.md 4.5).
func TestGrace(t *testing.T) {
	const gone = -1
	for name, test := range map[string]struct {
		finalizer string
		asked     []string // one deletion after the other; "" is no period
		want      int64    // period left, or gone
	}{
		"the kind's":             {"", []string{""}, 30},
		"asked for":              {"", []string{"100"}, 100},
		"none":                   {"", []string{"0"}, gone},
		"none, but held":         {"a/b", []string{"0"}, 0},
		"negative":               {"", []string{"-5"}, 1},
		"again":                  {"", []string{"100", ""}, 100},
		"longer":                 {"", []string{"100", "101"}, 100},
		"shorter":                {"", []string{"100", "50"}, 50},
		"at once after all":      {"", []string{"100", "0"}, gone},
		"at once, but held":      {"a/b", []string{"100", "0"}, 0},
		"held, then at leisure":  {"a/b", []string{"0", "100"}, 0},
		"once more, then nobody": {"", []string{"100", "50", "0"}, gone},
	} {
		t.Run(name, func(t *testing.T) {
			b := graceful(t)
			cm := bare("a")
			if test.finalizer != "" {
				cm.Finalizers = []string{test.finalizer}
			}
			b.create(cm)
			begun := time.Now().Truncate(time.Second)
			for _, asked := range test.asked {
				query := ""
				if asked != "" {
					query = "?gracePeriodSeconds=" + asked
				}
				b.send("DELETE", configMapA+"?dryRun=All&"+strings.TrimPrefix(query, "?"), nil).want(200, "")
				if got := b.send("DELETE", configMapA+query, nil).want(200, "").configMap(); got.Name != "a" {
					t.Fatalf("%+v", got)
				}
			}
			if test.want == gone {
				b.send("GET", configMapA, nil).want(404, "")
				return
			}
			got := b.send("GET", configMapA, nil).want(200, "").configMap()
			if got.DeletionGracePeriodSeconds == nil || *got.DeletionGracePeriodSeconds != test.want || got.Generation != 2 {
				t.Fatalf("%+v", got.ObjectMeta)
			}
			if ends := got.DeletionTimestamp.Sub(begun); ends < time.Duration(test.want)*time.Second || ends > time.Duration(test.want+20)*time.Second {
				t.Errorf("ends %v after it began", ends)
			}
		})
	}
}

// A second deletion in the grace period writes nothing, and a write does not complete the
// deletion.
func TestGraceIsKept(t *testing.T) {
	b := graceful(t)
	b.create(bare("a"))
	first := b.send("DELETE", configMapA, nil).want(200, "").configMap()
	again := b.send("DELETE", configMapA+"?propagationPolicy=Orphan", nil).want(200, "").configMap()
	if again.ResourceVersion != first.ResourceVersion || len(again.Finalizers) != 0 {
		t.Errorf("%+v, then %+v", first.ObjectMeta, again.ObjectMeta)
	}
	b.send("PATCH", configMapA, `{"data":{"x":"y"}}`, "Content-Type", mergePatch).want(200, "")
	b.send("GET", configMapA, nil).want(200, "")
	b.send("DELETE", configMapA+"?gracePeriodSeconds=0", nil).want(200, "")
	b.send("GET", configMapA, nil).want(404, "")
}

// A grace period that has passed is shortened to one second.
func TestGracePeriodThatHasPassed(t *testing.T) {
	b := graceful(t)
	past := metav1.NewTime(time.Now().Add(-time.Hour).Truncate(time.Second))
	cm := bare("a")
	cm.Namespace, cm.DeletionTimestamp, cm.DeletionGracePeriodSeconds = "default", &past, new(int64(100))
	o := resttest.Stored(t, b.configMaps.Kind, cm, 0)
	if _, err := b.configMaps.Store.Create(t.Context(), o.Key(), o, 0); err != nil {
		t.Fatal(err)
	}
	got := b.send("DELETE", configMapA+"?gracePeriodSeconds=50", nil).want(200, "").configMap()
	if *got.DeletionGracePeriodSeconds != 1 || !got.DeletionTimestamp.Equal(&past) {
		t.Errorf("%d until %v", *got.DeletionGracePeriodSeconds, got.DeletionTimestamp)
	}
}
