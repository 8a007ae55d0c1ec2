package flow

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	flowv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico/internal/testing/await"
	"portico/resource"
	"portico/resource/rest"
	"portico/resource/serve/filter"
)

// running is a Flow of 100 seats whose engine runs until the test ends, with its stored objects.
type running struct {
	*Flow
	levels, schemas *rest.Resource
}

func run(t testing.TB) *running {
	t.Helper()
	f, levels, schemas := bench(t)
	find := func(gr schema.GroupResource) *rest.Resource {
		if gr == schemaResource {
			return schemas
		}
		return levels
	}
	if _, err := f.Open(find); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- f.Run(ctx, find) }()
	t.Cleanup(func() { cancel(); <-done })
	return &running{f, levels, schemas}
}

// level creates a level of a single queue, or without one, and a schema that sends all requests
// of a user to it. It returns when these count.
func (f *running) level(t *testing.T, name string, queue int32) {
	t.Helper()
	l := systemLevel()
	shares, none := int32(200), int32(0)
	l.Name, l.Spec.Limited.NominalConcurrencyShares = name, &shares
	l.Spec.Limited.LendablePercent, l.Spec.Limited.BorrowingLimitPercent = &none, &none
	l.Spec.Limited.LimitResponse = flowv1.LimitResponse{Type: flowv1.LimitResponseTypeQueue, Queuing: &flowv1.QueuingConfiguration{Queues: 1, HandSize: 1, QueueLengthLimit: queue}}
	if queue == 0 {
		l.Spec.Limited.LimitResponse = flowv1.LimitResponse{Type: flowv1.LimitResponseTypeReject}
	}
	if _, err := rest.CreateObject(t.Context(), f.levels, l); err != nil {
		t.Fatal(err)
	}
	s := &flowv1.FlowSchema{}
	s.Name, s.Spec.PriorityLevelConfiguration.Name, s.Spec.MatchingPrecedence = name, name, 10
	s.Spec.Rules = []flowv1.PolicyRulesWithSubjects{{
		Subjects:      []flowv1.Subject{{Kind: flowv1.SubjectKindUser, User: &flowv1.UserSubject{Name: name}}},
		ResourceRules: []flowv1.ResourcePolicyRule{{Verbs: []string{"*"}, APIGroups: []string{"*"}, Resources: []string{"*"}, Namespaces: []string{"*"}, ClusterScope: true}},
	}}
	if _, err := rest.CreateObject(t.Context(), f.schemas, s); err != nil {
		t.Fatal(err)
	}
	await.Until(t, "the schema "+name+" counts", func() bool {
		a := f.ask(t.Context(), name)
		if a.Seats != nil {
			a.Seats.End()
		}
		return a.Schema == string(s.UID) && a.Level == string(l.UID)
	})
}

// ask has a GET of the user admitted.
func (f *running) ask(ctx context.Context, user string, groups ...string) filter.Admission {
	r := httptest.NewRequestWithContext(ctx, "GET", "/api/v1/namespaces/default/configmaps/a", http.NoBody)
	a := resource.ParseAction(r)
	a.User = &resource.User{Name: user, Groups: append(groups, resource.GroupAuthenticated)}
	return f.engine.Admit(r, a)
}

// fill has requests of the user admitted until the next one would wait or be refused, by the
// level of its name.
func (f *running) fill(t *testing.T, user string) (held []filter.Seats) {
	t.Helper()
	for {
		ctx, cancel := context.WithCancel(t.Context())
		decided := make(chan filter.Admission, 1)
		go func() { decided <- f.ask(ctx, user) }()
		await.Until(t, "a request runs, waits or is refused", func() bool { return len(decided) > 0 || f.waiting(t, user) > 0 })
		if len(decided) == 0 {
			cancel()
		}
		a := <-decided
		cancel()
		if a.Seats == nil {
			await.Until(t, "the request has gone", func() bool { return f.waiting(t, user) == 0 })
			break
		}
		held = append(held, a.Seats)
	}
	if len(held) == 0 {
		t.Fatal("no request runs")
	}
	t.Cleanup(func() {
		for _, s := range held {
			s.End()
		}
	})
	return held
}

// row returns the row of a level in the debug page.
func (f *running) row(t *testing.T, level string) []string {
	t.Helper()
	const path = "/debug/api_priority_and_fairness/dump_priority_levels"
	w := httptest.NewRecorder()
	f.Pages()[path].ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", path, http.NoBody))
	for line := range strings.SplitSeq(w.Body.String(), "\n") {
		if cells := strings.Split(strings.ReplaceAll(line, " ", ""), ","); cells[0] == level {
			return cells
		}
	}
	return nil
}

// waiting returns how many requests wait in a level.
func (f *running) waiting(t *testing.T, level string) (n int) {
	t.Helper()
	if row := f.row(t, level); len(row) > 4 {
		_, _ = fmt.Sscan(row[4], &n)
	}
	return n
}

