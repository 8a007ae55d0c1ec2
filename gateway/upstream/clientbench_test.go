package upstream

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"portico/apiservice/backend"
)

// benchSocket is in the environment of a process that is only a server.
const benchSocket = "PORTICO_BENCH_SOCKET"

// BenchmarkClient is the processor time and memory of this side alone, of a GET
// that has the headers it has behind a gateway. The server is another process.
func BenchmarkClient(b *testing.B) {
	if path := os.Getenv(benchSocket); path != "" {
		serveReady(b, path)
	}
	for _, size := range []int{200, 3500} {
		path := filepath.Join(b.TempDir(), "s")
		cmd := exec.Command(os.Args[0], "-test.run", "xxx", "-test.bench", "^BenchmarkClient$")
		cmd.Env = append(os.Environ(), benchSocket+"="+path+":"+strconv.Itoa(size))
		if err := cmd.Start(); err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
			if _, err := os.Stat(path); err == nil || time.Now().After(deadline) {
				break
			}
		}
		e := Endpoint{URL: "unix://" + path, Network: "unix", Address: path, Weight: 1, Base: mustParse("http://server")}
		u := over(b, NewPolicy(&backend.Spec{}), e)
		two := e
		two.URL += "?"
		several := over(b, NewPolicy(&backend.Spec{}), e, two)
		t := newTransport(time.Minute)
		t.DialContext = func(context.Context, string, string) (net.Conn, error) { return net.Dial("unix", path) }
		for _, way := range []struct {
			name string
			to   http.RoundTripper
		}{{"short", u.Short()}, {"short of two", several.Short()}, {"http.Transport", t}} {
			b.Run(way.name+"/"+strconv.Itoa(size), func(b *testing.B) { benchClient(b, way.to, size) })
		}
	}
}

func benchClient(b *testing.B, to http.RoundTripper, size int) {
	ctx, cancel := context.WithTimeout(b.Context(), time.Minute)
	defer cancel()
	header := http.Header{
		"Accept": {"application/json"}, "Accept-Encoding": {"gzip"}, "User-Agent": {"kubectl/v1.36.2 (linux/amd64) kubernetes/e1bb48b"},
		"X-Forwarded-For": {"127.0.0.1"}, "X-Remote-User": {"system:serviceaccount:default:bench"},
		"X-Remote-Group": {"system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"},
	}
	url := mustParse("http://server/api/v1/namespaces/default/configmaps/a")
	buffer := make([]byte, 32<<10)
	b.ReportAllocs()
	before := processor(b)
	for b.Loop() {
		req := (&http.Request{Method: "GET", URL: url, Host: "server", Header: header, Body: http.NoBody}).WithContext(ctx)
		res, err := to.RoundTrip(req)
		if err != nil {
			b.Fatal(err)
		}
		n := 0
		for err == nil {
			var m int
			m, err = res.Body.Read(buffer)
			n += m
		}
		if res.Body.Close(); n != size || err != io.EOF {
			b.Fatal(n, err)
		}
	}
	b.ReportMetric(float64(processor(b)-before)/float64(b.N), "cpu-ns/op")
}

func processor(b *testing.B) time.Duration {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		b.Fatal(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// serveReady answers everything with the same bytes, as soon as it has come.
func serveReady(b *testing.B, where string) {
	at := bytes.LastIndexByte([]byte(where), ':')
	size, _ := strconv.Atoi(where[at+1:])
	l, err := net.Listen("unix", where[:at])
	if err != nil {
		b.Fatal(err)
	}
	answer := []byte("HTTP/1.1 200 OK\r\nAudit-Id: 6d1a5f9e-0d7b-4a2f-8f0a-2f1de0e8a9c1\r\nCache-Control: no-cache, private\r\n" +
		"Content-Type: application/json\r\nDate: Sat, 21 Nov 2026 11:00:00 GMT\r\nContent-Length: " + strconv.Itoa(size) + "\r\n\r\n" +
		string(bytes.Repeat([]byte("x"), size)))
	for {
		conn, err := l.Accept()
		if err != nil {
			b.Fatal(err)
		}
		go func() {
			in := make([]byte, 0, 64<<10)
			for {
				n, err := conn.Read(in[len(in):cap(in)])
				if err != nil {
					return
				}
				if in = in[:len(in)+n]; bytes.HasSuffix(in, []byte("\r\n\r\n")) {
					in = in[:0]
					if _, err := conn.Write(answer); err != nil {
						return
					}
				}
			}
		}()
	}
}
