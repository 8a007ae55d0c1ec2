// Package kmstest is a stand-in for a KMS v2 plugin: it speaks upstream's protocol on a unix
// socket, and can be away, slow, refuse, and rotate its key.
//
// Runs in: tests.
package kmstest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"google.golang.org/grpc"
	kmsapi "k8s.io/kms/apis/v2"
)

// Plugin is a KMS v2 plugin. Its "encryption" is the name of the key before the data. Safe for
// concurrent use.
type Plugin struct {
	kmsapi.UnimplementedKeyManagementServiceServer
	socket string

	mu       sync.Mutex
	server   *grpc.Server // nil: it is away
	key      string
	hangs    bool
	refuses  bool
	decrypts int
}

// Start starts a plugin, which ends with the test.
func Start(t testing.TB) *Plugin {
	t.Helper()
	folder, err := os.MkdirTemp("", "kms") // the path of a socket is short
	if err != nil {
		t.Fatal(err)
	}
	p := &Plugin{socket: filepath.Join(folder, "s"), key: "key-1"}
	t.Cleanup(func() { p.Stop(); os.RemoveAll(folder) })
	p.Serve(t)
	return p
}

// Endpoint is the endpoint of the plugin in an EncryptionConfiguration.
func (p *Plugin) Endpoint() string { return "unix://" + p.socket }

// Serve makes the plugin serve again.
func (p *Plugin) Serve(t testing.TB) {
	t.Helper()
	l, err := net.Listen("unix", p.socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	kmsapi.RegisterKeyManagementServiceServer(server, p)
	p.mu.Lock()
	p.server = server
	p.mu.Unlock()
	go server.Serve(l)
}

// Stop makes the plugin be away: it has no socket.
func (p *Plugin) Stop() {
	p.mu.Lock()
	server := p.server
	p.server = nil
	p.mu.Unlock()
	if server != nil {
		server.Stop()
	}
}

// SetKey rotates the key.
func (p *Plugin) SetKey(id string) { p.set(func() { p.key = id }) }

// SetHangs makes requests wait until they are given up.
func (p *Plugin) SetHangs(hangs bool) { p.set(func() { p.hangs = hangs }) }

// SetRefuses makes the plugin refuse to encrypt and to decrypt, and say that it is not healthy.
func (p *Plugin) SetRefuses(refuses bool) { p.set(func() { p.refuses = refuses }) }

func (p *Plugin) set(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
}

// Decrypts returns how often the plugin was asked to decrypt.
func (p *Plugin) Decrypts() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.decrypts
}

// begin waits while the plugin hangs, and returns its key.
func (p *Plugin) begin(ctx context.Context) (key string, err error) {
	p.mu.Lock()
	hangs, refuses, key := p.hangs, p.refuses, p.key
	p.mu.Unlock()
	if hangs {
		<-ctx.Done()
		return "", ctx.Err()
	}
	if refuses {
		return key, errors.New("permission denied")
	}
	return key, nil
}

// Status implements the protocol.
func (p *Plugin) Status(ctx context.Context, _ *kmsapi.StatusRequest) (*kmsapi.StatusResponse, error) {
	key, err := p.begin(ctx)
	healthz := "ok"
	if err != nil {
		healthz = err.Error()
	}
	return &kmsapi.StatusResponse{Version: "v2", Healthz: healthz, KeyId: key}, nil
}

// Encrypt implements the protocol.
func (p *Plugin) Encrypt(ctx context.Context, in *kmsapi.EncryptRequest) (*kmsapi.EncryptResponse, error) {
	key, err := p.begin(ctx)
	if err != nil {
		return nil, err
	}
	return &kmsapi.EncryptResponse{Ciphertext: append([]byte(key+":"), in.Plaintext...), KeyId: key}, nil
}

// Decrypt implements the protocol.
func (p *Plugin) Decrypt(ctx context.Context, in *kmsapi.DecryptRequest) (*kmsapi.DecryptResponse, error) {
	p.set(func() { p.decrypts++ })
	if _, err := p.begin(ctx); err != nil {
		return nil, err
	}
	plain, ok := bytes.CutPrefix(in.Ciphertext, []byte(in.KeyId+":"))
	if !ok {
		return nil, fmt.Errorf("not encrypted with %s", in.KeyId)
	}
	return &kmsapi.DecryptResponse{Plaintext: plain}, nil
}