// A request waits while its level has no free seat, runs when one is released, and is refused
// with a time to retry after when the queue is full. Requests of administrators and of Portico's
// own processes run.
func TestQueue(t *testing.T) {
	t.Parallel()
	f := run(t)
	f.level(t, "eve", 2)
	held := f.fill(t, "eve")
	results := make(chan filter.Admission, 2)
	for range cap(results) {
		go func() { results <- f.ask(t.Context(), "eve") }()
	}
	await.Until(t, "two requests wait", func() bool { return f.waiting(t, "eve") == 2 })
	if a := f.ask(t.Context(), "eve"); a.Seats != nil || a.RetryAfter < 1 || a.Level == "" {
		t.Errorf("with a full queue: %+v", a)
	}
	for user, groups := range map[string][]string{"eve": {resource.GroupMasters}, "system:portico:core": nil} {
		a := f.ask(t.Context(), user, groups...)
		if a.Seats == nil {
			t.Errorf("%s %v is refused: %+v", user, groups, a)
			continue
		}
		a.Seats.End()
	}
	held[0].Release()
	held[0].Release()
	first := <-results
	if first.Seats == nil {
		t.Fatalf("refused: %+v", first)
	}
	if n := f.waiting(t, "eve"); n != 1 {
		t.Errorf("%d requests wait, and one seat was released", n)
	}
	first.Seats.End()
	second := <-results
	if second.Seats == nil {
		t.Fatalf("refused: %+v", second)
	}
	second.Seats.End()
}

// The seat of a request that has ended is free for the next one.
func TestSeatIsFreeAfterTheEnd(t *testing.T) {
	t.Parallel()
	f := run(t)
	f.level(t, "eve", 0)
	held := f.fill(t, "eve")
	for i := range 500 {
		held[0].End()
		a := f.ask(t.Context(), "eve")
		if a.Seats == nil {
			t.Fatalf("request %d is refused: %+v", i, a)
		}
		held[0] = a.Seats
	}
}

// A request of a client that has gone leaves the queue.
func TestCancelled(t *testing.T) {
	t.Parallel()
	f := run(t)
	f.level(t, "eve", 1)
	f.fill(t, "eve")
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan filter.Admission, 1)
	go func() { result <- f.ask(ctx, "eve") }()
	await.Until(t, "it waits", func() bool { return f.waiting(t, "eve") == 1 })
	cancel()
	if a := <-result; a.Seats != nil {
		t.Error("it runs")
	}
	await.Until(t, "none waits", func() bool { return f.waiting(t, "eve") == 0 })
}

// A request waits no longer than a quarter of the time until its deadline, and one without a
// deadline no longer than a quarter of the longest time of a request.
func TestWait(t *testing.T) {
	t.Parallel()
	f := run(t)
	f.level(t, "eve", 1)
	f.fill(t, "eve")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for name, ctx := range map[string]context.Context{"with a deadline": ctx, "without one": t.Context()} {
		wait, stop := f.engine.waitContext(ctx)
		defer stop()
		if at, ok := wait.Deadline(); !ok || time.Until(at) > 15*time.Second || time.Until(at) < 5*time.Second {
			t.Errorf("%s it waits until %v", name, at)
		}
	}
	short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if a := f.ask(short, "eve"); a.Seats != nil || short.Err() != nil {
		t.Errorf("got %+v after %v", a, short.Err())
	}
}

// Requests that wait in a level that is deleted run, and later ones are those of another level.
func TestDeletedLevel(t *testing.T) {
	t.Parallel()
	f := run(t)
	f.level(t, "eve", 2)
	held := f.fill(t, "eve")
	result := make(chan filter.Admission, 1)
	go func() { result <- f.ask(t.Context(), "eve") }()
	await.Until(t, "it waits", func() bool { return f.waiting(t, "eve") == 1 })
	if _, err := f.levels.Store.Delete(t.Context(), resource.Key{Name: "eve"}, nil); err != nil {
		t.Fatal(err)
	}
	await.Until(t, "later requests have another level", func() bool {
		// One that is of the level still must not wait long.
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		a := f.ask(ctx, "eve")
		if a.Seats != nil {
			a.Seats.End()
		}
		o, ok := load[*flowv1.PriorityLevelConfiguration](t, f.levels, "global-default")
		return ok && a.Level == string(o.UID)
	})
	for _, s := range held {
		s.End()
	}
	a := <-result
	if a.Seats == nil {
		t.Fatalf("the waiting request is refused: %+v", a)
	}
	a.Seats.End()
	await.Until(t, "the level is gone", func() bool { return f.row(t, "eve") == nil })
}

