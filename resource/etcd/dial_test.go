package etcd

import (
	"context"
	"net"
	"strings"
	"testing"
)

// A client connects, and diagnoses its connection, by Config.Dial.
func TestDial(t *testing.T) {
	t.Parallel()
	server := newServer(t)
	cfg := Config{
		Endpoints: []string{"http://etcd.control-plane.invalid:2379"},
		Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			if network != "tcp" || address != "etcd.control-plane.invalid:2379" {
				t.Errorf("dialled %s %s", network, address)
			}
			return new(net.Dialer).DialContext(ctx, "unix", strings.TrimPrefix(server.DirectEndpoint(), "unix://"))
		},
	}
	client, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if err := client.Healthy(t.Context()); err != nil {
		t.Error(err)
	}
	if err := Diagnose(t.Context(), cfg); err != nil {
		t.Error(err)
	}
}
