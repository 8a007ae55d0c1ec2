package core

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
	apireg "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico/apiservice"
	"portico/resource/client"
)

const (
	// warningTime bounds how long the DELETE of a namespace waits for APIServices.
	warningTime = time.Second
	// warningAge is how long the APIServices that were read are used, and warningPause how long none are read
	// after a failure.
	warningAge   = time.Second
	warningPause = 10 * time.Second
)

// deletionWarnings caches the unavailable APIServices for the Warnings of namespace deletions. Concurrent requests share one
// read. The zero value is ready for use. Safe for concurrent use.
type deletionWarnings struct {
	reads singleflight.Group

	mu    sync.Mutex
	until time.Time // when the APIServices are read again
	away  []awayService
}

// awayService is an unavailable APIService with the value of its AbandonAnnotation.
type awayService struct{ name, abandons string }

// namespaceWarnings implements kinds.Config.NamespaceWarnings. It returns nil if the gateway does not return the APIServices
// in time.
func (c *Core) namespaceWarnings(ctx context.Context, namespace string) []string {
	d := c.drain
	if d.gateway == nil {
		return nil
	}
	var names []string
	for _, a := range d.warned.list(ctx, d.log, d.gateway) {
		if !apiservice.Abandons(a.abandons, namespace) {
			names = append(names, a.name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	if more := len(names) - maxAdvised; more > 0 {
		names = append(names[:maxAdvised], fmt.Sprintf("and %d more", more))
	}
	return []string{fmt.Sprintf("namespace %s may stay Terminating until the servers of these APIServices respond: %s (see its status.conditions)",
		namespace, strings.Join(names, ", "))}
}

// list returns the unavailable APIServices.
func (w *deletionWarnings) list(ctx context.Context, log *slog.Logger, gateway *client.Client) []awayService {
	if away, fresh := w.cached(); fresh {
		return away
	}
	read := w.reads.DoChan("", func() (any, error) {
		if away, fresh := w.cached(); fresh { // the read of another request has ended in the meantime
			return away, nil
		}
		away, err := readAway(gateway)
		age := warningAge
		if err != nil {
			age = warningPause
			log.Debug("cannot read APIServices; the DELETE of a namespace has no Warning", "err", err, "pause", age)
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		w.away, w.until = away, time.Now().Add(age)
		return away, nil
	})
	select {
	case <-ctx.Done():
		return nil
	case result := <-read:
		away, _ := result.Val.([]awayService)
		return away
	}
}

// cached returns the APIServices of the last read, and whether they are fresh.
func (w *deletionWarnings) cached() (away []awayService, fresh bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.away, time.Now().Before(w.until)
}

// readAway reads the unavailable APIServices. It leaves out an APIService without a Service or Backend: nothing stores
// objects for it.
func readAway(gateway *client.Client) (away []awayService, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), warningTime)
	defer cancel()
	document, err := readDocument(ctx, gateway, "/apis/apiregistration.k8s.io/v1/apiservices")
	if err != nil {
		return nil, err
	}
	var services apireg.APIServiceList
	if err := json.Unmarshal(document, &services); err != nil {
		return nil, err
	}
	for i := range services.Items {
		a := &services.Items[i]
		for _, c := range a.Status.Conditions {
			if c.Type == apireg.Available && c.Status == apireg.ConditionFalse && c.Reason != "ServiceNotFound" {
				away = append(away, awayService{a.Name, a.Annotations[apiservice.AbandonAnnotation]})
			}
		}
	}
	return away, nil
}