// A list takes seats by the size of what it reads, a watch until it is released, and a write no
// more than one while few watch.
func TestWork(t *testing.T) {
	t.Parallel()
	f := run(t)
	f.engine.estimate = estimator(f.engine, func(gr string) (Stats, bool) { return Stats{1000, 450_000}, gr == "things.example.com" })
	for _, tc := range []struct {
		method, target string
		want           int
	}{
		{"GET", "/apis/example.com/v1/things/a", 1}, {"GET", "/apis/example.com/v1/things", 5}, {"GET", "/apis/example.com/v1/things?limit=100", 1},
		{"GET", "/apis/example.com/v1/others", 1}, {"GET", "/apis/example.com/v1/things?watch=1", 5},
		{"GET", "/apis/example.com/v1/things?watch=1&resourceVersion=7", 1}, {"POST", "/apis/example.com/v1/things", 1},
	} {
		r := httptest.NewRequestWithContext(t.Context(), tc.method, tc.target, http.NoBody)
		q := &admission{engine: f.engine, request: r, info: requestInfo(resource.ParseAction(r)), schema: &flowv1.FlowSchema{}, level: &flowv1.PriorityLevelConfiguration{}}
		if work := q.work(); work.MaxSeats() != tc.want {
			t.Errorf("%s %s: %d seats, want %d", tc.method, tc.target, work.MaxSeats(), tc.want)
		}
	}
}

// Before anything is read the engine works by the objects that every cluster has, or by those of
// an earlier process.
func TestRestore(t *testing.T) {
	t.Parallel()
	f, levels, schemas := bench(t)
	find := func(gr schema.GroupResource) *rest.Resource {
		if gr == schemaResource {
			return schemas
		}
		return levels
	}
	f.Restore(func(schema.GroupResource) []*resource.Object { return nil }) // without an engine
	if _, err := f.Open(find); err != nil {
		t.Fatal(err)
	}
	if n := len(f.engine.schemas.GetIndexer().List()); n != len(bootstrapSchemas()) {
		t.Errorf("%d schemas", n)
	}
	own := bootstrapSchemas()[0]
	own.Name = "own"
	o, err := schemas.Codec.EncodeStored(own)
	if err != nil {
		t.Fatal(err)
	}
	level, err := levels.Codec.EncodeStored(systemLevel())
	if err != nil {
		t.Fatal(err)
	}
	f.Restore(func(gr schema.GroupResource) []*resource.Object {
		if gr == schemaResource {
			return []*resource.Object{o}
		}
		return []*resource.Object{level}
	})
	if names := f.engine.schemas.GetIndexer().ListKeys(); len(names) != 1 || names[0] != "own" {
		t.Errorf("schemas %v", names)
	}
	f.Restore(func(schema.GroupResource) []*resource.Object { return nil })
	if names := f.engine.schemas.GetIndexer().ListKeys(); len(names) != 1 {
		t.Errorf("an empty copy is used: %v", names)
	}
}

// A request is classified without seats, by the same objects as when it is admitted; one of an exempt
// level has no name. Objects that change meanwhile count afterwards.
func TestClassify(t *testing.T) {
	t.Parallel()
	f := run(t)
	action := func(user string, groups ...string) *resource.Action {
		a := resource.ParseAction(httptest.NewRequestWithContext(t.Context(), "POST", "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases", http.NoBody))
		a.User = &resource.User{Name: user, Groups: append(groups, resource.GroupAuthenticated)}
		return a
	}
	await.Until(t, "the engine works by the objects", func() bool { return f.engine.Classify(action("jane")) == "global-default" })
	for range 3 { // the engine is usable afterwards
		for _, tc := range []struct {
			user   string
			groups []string
			want   string
		}{
			{"jane", nil, "global-default"},
			{"jane", []string{resource.GroupMasters}, ""},
			{"system:portico:core", nil, ""},
			{"system:node:n1", []string{"system:nodes"}, "node-high"},
			{"system:kube-controller-manager", nil, "leader-election"},
			{"system:serviceaccount:a:b", []string{"system:serviceaccounts"}, "workload-low"},
		} {
			if got := f.engine.Classify(action(tc.user, tc.groups...)); got != tc.want {
				t.Errorf("%s of %q: level %q, want %q", tc.user, tc.groups, got, tc.want)
			}
		}
	}
	f.level(t, "eve", 2)
	if got := f.engine.Classify(action("eve")); got != "eve" {
		t.Errorf("with a level of her own, eve is in %q", got)
	}
	for range 10_000 { // more than all levels have seats
		f.engine.Classify(action("eve"))
	}
	if a := f.ask(t.Context(), "eve"); a.Seats == nil {
		t.Error("classified requests hold seats")
	} else {
		a.Seats.End()
	}
}

func BenchmarkClassify(b *testing.B) {
	f := run(b)
	a := resource.ParseAction(httptest.NewRequestWithContext(b.Context(), "POST", "/api/v1/namespaces/default/configmaps", http.NoBody))
	a.User = &resource.User{Name: "jane", Groups: []string{resource.GroupAuthenticated}}
	await.Until(b, "the engine works by the objects", func() bool { return f.engine.Classify(a) == "global-default" })
	b.ReportAllocs()
	for b.Loop() {
		f.engine.Classify(a)
	}
}
