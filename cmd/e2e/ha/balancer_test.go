package ha

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"portico/cmd/e2e"
	"portico/internal/testing/await"
)

const (
	// checkEvery is the interval of the balancer's checks, as that of haproxy in a long run.
	checkEvery = 400 * time.Millisecond
	// checkTime is how long it waits for the result of one: a gateway that ends refuses it at once.
	checkTime = 5 * time.Second
)

// balancer is a load balancer for TCP in front of the gateways: new connections go in turn to those
// that are ready.
type balancer struct {
	gateways []string
	ready    []atomic.Bool
	next     atomic.Int64
	running  sync.WaitGroup
}

// balance starts a balancer at an address, which ends with the test.
func balance(t *testing.T, in *installation, address string) *balancer {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	b := &balancer{ready: make([]atomic.Bool, len(gateways))}
	for _, name := range gateways {
		b.gateways = append(b.gateways, in.address(name))
	}
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(func() {
		cancel()
		l.Close()
		b.running.Wait()
	})
	for i := range b.gateways {
		b.running.Go(func() { b.check(ctx, i) })
	}
	b.running.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			b.running.Go(func() { b.forward(ctx, conn) })
		}
	})
	return b
}

// uses waits until new connections go to all gateways.
func (b *balancer) uses(t *testing.T) {
	t.Helper()
	e2e.Eventually(t, "the balancer uses all gateways", func() error {
		for i := range b.ready {
			if !b.ready[i].Load() {
				return fmt.Errorf("not %s", gateways[i])
			}
		}
		return nil
	})
}

// check follows the readiness of one gateway.
func (b *balancer) check(ctx context.Context, i int) {
	client := &http.Client{Timeout: checkTime, Transport: &http.Transport{
		DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, // as load balancers check by default
	}}
	for ctx.Err() == nil {
		resp, _, err := e2e.Ask(ctx, client, http.MethodGet, "https://"+b.gateways[i]+"/readyz", "")
		b.ready[i].Store(err == nil && resp.StatusCode == http.StatusOK)
		select {
		case <-ctx.Done():
		case <-time.After(checkEvery):
		}
	}
}

// forward connects a client with the next gateway that is ready; without one it hangs up.
func (b *balancer) forward(ctx context.Context, client net.Conn) {
	defer client.Close()
	for range b.gateways {
		i := int(b.next.Add(1)) % len(b.gateways)
		if !b.ready[i].Load() {
			continue
		}
		server, err := net.DialTimeout("tcp", b.gateways[i], checkTime)
		if err != nil {
			continue
		}
		defer server.Close()
		defer context.AfterFunc(ctx, func() { client.Close(); server.Close() })()
		var both sync.WaitGroup
		for _, pair := range [][2]net.Conn{{client, server}, {server, client}} {
			both.Go(func() {
				_, _ = io.Copy(pair[0], pair[1]) // one end closes it
				pair[0].Close()
				pair[1].Close()
			})
		}
		both.Wait()
		return
	}
}

// probes returns, for each gateway, a function that waits until it serves a write to the core
// server and a list of records.
func probes(t *testing.T, in *installation, admin *rest.Config) (all []func(context.Context) error) {
	t.Helper()
	for _, name := range gateways {
		client, endpoint := e2e.HTTPClient(t, admin), "https://"+in.address(name)
		client.Timeout = time.Second
		ask := func(ctx context.Context, method, path, body string) error {
			resp, answer, err := e2e.Ask(ctx, client, method, endpoint+path, body, "Content-Type: application/merge-patch+json")
			if err == nil && resp.StatusCode != http.StatusOK {
				err = fmt.Errorf("%s %s: %s %s", method, path, resp.Status, answer)
			}
			return err
		}
		all = append(all, func(ctx context.Context) error {
			deadline := time.Now().Add(await.Patience())
			for {
				err := ask(ctx, http.MethodPatch, "/api/v1/namespaces/default", fmt.Sprintf(`{"metadata":{"annotations":{"probe":%q}}}`, time.Now()))
				if err == nil {
					err = ask(ctx, http.MethodGet, "/apis/historytest.portico.dev/v1/records", "")
				}
				if err == nil || time.Now().After(deadline) || ctx.Err() != nil {
					return err
				}
				time.Sleep(20 * time.Millisecond)
			}
		})
	}
	return all
}
