package logging

import (
	"io"
	"testing"
	"testing/synctest"
	"time"
)

// An Output whose Write blocks fails its check after two minutes, until the Write returns.
func TestOutput(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, w := io.Pipe()
		o := NewOutput(w)
		check := func(about string, blocked bool) {
			t.Helper()
			synctest.Wait()
			if err := o.Check(); (err != nil) != blocked {
				t.Errorf("%s: %v", about, err)
			}
		}
		check("before the first line", false)
		time.Sleep(2 * blockedLimit)
		check("without lines", false)
		go o.Write([]byte("line\n"))
		check("at once", false)
		time.Sleep(blockedLimit)
		check("after the limit", false)
		time.Sleep(time.Nanosecond)
		check("beyond the limit", true)
		if _, err := io.ReadFull(r, make([]byte, 5)); err != nil {
			t.Fatal(err)
		}
		check("after the line is taken", false)
	})
}
