package audit

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	auditapi "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"

	"portico/resource"
)

// Concurrent requests do not share events or annotations, also while upstream's packages add
// annotations.
func TestConcurrentEventsAreSeparate(t *testing.T) {
	var mu sync.Mutex
	sent := map[string]auditapi.Event{}
	a := auditor(t, "rules: [{level: Metadata}]\n", func(*Options) {})
	a.sink = sinkFunc(func(e *auditapi.Event) {
		mu.Lock()
		defer mu.Unlock()
		sent[fmt.Sprint(e.AuditID, e.Stage)] = *e.DeepCopy()
	})
	var all sync.WaitGroup
	const requests = 200
	for i := range requests {
		all.Go(func() { askAs(t, a, fmt.Sprint(i), i%2 == 0) })
	}
	all.Wait()
	for i := range requests {
		id := fmt.Sprint(i)
		arrived, e := sent[id+string(auditapi.StageRequestReceived)], sent[id+string(auditapi.StageResponseComplete)]
		if len(arrived.Annotations) != 0 || arrived.ResponseStatus != nil || arrived.User.Username != id || !arrived.StageTimestamp.Equal(&arrived.RequestReceivedTimestamp) {
			t.Errorf("%s: arrived as %+v", id, arrived)
		}
		if e.User.Username != id || len(e.User.Extra) != 1 || len(e.User.Extra[id]) != 1 || e.ObjectRef.Name != id || int(e.ResponseStatus.Code) != 200+i || e.AuditID != arrived.AuditID {
			t.Errorf("%s: got %+v, %+v", id, e, e.ObjectRef)
		}
		want := 2
		if i%2 == 0 {
			want = 3
			if e.Annotations["example.com/theirs"] != id {
				t.Errorf("%s: got %v", id, e.Annotations)
			}
		}
		if len(e.Annotations) != want || e.Annotations["example.com/ours"] != id || e.Annotations["example.com/more"] != "" {
			t.Errorf("%s: got %v", id, e.Annotations)
		}
	}
}

// askAs audits one request whose fields all have the id; with theirs, upstream's packages
// annotate it.
func askAs(t *testing.T, a *Auditor, id string, theirs bool) {
	r := httptest.NewRequest("GET", "/api/v1/namespaces/a/pods/"+id, nil)
	action := resource.ParseAction(r)
	action.User = &resource.User{Name: id, Extra: map[string][]string{id: {id}}}
	q, err := a.Begin(r, Arrival{Action: action, ID: id, Time: time.Now()})
	if err != nil {
		t.Error(err)
		return
	}
	q.Annotate("example.com/ours", id, "example.com/more", "")
	q.Annotate("example.com/ours", "again")
	var all sync.WaitGroup
	if theirs {
		for range 2 {
			all.Go(func() {
				ctx := resource.WithAction(requestContext{r.Context(), q}, action)
				audit.AddAuditAnnotation(ctx, "example.com/theirs", id)
			})
		}
	}
	all.Wait()
	var code int
	_, _ = fmt.Sscan(id, &code)
	q.OnHeader(http.Header{}, 200+code)
	q.End(200+code, nil)
}

// requestContext is the context of a request that is audited.
type requestContext struct {
	context.Context
	q *Request
}

func (c requestContext) Value(key any) any {
	if v := c.q.Value(key); v != nil {
		return v
	}
	return c.Context.Value(key)
}
