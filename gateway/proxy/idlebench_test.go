package proxy

import (
	"bytes"
	"context"
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// idleWatchers are as many as there are descriptors for, with both ends of a
// connection each.
const idleWatchers = 4000

// BenchmarkIdleWatch is the memory that a watch takes in which nothing happens,
// in bytes of heap and stack: of the handler alone, and with a server around it,
// over connections of 1,000 streams each.
func BenchmarkIdleWatch(b *testing.B) {
	b.Run("handler", func(b *testing.B) {
		var events emitter
		handler := events.api(b)
		idle(b, func(ctx context.Context) func() {
			var started, ended sync.WaitGroup
			for range idleWatchers {
				started.Add(1)
				ended.Go(func() {
					r := httptest.NewRequestWithContext(ctx, "GET", benchWatch, nil)
					handler.ServeHTTP(&quietWriter{header: http.Header{}, flushed: started.Done}, r)
				})
			}
			started.Wait()
			return ended.Wait
		})
	})
	for _, where := range []string{"server", "server and gateway", "server and gateway over a socket"} {
		b.Run(where, func(b *testing.B) {
			var events emitter
			handler := events.api(b)
			switch where {
			case "server and gateway":
				handler = benchFront(b, false, benchTLS(b, handler))
			case "server and gateway over a socket":
				handler = benchFront(b, false, benchSocket(b, handler))
			}
			server := benchTLS(b, handler)
			idle(b, func(context.Context) func() {
				var conns []*tls.Conn
				for range idleWatchers / 1000 {
					conns = append(conns, openStreams(b, server, 1000))
				}
				return func() {
					for _, c := range conns {
						c.Close()
					}
				}
			})
		})
	}
}

// idle reports what the watches that open starts take while they last.
func idle(b *testing.B, open func(ctx context.Context) (wait func())) {
	for b.Loop() {
		before := used()
		ctx, cancel := context.WithCancel(context.Background())
		wait := open(ctx)
		after := used()
		b.ReportMetric(float64(after[0]-before[0])/idleWatchers, "heap-B/watch")
		b.ReportMetric(float64(after[1]-before[1])/idleWatchers, "stack-B/watch")
		b.ReportMetric(float64(runtime.NumGoroutine())/idleWatchers, "goroutines/watch")
		cancel()
		wait()
	}
}

func used() [2]int64 {
	var m runtime.MemStats
	for range 3 { // stacks shrink by half at a time
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return [2]int64{int64(m.HeapAlloc), int64(m.StackInuse)}
}

// quietWriter is a response that nobody reads.
type quietWriter struct {
	header  http.Header
	once    sync.Once
	flushed func()
}

func (w *quietWriter) Header() http.Header         { return w.header }
func (w *quietWriter) Write(b []byte) (int, error) { return len(b), nil }
func (w *quietWriter) WriteHeader(int)             {}
func (w *quietWriter) FlushError() error           { w.once.Do(w.flushed); return nil }

// openStreams is a client that keeps nothing: it opens n watches on one
// connection and returns when all of them have begun.
func openStreams(b *testing.B, server *httptest.Server, n int) *tls.Conn {
	config := server.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
	config.NextProtos, config.ServerName = []string{"h2"}, "example.com"
	conn, err := tls.Dial("tcp", server.Listener.Addr().String(), config)
	if err != nil {
		b.Fatal(err)
	}
	if _, err := conn.Write([]byte(http2.ClientPreface)); err != nil {
		b.Fatal(err)
	}
	framer := http2.NewFramer(conn, conn)
	go func() {
		var block bytes.Buffer
		encoder := hpack.NewEncoder(&block)
		_ = framer.WriteSettings()
		for i := range n {
			block.Reset()
			for _, f := range [][2]string{{":method", "GET"}, {":scheme", "https"}, {":authority", "example.com"}, {":path", benchWatch}} {
				_ = encoder.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]})
			}
			_ = framer.WriteHeaders(http2.HeadersFrameParam{
				StreamID: uint32(2*i + 1), BlockFragment: block.Bytes(), EndStream: true, EndHeaders: true,
			})
		}
	}()
	for begun := 0; begun < n; {
		frame, err := framer.ReadFrame()
		if err != nil {
			b.Fatal(err)
		}
		switch frame := frame.(type) {
		case *http2.HeadersFrame:
			begun++
		case *http2.RSTStreamFrame:
			b.Fatal(frame)
		}
	}
	return conn
}
