package attack

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"maps"
	"net"
	nethttp "net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	xhttp2 "golang.org/x/net/http2"

	"portico/cmd/internal/testtools"
	"portico/internal/testing/await"
)

// hostileClients is the number of clients.
const hostileClients = 16

// hostileFor returns how long they attack, and whether medians are checked: with
// PORTICO_TEST_HOSTILE_CLIENTS=1m, when no other tests run.
func hostileFor(t *testing.T) (lasts time.Duration, alone bool) {
	text := os.Getenv("PORTICO_TEST_HOSTILE_CLIENTS")
	if text == "" {
		return 4 * time.Second, false
	}
	lasts, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	return lasts, true
}

// hostileClient is a user without roles.
type hostileClient struct {
	i           *installation
	certificate *tls.Certificate
	ctx         context.Context // ends with the attack
	client      *nethttp.Client
	open        []net.Conn // the oldest first
}

// hostileConnections is the maximum number of open connections of a client: all of them
// together must not use up its own descriptors.
const hostileConnections = 500

// keep keeps a connection open, and closes the oldest one if there are too many.
func (c *hostileClient) keep(conn net.Conn) {
	if c.open = append(c.open, conn); len(c.open) > hostileConnections {
		c.open[0].Close()
		c.open = c.open[1:]
	}
}

// dial opens a connection that ends with the attack; nil if that fails.
func (c *hostileClient) dial(protocol string) net.Conn {
	config := c.i.tls(c.certificate)
	config.NextProtos = []string{protocol}
	conn, err := (&tls.Dialer{Config: config}).DialContext(c.ctx, "tcp", c.i.host)
	if err != nil {
		return nil
	}
	c.keep(conn)
	return conn
}

// review is a path to which every authenticated user may send a body.
const review = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"

const reviewHead = "apiVersion: authorization.k8s.io/v1\nkind: SelfSubjectAccessReview\nspec: {resourceAttributes: {verb: get, resource: x}}\n"

// post sends a body to review and ignores the response.
func (c *hostileClient) post(contentType string, body []byte) {
	r, err := nethttp.NewRequestWithContext(c.ctx, "POST", c.i.Endpoint+review, bytes.NewReader(body))
	if err != nil {
		return
	}
	r.Header.Set("Content-Type", contentType)
	if res, err := c.client.Do(r); err == nil {
		_, _ = io.Copy(io.Discard, res.Body)
		res.Body.Close()
	}
}

// attacks are run one after the other by each client.
var attacks = map[string]func(c *hostileClient){
	"YAML of a million values": func(c *hostileClient) {
		c.post("application/yaml", []byte(reviewHead+"x: ["+strings.Repeat("a,", 1_400_000)+"a]\n"))
	},
	"JSON of many values": func(c *hostileClient) {
		c.post("application/json", []byte(`{"apiVersion":"authorization.k8s.io/v1","kind":"SelfSubjectAccessReview","spec":{"resourceAttributes":`+
			`{"verb":"get","resource":"x","labelSelector":{"requirements":[`+strings.Repeat("{},", 200_000)+`{}]}}}}`))
	},
	"bodies that never come": func(c *hostileClient) {
		c.streams(100, false, append(pseudo("POST", review), field{"content-type", "application/json"}, field{"content-length", "2000000"}))
	},
	"streams of discovery": func(c *hostileClient) {
		accept := "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
		c.streams(100, true, append(pseudo("GET", "/apis?watch=true"), field{"accept", accept}))
	},
	"reads of which nothing is taken": func(c *hostileClient) {
		c.streams(100, true, pseudo("GET", "/openapi/v2"))
	},
	"large headers that do not end": func(c *hostileClient) {
		for range 20 {
			if conn := c.dial(http1); conn != nil {
				_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\nX-A: "+strings.Repeat("a", 60<<10))
			}
		}
	},
	"idle connections": func(c *hostileClient) {
		for range 50 {
			if conn, err := net.DialTimeout("tcp", c.i.host, time.Second); err == nil {
				c.keep(conn)
			}
			c.dial(http2)
		}
	},
	"rapid resets": func(c *hostileClient) {
		conn := c.dial(http2)
		if conn == nil {
			return
		}
		defer conn.Close()
		go io.Copy(io.Discard, conn)
		block := literals(pseudo("GET", "/version"))
		out := append([]byte(xhttp2.ClientPreface), frame(xhttp2.FrameSettings, 0, 0, nil)...)
		for id := uint32(1); id < 20_000; id += 2 {
			out = append(out, frame(xhttp2.FrameHeaders, xhttp2.FlagHeadersEndHeaders|xhttp2.FlagHeadersEndStream, id, block)...)
			out = append(out, frame(xhttp2.FrameRSTStream, 0, id, []byte{0, 0, 0, 8})...)
		}
		_, _ = conn.Write(out)
	},
}

