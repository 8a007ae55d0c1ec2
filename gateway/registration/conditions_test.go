package registration

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"portico/apiservice"
)

// A message that differs each time is written at once and then every thirty seconds,
// and the last one in the end; whether the server is there, at once.
func TestMessagesArePaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const name = "v1.widgets.example.com"
		g := newRegistry(t, widgets())
		verdict := func(c apiservice.Condition) (written bool) {
			before := g.storage.Revision()
			g.turn(t, map[string]apiservice.Condition{name: c})
			return g.storage.Revision() != before
		}
		failed := func(i int) apiservice.Condition {
			return apiservice.FailedDiscoveryCheck("u", fmt.Errorf("error %d", i))
		}
		g.turn(t, nil)
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
		if writes != 10 {
			t.Errorf("%d writes in five minutes", writes)
		}
		verdict(failed(1000))
		if !verdict(apiservice.Passed()) || !verdict(failed(1001)) {
			t.Error("a change of the status is held back")
		}
		if verdict(failed(1002)) {
			t.Error("a message is not held back")
		}
		select {
		case <-g.paced.next(time.Now()):
		case <-time.After(messagePause + time.Second):
			t.Fatal("nothing says when the last message may be written")
		}
		if !verdict(failed(1002)) || g.paced.next(time.Now()) != nil {
			t.Error("the last message is not written, or held back still")
		}
	})
}
