package upstream

import (
	"context"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// forgetful is a way to a server that can forget its flows: what comes on
// connections made before goes nowhere, and new ones work.
type forgetful struct{ flows, now atomic.Int32 }

func (f *forgetful) dial(context.Context) (net.Conn, net.Conn, error) {
	here, there := net.Pipe()
	flow := f.now.Load()
	f.flows.Add(1)
	go behaves(func(path string) time.Duration {
		if f.now.Load() != flow || path == "/hung" {
			return -1
		}
		return time.Millisecond
	}).serve(there)
	return here, here, nil
}

// A client that gives up on a connection that was used before takes with it those
// that were idle for as long: the next requests find none of them, whatever their
// verb. Impatient clients close nothing, nor do those of requests that are slow
// while the connection works.
func TestSilentConnectionsTakeOthersAlong(t *testing.T) {
	for name, c := range map[string]struct {
		forgets     bool
		path        string
		waits       time.Duration
		dials, left int // by all; idle, of eight and one
	}{
		"flows are forgotten":        {true, "/", 6 * time.Second, 10, 2},
		"the client has no patience": {true, "/", time.Second, 8, 7},
		"the request is slow":        {false, "/hung", time.Second, 8, 7},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, told := new(forgetful), 0
				d := &direct{
					dial: f.dial, limit: func() time.Duration { return time.Second }, maxDials: 16, broken: func() { told++ },
					idleTimeout: time.Hour, maxBody: directBody,
				}
				defer d.retire()
				var bodies []io.Closer
				for range 8 {
					res, err := sendIn(t, d, "GET", "/", time.Minute)
					if err != nil {
						t.Fatal(err)
					}
					bodies = append(bodies, res.Body)
				}
				for _, body := range bodies {
					_, _ = io.Copy(io.Discard, body.(io.Reader))
				}
				time.Sleep(time.Minute)
				if c.forgets {
					f.now.Add(1)
				}
				if _, err := sendIn(t, d, "GET", c.path, c.waits); err == nil {
					t.Fatal("it was answered")
				}
				if !c.forgets || c.waits < pingAfter {
					if n := len(d.idle); n != c.left || told != 0 {
						t.Errorf("%d are idle, a check was asked for %d times", n, told)
					}
					return
				}
				for _, method := range []string{"POST", "GET"} {
					res, err := sendIn(t, d, method, "/", time.Minute)
					if err != nil {
						t.Fatalf("%s: %v", method, err)
					}
					defer res.Body.Close()
				}
				if n := int(f.flows.Load()); n != c.dials || told != 1 {
					t.Errorf("%d connections were made, a check was asked for %d times", n, told)
				}
			})
		})
	}
}

func sendIn(t *testing.T, d *direct, method, path string, waits time.Duration) (*http.Response, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), waits)
	t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, method, "http://server"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	res, _, err := d.send(req, nil)
	return res, err
}

// What was idle for a shorter time than the silence lasted is not touched.
func TestSilenceSparesTheYoung(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &direct{broken: func() {}, idleTimeout: time.Hour}
		old, young := newDirectConn(d, &net.TCPConn{}, nil), newDirectConn(d, &net.TCPConn{}, nil)
		d.put(old)
		time.Sleep(time.Second)
		sent := time.Now()
		time.Sleep(pingAfter)
		d.put(young)
		d.silent(sent, context.DeadlineExceeded)
		if len(d.idle) != 1 || d.idle[0] != young {
			t.Errorf("%d are left", len(d.idle))
		}
		d.reap.Stop()
	})
}