// streams opens streams on one connection without sending their bodies, or without reading
// the responses beyond the first window.
func (c *hostileClient) streams(n int, whole bool, header []field) {
	conn := c.dial(http2)
	if conn == nil {
		return
	}
	go io.Copy(io.Discard, conn)
	flags := xhttp2.FlagHeadersEndHeaders
	if whole {
		flags |= xhttp2.FlagHeadersEndStream
	}
	out := append([]byte(xhttp2.ClientPreface), frame(xhttp2.FrameSettings, 0, 0, nil)...)
	for s := range n {
		out = append(out, frame(xhttp2.FrameHeaders, flags, uint32(2*s+1), literals(header))...)
	}
	_, _ = conn.Write(out)
}

// run attacks until ctx ends. Clients begin with different attacks.
func (c *hostileClient) run(first int) {
	names := slices.Sorted(maps.Keys(attacks))
	defer func() {
		for _, conn := range c.open {
			conn.Close()
		}
	}()
	for n := first; c.ctx.Err() == nil; n++ {
		attacks[names[n%len(names)]](c)
		select {
		case <-c.ctx.Done():
		case <-time.After(100 * time.Millisecond): // a client that is refused does not cost its own machine everything
		}
	}
}

// While clients without rights attack together, an administrator is served, on existing and
// on new connections, and no process exceeds its memory.
func TestHostileClients(t *testing.T) {
	up, err := testtools.Launch(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := up.Stop(); err != nil {
			t.Error(err)
		}
	})
	i, err := newInstallation(up)
	if err != nil {
		t.Fatal(err)
	}
	lasts, alone := hostileFor(t)
	ctx, cancel := context.WithTimeout(t.Context(), lasts)
	defer cancel()
	var attacking sync.WaitGroup
	for n := range hostileClients {
		certificate := i.clients.issue(t, subject{name: fmt.Sprint("hostile-", n)})
		c := &hostileClient{i: i, certificate: certificate, ctx: ctx, client: i.client(certificate)}
		attacking.Go(func() { c.run(n) })
	}
	medians := i.calm(t, attacking.Wait)
	for how, median := range medians {
		if alone && median > 100*time.Millisecond {
			t.Errorf("an administrator %s: median %v; want 100ms at most", how, median)
		}
	}
}

// calm runs an attack and checks that an administrator is served meanwhile, on existing and on
// new connections, each time within two seconds on a quiet machine, and that no process exceeds its memory. It
// returns the median times.
func (i *installation) calm(t *testing.T, attack func()) map[string]time.Duration {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	took := map[string][]time.Duration{}
	var watching sync.WaitGroup
	watching.Go(func() {
		for n := 0; ctx.Err() == nil; n++ {
			client, how := i.admin, "on a connection that is there"
			if n%4 == 3 {
				client, how = i.client(i.administrator), "on a new connection"
			}
			began := time.Now()
			if code, body, err := i.ask(client, "GET", "/api/v1/namespaces/kube-system", ""); err != nil || code != nethttp.StatusOK {
				t.Errorf("an administrator %s: %d %.200s %v", how, code, body, err)
			}
			took[how] = append(took[how], time.Since(began))
			if client != i.admin {
				client.CloseIdleConnections()
			}
			time.Sleep(20 * time.Millisecond)
		}
	})
	attack()
	cancel()
	watching.Wait()
	medians := map[string]time.Duration{}
	for how, all := range took {
		slices.Sort(all)
		medians[how] = all[len(all)/2]
		slowest := all[len(all)-1]
		t.Logf("an administrator %s: %d requests, median %v, slowest %v", how, len(all), medians[how], slowest)
		await.Bar(t, "the slowest request of an administrator "+how, slowest, 2*time.Second)
	}
	for name, peak := range i.peaks(t) {
		t.Logf("%s: at most %d MB", name, peak>>20)
		if peak > maxMemory {
			t.Errorf("%s has taken %d MB", name, peak>>20)
		}
	}
	return medians
}
