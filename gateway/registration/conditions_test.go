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
		if !verdict(failed(0)) {
			t.Fatal("that it failed is not written")
		}
		writes := 0
		for i := range 300 { // five minutes
			if verdict(failed(i + 1)) {
				writes++
			}
			time.Sleep(time.Second)
		}
		if writes != 30 {
			t.Errorf("%d writes in five minutes", writes)
		}
		verdict(failed(1000))
		if !verdict(apiservice.Passed()) || !verdict(failed(1001)) {
			t.Error("a change of the status is held back")
		}
		if verdict(failed(1002)) {
			t.Error("a message is not held back")
		}
		again, err := g.write(t.Context())
		if err != nil || again <= 0 || again > messagePause {
			t.Fatalf("the last message may be written after %v (%v)", again, err)
		}
		time.Sleep(again)
		if !verdict(failed(1002)) {
			t.Error("the last message is not written")
		}
	})
}
