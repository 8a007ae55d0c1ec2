package proxy

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"

	"portico/gateway/upstream/transport"
	"portico/internal/testing/memstore"
	"portico/resource"
	"portico/resource/rest"
	"portico/resource/rest/handlers"
	"portico/resource/watchcache"
)

// secretStore serves secrets with a short history, and stores them.
func secretStore(t *testing.T, history int64) (handler http.HandlerFunc, put func(name, value string)) {
	t.Helper()
	scheme := k8sruntime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	kind := &rest.Kind{
		Info:  resource.Info{Versions: []string{"v1"}, Resource: "secrets", Kind: "Secret", Namespaced: true},
		Codec: rest.TypedJSON(scheme, corev1.SchemeGroupVersion.WithKind("Secret")),
	}
	storage := memstore.New()
	cache := watchcache.New(watchcache.Config{
		Feed: storage.Feed(), Store: storage.Store, History: watchcache.History{Age: time.Hour, MinEvents: 1, MaxBytes: history},
	})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = cache.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	if err := cache.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	store := cache.Store(&kind.Info)
	api := handlers.New(handlers.Config{Resources: []*rest.Resource{{Kind: kind, Store: store}}})
	handler = func(w http.ResponseWriter, r *http.Request) {
		api.ServeHTTP(w, r.WithContext(resource.WithAction(r.Context(), resource.ParseAction(r))))
	}
	return handler, func(name, value string) {
		t.Helper()
		o, err := kind.Codec.EncodeStored(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, StringData: map[string]string{"v": value}})
		if err != nil {
			t.Fatal(err)
		}
		_, err = store.Update(t.Context(), o.Key(), func(*resource.Object) (resource.Mutation, error) { return resource.Mutation{Object: o}, nil })
		if err != nil {
			t.Fatal(err)
		}
	}
}

// stuck opens a watch on a connection with a small window, and reads nothing.
func (f *front) stuck(t *testing.T, path string) net.Conn {
	t.Helper()
	server := httptest.NewUnstartedServer(f.Server.Config.Handler)
	server.Config.ConnContext = func(ctx context.Context, conn net.Conn) context.Context {
		if err := conn.(*net.TCPConn).SetWriteBuffer(64 << 10); err != nil {
			t.Error(err)
		}
		return ctx
	}
	server.Start()
	t.Cleanup(server.Close)
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.(*net.TCPConn).SetReadBuffer(64 << 10); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", path)
	return conn
}

// Clients that do not read hold up no others, although all watches share a connection
// to the server, and hold little memory. When they read again, they get 410 Gone.
func TestClientsThatDoNotRead(t *testing.T) {
	const (
		path    = "/api/v1/namespaces/ns/secrets?watch=1"
		clients = 16
		history = 2 << 20
		events  = 100
		size    = 100 << 10
	)
	handler, put := secretStore(t, history)
	f := startFront(t, handler)
	var stuck []net.Conn
	for range clients {
		stuck = append(stuck, f.stuck(t, path))
	}
	other := bufio.NewReaderSize(f.do(t, "GET", path, nil, nil).Body, 64<<10)
	// A first event that everybody has, for the watches to have begun.
	put("first", "x")
	if line, err := other.ReadString('\n'); err != nil || !strings.Contains(line, `"first"`) {
		t.Fatal(line, err)
	}
	var readers []*bufio.Reader
	for _, conn := range stuck {
		resp, err := http.ReadResponse(bufio.NewReaderSize(conn, 4<<10), nil)
		if err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewReaderSize(resp.Body, 4<<10)
		if line, err := lines.ReadString('\n'); err != nil || !strings.Contains(line, `"first"`) {
			t.Fatal(line, err)
		}
		readers = append(readers, lines)
	}
	before := heapInUse()
	for i := range events {
		put("big", strings.Repeat(fmt.Sprint(i%10), size))
		if line, err := other.ReadString('\n'); err != nil || i > 0 && !strings.Contains(line, `"MODIFIED"`) {
			t.Fatalf("%.100s, %v", line, err) // each before the next one happens
		}
	}
	if grown := heapInUse() - before; grown > history+clients*(transport.StreamBuffer+size)+16<<20 {
		t.Errorf("%d clients hold %d MiB", clients, grown>>20)
	}
	for i, lines := range readers {
		all, err := io.ReadAll(lines)
		last := all[strings.LastIndex(strings.TrimSuffix(string(all), "\n"), "\n")+1:]
		if err != nil || !strings.HasPrefix(string(last), `{"type":"ERROR"`) || !strings.Contains(string(last), `"code":410`) {
			t.Errorf("client %d: at last %.200s, %v", i, last, err)
		}
	}
}

func heapInUse() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
