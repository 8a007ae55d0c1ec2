package registration

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"portico/apiservice"
)

// A message that always differs is written at once, then every messagePause, and the last one
// in the end; a change of the status is written at once.
func TestMessagesAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const name = "v1.widgets.example.com"
		g := newRegistry(t, widgets())
		verdict := func(c apiservice.Condition) (written bool) {
			before := g.storage.Revision()
			g.sync(t, map[string]apiservice.Condition{name: c})
			return g.storage.Revision() != before
		}
		failed := func(i int) apiservice.Condition {
			return apiservice.FailedDiscoveryCheck("u", fmt.Errorf("error %d", i))
		}
		g.sync(t, nil)
		if !verdict(failed(0)) || !verdict(failed(1)) || verdict(failed(2)) {
			t.Fatal("the first message is not written, or a later one at once")
		}
		if !verdict(apiservice.Passed()) || !verdict(failed(3)) || verdict(failed(4)) {
			t.Error("a change of the status is delayed, or a message is not")
		}
		again, err := g.write(t.Context())
		if err != nil || again <= 0 || again > messagePause {
			t.Fatalf("the last message may be written after %v (%v)", again, err)
		}
		time.Sleep(again)
		if !verdict(failed(4)) {
			t.Error("the last message is not written")
		}
	})
}
